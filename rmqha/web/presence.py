"""How many replicas of each broker set a node has seen in the last ten minutes.

A name server and a broker know only who is there: of whom they have lost they say nothing, and a set
of which two of three have died looks like a set of one. Controllers know the members, and need none
of this. Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from rmqha.web.document import BrokerSetView, StatusDocument

WINDOW_MS = 600_000


class Gone(NamedTuple):
    """A set of which nobody is left, and how many there were at once."""

    broker_name: str
    most: int


class Before(NamedTuple):
    """What was there before a document, and is not in it. Sets are named ``cluster/broker_name``.

    Attributes:
        most: the most replicas at once, of sets that have fewer now.
        gone: sets that are there no more.
        had_sets: whether there has ever been one.
    """

    most: Mapping[str, int] = MappingProxyType({})
    gone: Mapping[str, Gone] = MappingProxyType({})
    had_sets: bool = False


class Presence:
    """Counts the replicas of one node's documents, each newer than those before."""

    def __init__(self) -> None:
        # Of each set counts that fall, each with the time at which it was seen last: the first is
        # the most within the window.
        self._counts: dict[str, deque[tuple[int, int]]] = {}
        self._names: dict[str, str] = {}
        self._had_sets = False

    def add(self, document: StatusDocument) -> Before:
        """Take a document in; what there was before it."""
        self._had_sets = self._had_sets or bool(document.broker_sets)
        if document.node.kind == "controller":
            return Before(had_sets=self._had_sets)
        most: dict[str, int] = {}
        present: set[str] = set()
        for one in document.broker_sets:
            key = f"{one.cluster}/{one.broker_name}"
            present.add(key)
            if _is_told_by_presence(one, document):
                alive = sum(replica.alive is not False for replica in one.replicas)
                self._names[key] = one.broker_name
                if (before := self._count(key, alive, document.time_ms)) > alive:
                    most[key] = before
        return Before(most, self._gone(present, document), self._had_sets)

    def _count(self, key: str, alive: int, now_ms: int) -> int:
        counts = self._counts.setdefault(key, deque())
        while counts and counts[-1][0] <= alive:
            counts.pop()
        counts.append((alive, now_ms))
        _forget(counts, now_ms)
        return counts[0][0]

    def _gone(self, present: set[str], document: StatusDocument) -> dict[str, Gone]:
        found: dict[str, Gone] = {}
        for key in sorted(self._counts.keys() - present):
            counts = self._counts[key]
            _forget(counts, document.time_ms)
            if counts:
                found[key] = Gone(self._names[key], counts[0][0])
            else:
                del self._counts[key], self._names[key]
        return found


def _is_told_by_presence(one: BrokerSetView, document: StatusDocument) -> bool:
    """Whether who is missing is not told otherwise, and who is there is all that live."""
    if document.node.kind == "broker":
        return document.node.role == "master"  # a slave knows its master only
    return one.sync_state_set is None  # with one, a controller in the process has told it


def _forget(counts: deque[tuple[int, int]], now_ms: int) -> None:
    while counts and now_ms - counts[0][1] > WINDOW_MS:
        counts.popleft()
