"""One log, one state: nodes that have applied the same entries hold the same values.

The state is looked at field by field, not through its snapshot: what a snapshot leaves out shows
as soon as a node has loaded one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from functools import partial
from operator import attrgetter
from types import NoneType
from typing import Any

from msgspec import Struct
from msgspec.structs import astuple, fields

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


_PLAIN = frozenset((int, str, bytes, bool, float, NoneType))
_READERS: dict[type, Callable[[Any], object]] = {}


def freeze(value: Any) -> object:
    """Every field of a value, all the way down, as tuples that can be compared.

    A dataclass's fields that take no part in comparisons are caches, and are left out. What cannot
    change, all the way down, stays as it is: it is compared field by field all the same.
    """
    reader = _READERS.get(type(value))
    if reader is None:
        reader = _READERS[type(value)] = _reader(type(value))
    return reader(value)


def _reader(kind: type) -> Callable[[Any], object]:
    if issubclass(kind, dict):
        return _freeze_dict
    if issubclass(kind, list | tuple):
        return _freeze_all
    if dataclasses.is_dataclass(kind):
        names = [one.name for one in dataclasses.fields(kind) if one.compare]
    elif issubclass(kind, Struct):
        names = [one.name for one in fields(kind)]
        if kind.__struct_config__.frozen and kind.__struct_config__.eq:
            return partial(_unless_hashable, _fields_reader(names))
    else:
        return lambda value: value
    return _fields_reader(names)


def _fields_reader(names: list[str]) -> Callable[[Any], object]:
    get = attrgetter(*names)
    if len(names) == 1:
        return lambda value: (freeze(get(value)),)
    return lambda value: _freeze_all(get(value))


def _freeze_dict(value: dict[Any, object]) -> tuple[object, ...]:
    keys = sorted(value)
    return tuple(zip(keys, _freeze_all([value[key] for key in keys]), strict=True))


def _freeze_all(values: Iterable[object]) -> tuple[object, ...]:
    return tuple([one if type(one) in _PLAIN else freeze(one) for one in values])


def _unless_hashable(read: Callable[[Any], object], value: Any) -> object:
    """The value itself if nothing in it can change, which is what its hash says."""
    try:
        hash(value)
    except TypeError:
        return read(value)
    return value


def difference(one: object, other: object) -> tuple[object, object]:
    """The first place, going down, where two frozen values differ."""
    if isinstance(one, Struct) and type(one) is type(other):
        one, other = astuple(one), astuple(other)
    if isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
        for left, right in zip(one, other, strict=True):
            if left != right:
                return difference(left, right)
    return one, other
