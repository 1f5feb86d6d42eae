"""The one shape: ``step(now_ms, event) -> effects``, and the notes a core leaves for the log."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from msgspec import Struct, field

EventT = TypeVar("EventT", contravariant=True)
EffectT = TypeVar("EffectT")


class Machine(Protocol[EventT, EffectT]):
    """A core: it decides and never waits. No clock, no randomness, no IO, no asyncio."""

    def step(self, now_ms: int, event: EventT) -> list[EffectT]:
        """Take one event and return what the shell must do, in this order."""


class Ticked(Struct, frozen=True):
    """Time passed, and a deadline of the core may have come; every core with deadlines takes it."""


class Note(Struct, frozen=True):
    """A transition worth a line in the log; cores return it and shells write it.

    Attributes:
        event: snake_case past fact, such as ``master_elected``.
        level: ``debug``, ``info``, ``warning`` or ``error``.
        facts: the values, never put into the event's name.
    """

    event: str
    level: str = "info"
    facts: dict[str, Any] = field(default_factory=dict)
