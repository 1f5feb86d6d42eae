"""Copies of a Raft core, and values in a plain form that can be compared and renamed.

A core is copied for each step, so this is written by type and not by name: a new attribute of a
node is copied and told apart without a change here.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec

from rmqha.controller.raft.core import RaftCore
from rmqha.controller.raft.events import Standing
from rmqha.controller.raft.log import RaftLog
from rmqha.controller.raft.node import Node

SHARED = {
    "settings", "members", "voters", "peers", "group", "groups", "guests", "snapshot", "incoming",
    "standing",
}  # fmt: skip
UNKEYED = {
    "settings", "members", "voters", "peers", "group", "groups", "guests", "seed", "elections", "id",
    "patience", "replaced", "heard_from",
}  # fmt: skip
"""What is the same all through a walk, moves deadlines alone, or stands in a member's key already."""


def copy_core(core: RaftCore) -> RaftCore:
    """A core that shares nothing that a step changes; only what lives between two steps."""
    other: RaftCore = RaftCore.__new__(RaftCore)
    node: Node = Node.__new__(Node)
    held = node.__dict__
    for name, value in core.node.__dict__.items():
        held[name] = value if name in SHARED else _copy(value)
    other.node = node
    return other


def _copy(value: Any) -> Any:
    kind = type(value)
    if kind in (int, str, bool, type(None), tuple):
        return value
    if kind in (deque, set, list):
        return value.copy()
    if kind is dict:
        return {key: _copy(one) for key, one in value.items()}
    if kind is RaftLog:
        log = RaftLog.__new__(RaftLog)
        log.__dict__.update({name: _copy(one) for name, one in vars(value).items()})
        return log
    if isinstance(value, msgspec.Struct) and not value.__struct_config__.frozen:
        return kind(*(_copy(getattr(value, name)) for name in value.__struct_fields__))
    return value


def plain(value: Any, names: dict[str, str]) -> Any:
    """A value as lists, numbers, bytes and texts, with nodes renamed; equal when it is equal."""
    kind = type(value)
    if kind in (int, bytes, bool, type(None)):
        return value
    if kind is str:
        return names.get(value, value)
    if kind in (set, frozenset):
        return sorted(names.get(one, one) for one in value)
    if kind is dict:
        return sorted([names.get(key, key), plain(one, names)] for key, one in value.items())
    if kind is Standing:
        return [value.kind, plain(value.store_id, names), _founders(value.founders, names)]
    if isinstance(value, (tuple, list, deque)):
        return [plain(one, names) for one in value]
    if isinstance(value, msgspec.Struct):
        fields = ((n, getattr(value, n)) for n in value.__struct_fields__)
        return [kind.__name__, *(
            _founders(one, names) if name == "founders" else plain(one, names)
            for name, one in fields
        )]  # fmt: skip
    if kind is RaftLog:
        return [plain(one, names) for one in vars(value).values()]
    return value.value


def _founders(founders: tuple[tuple[str, str], ...], names: dict[str, str]) -> list[list[str]]:
    """In the order of the nodes' names, also of their new ones."""
    return sorted([names.get(node, node), names.get(store, store)] for node, store in founders)
