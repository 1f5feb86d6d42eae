"""Bugs that are put in on purpose can be called as what they stand in for.

A mutant runs for seconds, and slow machines run a share of them. One whose function takes other
arguments than the real one, or is no generator where that one is, dies by a TypeError and proves
nothing: this says so in the moment in which the real one changes.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parent
PATCHES_MIN = 100
KINDS = (
    inspect.iscoroutinefunction,
    inspect.isgeneratorfunction,
    inspect.isasyncgenfunction,
)


class Watching(pytest.MonkeyPatch):
    """Puts bugs in, and compares each with what was there."""

    def __init__(self) -> None:
        super().__init__()
        self.compared: list[str] = []
        self.wrong: list[str] = []

    def setattr(self, target: Any, name: Any, value: Any = None, raising: bool = True) -> None:
        """As MonkeyPatch's."""
        if not isinstance(target, str):
            self._compare(target, name, value)
        super().setattr(target, name, value, raising=raising)

    def _compare(self, target: Any, name: str, value: Any) -> None:
        real = inspect.getattr_static(target, name, None)
        if not inspect.isfunction(real) or not inspect.isfunction(value):
            return
        where = f"{getattr(target, '__name__', target)}.{name}"
        self.compared.append(where)
        why = misfit(real, value)
        if why is not None:
            self.wrong.append(f"{where}: {why}")


def misfit(real: Callable[..., Any], instead: Callable[..., Any]) -> str | None:
    """Why one function cannot be called as another; None when it can."""
    for kind in KINDS:
        # What only hands on may be of no kind itself.
        if kind(instead) and not kind(real):
            return f"{kind.__name__[2:]} in place of none"
        if kind(real) and not kind(instead) and _looks_inside(instead):
            return f"none in place of a {kind.__name__[2:]}"
    fixed, named = [], {}
    for one in inspect.signature(real).parameters.values():
        if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD):
            fixed.append(None)
        elif one.kind is one.KEYWORD_ONLY:
            named[one.name] = None
    try:
        inspect.signature(instead).bind(*fixed, **named)
    except TypeError as error:
        return str(error)
    return None


def _looks_inside(instead: Callable[..., Any]) -> bool:
    """Whether a function does more than to return something at once."""
    try:
        tree = ast.parse(inspect.cleandoc("\n" + inspect.getsource(instead)))
    except (OSError, SyntaxError):
        return False
    body = getattr(tree.body[0], "body", None)
    return isinstance(body, list) and any(isinstance(one, ast.Assign | ast.For) for one in body)


def patches() -> Iterator[Callable[[pytest.MonkeyPatch], None]]:
    """All functions that put a bug in, by the lists that hold them."""
    for path in sorted(TESTS.rglob("*.py")):
        if "MUTANTS" not in (text := path.read_text()) and "HUNTS" not in text:
            continue
        name = ".".join(path.relative_to(TESTS.parent).with_suffix("").parts)
        module = importlib.import_module(name.removesuffix(".__init__"))
        for label in ("MUTANTS", "HUNTS"):
            found = getattr(module, label, ())
            for one in found.values() if isinstance(found, dict) else found:
                yield from _functions(one)


def _functions(one: Any) -> Iterator[Callable[[pytest.MonkeyPatch], None]]:
    parts = [one.patch] if hasattr(one, "patch") else one if isinstance(one, tuple) else [one]
    for part in parts:
        if inspect.isfunction(part) and list(inspect.signature(part).parameters) == ["patch"]:
            yield part


def test_mutants_when_put_in_then_they_can_be_called_as_the_real_thing() -> None:
    """Whatever else they do wrong on purpose."""
    wrong, compared = [], 0
    tried = {one.__qualname__ + one.__module__: one for one in patches()}
    for patch in tried.values():
        watching = Watching()
        try:
            patch(watching)
        finally:
            watching.undo()
        compared += len(watching.compared)
        wrong += [f"{patch.__module__}.{patch.__name__}: {one}" for one in watching.wrong]
    assert not wrong
    assert len(tried) > PATCHES_MIN
    assert compared > PATCHES_MIN


def _real(one: int, two: int = 2, *, three: int = 3) -> int:
    return one + two + three


def _parts(one: int) -> Iterator[int]:
    yield one


@pytest.mark.parametrize(
    ("real", "instead"),
    [
        (_real, lambda one, two: 0),
        (_real, lambda one, **more: 0),
        (_parts, lambda: 0),
        (_real, _parts),
    ],
)
def test_misfit_when_arguments_or_kinds_differ_then_said(
    real: Callable[..., Any], instead: Callable[..., Any]
) -> None:
    """Among them the two that died by accident: an argument more, and a generator."""
    assert misfit(real, instead) is not None


def test_misfit_when_it_can_be_called_then_none() -> None:
    """With anything, or with exactly that."""
    assert misfit(_real, lambda *found, **more: 0) is None
    assert misfit(_real, lambda one, two, three: 0) is None
    assert misfit(_parts, lambda one: iter(())) is None

    def not_in_parts(one: int) -> int:
        found = [one]
        return found[0]

    assert misfit(_parts, not_in_parts) is not None
