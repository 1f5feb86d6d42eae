"""Whole tables as records of the log: what a replica has of a Java master, or of no moment of the log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from rmqha.broker.topics.group_table import GroupTable, system_groups
from rmqha.broker.topics.mapping_table import MappingTable
from rmqha.broker.topics.metadata_change import Change
from rmqha.broker.topics.topic_table import TopicConfig, TopicTable
from rmqha.remoting.topic_names import is_system_topic

ItemT = TypeVar("ItemT")

TOLD_AT_ONCE = 100
"""Topics or groups in one record. A static topic, whose logical queues may be many, has one of its own."""


def told(
    topics: TopicTable, mappings: MappingTable, groups: GroupTable, given: Iterable[TopicConfig]
) -> Iterator[Change]:
    """All that the tables have, as it is when it is asked for, but what every broker has.

    Args:
        given: topics that every broker has from its start.
    """
    usual = {one.name: one for one in given}
    plain = [
        name for name, one in sorted(topics.items.items())
        if usual.get(name) != one and not is_system_topic(name) and name not in mappings.items
    ]  # fmt: skip
    for part in _parts(plain):
        yield Change(topics=_some(topics.items, part))
    for name in sorted(mappings.items):
        yield Change(topics=_some(topics.items, [name]), mappings=_some(mappings.items, [name]))
    own = {one.name: one for one in system_groups()}
    for part in _parts(
        [name for name, one in sorted(groups.items.items()) if own.get(name) != one]
    ):
        yield Change(groups=_some(groups.items, part))


def _parts(names: Sequence[str]) -> Iterator[Sequence[str]]:
    for at in range(0, len(names), TOLD_AT_ONCE):
        yield names[at : at + TOLD_AT_ONCE]


def _some(items: Mapping[str, ItemT], names: Sequence[str]) -> tuple[ItemT, ...]:
    """Those that are still there, as they are now."""
    return tuple(items[name] for name in names if name in items)
