"""What a broker's metrics show: one look at its tables."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from typing import NamedTuple

from rmqha.broker.admin.runtime_info import Facts

LAG_QUEUES_MAX = 20_000
"""Queues of groups whose lag one scrape looks at; the rest is left out and counted."""

PART = 128
"""Topics of groups that are looked at in one turn; each has a few queues, of about 1 us."""


class Lag(NamedTuple):
    """How many messages a group has still before it."""

    topic: str
    group: str
    messages: int


class Scrape(NamedTuple):
    """Of one broker.

    Attributes:
        permission: brokerPermission.
        written: messages by topic.
        read: messages by (topic, group).
        lags: of groups that have stored offsets.
        lags_left_out: queues that were too many.
        records_skipped: records that the store or a service could not act on.
        planned_switches, sends_passed_on: see ``Statistics``.
        peers_unproven: connections of replication that proved no ``haSecret``, and were taken.
        busy_waits: of replication, by their ends.
    """

    facts: Facts
    permission: int
    topics: int
    groups: int
    written: Mapping[str, int]
    read: Mapping[tuple[str, str], int]
    lags: tuple[Lag, ...]
    lags_left_out: int
    records_skipped: int
    planned_switches: int
    sends_passed_on: int
    peers_unproven: int
    busy_waits: Mapping[str, int]


def lags_of(
    stored: Iterable[tuple[str, str, Mapping[int, int]]], end_of: Callable[[str, int], int]
) -> Generator[None, None, tuple[tuple[Lag, ...], int]]:
    """The lags, and how many queues were left out.

    Args:
        stored: topic, group and offsets by queue.
        end_of: the end of a queue.

    Yields:
        Where others may have their turn.
    """
    found: list[Lag] = []
    seen = left_out = 0
    for number, (topic, group, offsets) in enumerate(stored, 1):
        if not number % PART:
            yield
        seen += len(offsets)
        if seen > LAG_QUEUES_MAX:
            left_out += len(offsets)
            continue
        behind = (max(0, end_of(topic, queue) - offset) for queue, offset in offsets.items())
        found.append(Lag(topic, group, sum(behind)))
    return tuple(found), left_out
