"""One log, one state: nodes that have applied the same entries hold the same values.

The state is looked at field by field, not through its snapshot: what a snapshot leaves out shows
as soon as a node has loaded one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from msgspec import Struct
from msgspec.structs import fields

from rmqha.base.invariants import invariant


class StateWatch:
    """Compares the applied state of nodes, by log index."""

    def __init__(self) -> None:
        self._states: dict[int, tuple[str, object]] = {}

    def applied(self, node: str, index: int, state: object) -> None:
        """A node's whole state after it applied ``index``, or loaded a snapshot that ends there.

        Raises:
            InvariantBroken: another node had another state there.
        """
        frozen = freeze(state)
        first, known = self._states.setdefault(index, (node, frozen))
        if known != frozen:
            invariant(
                False,
                "two nodes applied the same entries and differ",
                index=index,
                first=first,
                second=node,
                difference=difference(known, frozen),
            )


_READERS: dict[type, Callable[[Any], object]] = {}


def freeze(value: Any) -> object:
    """Every field of a value, all the way down, as tuples that can be compared.

    A dataclass's fields that take no part in comparisons are caches, and are left out.
    """
    reader = _READERS.get(type(value))
    if reader is None:
        reader = _READERS[type(value)] = _reader(type(value))
    return reader(value)


def _reader(kind: type) -> Callable[[Any], object]:
    if issubclass(kind, dict):
        return lambda value: tuple((key, freeze(value[key])) for key in sorted(value))
    if issubclass(kind, list | tuple):
        return lambda value: tuple(map(freeze, value))
    if dataclasses.is_dataclass(kind):
        names = [one.name for one in dataclasses.fields(kind) if one.compare]
    elif issubclass(kind, Struct):
        names = [one.name for one in fields(kind)]
    else:
        return lambda value: value
    get = attrgetter(*names)
    if len(names) == 1:
        return lambda value: (freeze(get(value)),)
    return lambda value: tuple(map(freeze, get(value)))


def difference(one: object, other: object) -> tuple[object, object]:
    """The first place, going down, where two frozen values differ."""
    if isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
        for left, right in zip(one, other, strict=True):
            if left != right:
                return difference(left, right)
    return one, other
