"""The rooms of the house: lower ones never import higher ones, neighbours never each other.

Also: a core (any file outside ``aio/``, ``cli/``, ``sim/``, ``testing/``, ``pipeline/``) imports
nothing that can wait, read a clock or draw a random number.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent / "rmqha"

FLOORS: list[set[str]] = [
    {"base"},
    {"runtime", "verify"},
    {"remoting", "web"},
    {"store", "ha", "controller", "statictopic"},
    {"client"},
    {"namesrv", "broker", "admin"},
    {"sim", "chaos", "pipeline"},
    {"testing"},
    {"cli"},
]
# cli is the ground floor of processes; sim drives the controller's shells.
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
SHELL_PARTS = {"aio", "cli", "sim", "testing", "pipeline", "chaos"}
FORBIDDEN_IN_CORES = {
    "aiofiles", "asyncio", "random", "secrets", "select", "socket", "subprocess", "threading",
    "time", "uvloop",
}  # fmt: skip
# ports.py names asyncio's Transport and Protocol in its types; logs and metrics write for people.
CORE_EXCEPTIONS = {"runtime/ports.py": {"asyncio"}}

BROKER_ROOMS = [
    "common", "membership", "topics", "groups", "naming", "deferred", "send", "pull", "sync",
    "pop", "admin", "aio",
]  # fmt: skip
"""Each imports only those before it; ``aio`` puts the broker together."""

FILES = sorted(ROOT.rglob("*.py"))


def _imports(path: Path) -> list[str]:
    """Modules that a file imports, type-checking blocks included."""
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            found += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return found


def _room(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if parts[0] == "rmqha" and len(parts) > 1 and parts[1] in FLOOR_OF else None


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_room_imports_only_rooms_below_it(path: Path) -> None:
    """An arrow upwards or sideways would tie together what must be replaceable alone."""
    relative = path.relative_to(ROOT)
    if len(relative.parts) == 1:
        return
    room = relative.parts[0]
    assert room in FLOOR_OF, f"{relative}: a room that DESIGN does not know"
    for module in _imports(path):
        other = _room(module)
        if other is not None and other != room:
            assert FLOOR_OF[other] < FLOOR_OF[room], f"{relative} imports {module}"


BROKER_FILES = sorted((ROOT / "broker").rglob("*.py"))


@pytest.mark.parametrize("path", BROKER_FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_broker_room_imports_only_rooms_before_it(path: Path) -> None:
    """Whoever changes how a pull is answered need not know what pop makes of it."""
    relative = path.relative_to(ROOT / "broker")
    if len(relative.parts) == 1:
        assert path.name == "__init__.py", f"{relative} stands in no room"
        return
    room = BROKER_ROOMS.index(relative.parts[0])
    for module in _imports(path):
        if module.startswith("rmqha.broker."):
            other = module.split(".")[2]
            assert BROKER_ROOMS.index(other) <= room, f"{relative} imports {module}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_core_touches_no_clock_socket_or_thread(path: Path) -> None:
    """A core that waits or reads a clock cannot be simulated or traced."""
    relative = path.relative_to(ROOT)
    if SHELL_PARTS & set(relative.parts):
        return
    allowed = CORE_EXCEPTIONS.get(str(relative), set())
    for module in _imports(path):
        top = module.split(".")[0]
        assert top not in FORBIDDEN_IN_CORES - allowed, f"{relative} imports {module}"
        if top == "rmqha":
            assert "aio" not in module.split("."), f"core {relative} imports shell {module}"


def test_a_folder_of_modules_is_a_package() -> None:
    """Out of the zip that spark-submit ships, a folder without ``__init__.py`` cannot be imported."""
    assert not {path.parent for path in FILES if not (path.parent / "__init__.py").exists()}


def test_the_layer_test_reads_the_whole_tree() -> None:
    """An empty glob would make the tests above pass without looking."""
    assert len(FILES) > 10
