"""The rooms of the house: lower ones never import higher ones, neighbours never each other.

Also: a core (any file outside ``aio/``, ``cli/``, ``sim/``, ``testing/``, ``pipeline/``) imports
nothing that can wait, read a clock or draw a random number.
"""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent / "rmqha"

FLOORS: list[set[str]] = [
    {"base"},
    {"runtime", "verify"},
    {"remoting", "web"},
    {"auth"},
    {"store", "ha", "controller", "statictopic"},
    {"client"},
    {"namesrv", "broker", "admin"},
    {"sim", "pipeline"},
    {"testing", "doctor"},
    {"chaos"},
    {"cli"},
]
# cli is the ground floor of processes; sim drives the controller's shells.
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
SHELL_PARTS = {"aio", "cli", "sim", "testing", "pipeline"}
FORBIDDEN_IN_CORES = {
    "aiofiles", "asyncio", "random", "secrets", "select", "socket", "subprocess", "threading",
    "time", "uvloop",
}  # fmt: skip
# ports.py names asyncio's Transport and Protocol in its types; logs and metrics write for people.
CORE_EXCEPTIONS = {"runtime/ports.py": {"asyncio"}}

BROKER_ROOMS = [
    "common", "membership", "topics", "groups", "naming", "logical", "deferred", "send", "pull", "sync",
    "pop", "admin", "aio",
]  # fmt: skip
"""Each imports only those before it; ``aio`` puts the broker together."""

FILES = sorted(ROOT.rglob("*.py"))
ROOMS = sorted({path.relative_to(ROOT).parts[0] for path in FILES if path.parent != ROOT})


@functools.cache
def _imports(path: Path) -> list[str]:
    """Modules that a file imports, type-checking blocks included."""
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            found += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return found


def _files_of(room: str) -> list[tuple[str, Path]]:
    return [(str(path.relative_to(ROOT)), path) for path in sorted((ROOT / room).rglob("*.py"))]


def _room(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if parts[0] == "rmqha" and len(parts) > 1 and parts[1] in FLOOR_OF else None


@pytest.mark.few
@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_rooms_below_it(room: str) -> None:
    """An arrow upwards or sideways would tie together what must be replaceable alone."""
    assert room in FLOOR_OF, f"{room}: a room that stands on no floor"
    upwards = [
        f"{name} imports {module}"
        for name, path in _files_of(room)
        for module in _imports(path)
        if (other := _room(module)) not in (None, room) and FLOOR_OF[other] >= FLOOR_OF[room]
    ]
    assert upwards == []


@pytest.mark.few
@pytest.mark.parametrize("room", sorted({p.name for p in (ROOT / "broker").iterdir()}))
def test_a_broker_room_imports_only_rooms_before_it(room: str) -> None:
    """Whoever changes how a pull is answered need not know what pop makes of it."""
    if room in ("__init__.py", "__pycache__"):
        return
    assert room in BROKER_ROOMS, f"{room} stands in no room"
    upwards = [
        f"{name} imports {module}"
        for name, path in _files_of(f"broker/{room}")
        for module in _imports(path)
        if module.startswith("rmqha.broker.")
        and BROKER_ROOMS.index(module.split(".")[2]) > BROKER_ROOMS.index(room)
    ]
    assert upwards == []


@pytest.mark.few
@pytest.mark.parametrize("room", ROOMS)
def test_a_core_touches_no_clock_socket_or_thread(room: str) -> None:
    """A core that waits or reads a clock cannot be simulated or traced."""
    wrong: list[str] = []
    for name, path in _files_of(room):
        if SHELL_PARTS & set(path.relative_to(ROOT).parts):
            continue
        forbidden = FORBIDDEN_IN_CORES - CORE_EXCEPTIONS.get(name, set())
        for module in _imports(path):
            parts = module.split(".")
            if parts[0] in forbidden or (parts[0] == "rmqha" and "aio" in parts):
                wrong.append(f"{name} imports {module}")
    assert wrong == []


def test_a_folder_of_modules_is_a_package() -> None:
    """Out of the zip that spark-submit ships, a folder without ``__init__.py`` cannot be imported."""
    assert not {path.parent for path in FILES if not (path.parent / "__init__.py").exists()}


def test_the_layer_test_reads_the_whole_tree() -> None:
    """An empty glob would make the tests above pass without looking."""
    assert len(FILES) > 10
    assert sum(len(_files_of(room)) for room in ROOMS) == len(FILES) - 1


def test_floors_when_read_then_every_room_on_them_is_there() -> None:
    """A room that is only a plan would let the first file in it stand on the wrong floor."""
    assert set(FLOOR_OF) == set(ROOMS)
    assert set(BROKER_ROOMS) == {
        path.name for path in (ROOT / "broker").iterdir() if path.is_dir()
    } - {"__pycache__"}
