"""Tests import what is there.

Those of real RocketMQ run for half an hour, and last of all: one that takes a name that another module
no longer has would end their whole part there, and is seen here in seconds.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@functools.cache
def parsed(path: Path) -> ast.Module:
    """A file's tree."""
    return ast.parse(path.read_text())


def imports(path: Path) -> Iterator[tuple[str, str]]:
    """Module and name of whatever a file takes from ours, wherever it does."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in (
            "tests", "rmqha",
        ):  # fmt: skip
            yield from ((str(node.module), alias.name) for alias in node.names)


@functools.cache
def names(path: Path) -> frozenset[str]:
    """Whatever a module has, under conditions as well."""
    found: set[str] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    return frozenset(found)


def missing(root: Path) -> list[str]:
    """What tests below a folder import and nobody has."""
    found = []
    for path in sorted((root / "tests").rglob("*.py")):
        for module, name in imports(path):
            place = root.joinpath(*module.split("."))
            if (place / f"{name}.py").exists() or (place / name).is_dir():
                continue
            file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
            if not file.exists() or name not in names(file):
                found.append(f"{path.relative_to(root)}: {module} has no {name}")
    return found


@pytest.mark.slow
def test_imports_when_tests_are_read_then_each_name_is_there() -> None:
    assert missing(ROOT) == []


def test_imports_when_a_name_or_a_module_is_gone_then_both_are_told(tmp_path: Path) -> None:
    """In a function as well, where nothing would be seen before it runs."""
    folder = tmp_path / "tests"
    folder.mkdir()
    (folder / "one.py").write_text("if True:\n    KEPT = 1\ndef left(): ...\n")
    (folder / "two.py").write_text(
        "from tests import one\nfrom tests.one import KEPT, left, moved\n"
        "def late():\n    from rmqha.gone import any_name\n    import json\n"
    )
    assert missing(tmp_path) == [
        "tests/two.py: tests.one has no moved", "tests/two.py: rmqha.gone has no any_name",
    ]  # fmt: skip
