"""One bug: what is played, on which controllers, and how what was seen is judged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from rmqha.testing.real.maven import DEFAULT_VERSION
from tests.reproduce.finding import Finding
from tests.reproduce.stage import Stage

Settings = tuple[tuple[str, object], ...]


class Group(Struct, frozen=True):
    """The controllers that a scenario needs; scenarios of equal needs share them.

    Attributes:
        java: ``dledger`` or ``jraft``.
        count: nodes.
        settings: properties that both get; what Java does not know it ignores.
        version: of Java's.
        own: a name that keeps it from being shared.
    """

    java: str = "dledger"
    count: int = 1
    settings: Settings = ()
    version: str = DEFAULT_VERSION
    own: str = ""


class Scenario(Struct, frozen=True):
    """A row of docs/known-java-bugs.md that can be shown.

    Attributes:
        number: of the row.
        title: what Java does.
        issue: at apache/rocketmq, empty when there is none.
        play: does the thing and returns what was seen, in facts.
        judge: tells from the facts whether the bug is there.
        group: where it is played.
    """

    number: int
    title: str
    issue: str
    play: Callable[[Stage], Any]
    judge: Callable[[Any], Finding]
    group: Group = Group()
