"""Stages of a failover as our nodes' own logs tell them: noticed, and the new master at work.

What an outsider cannot see. A log is one JSON object a line with a UTC timestamp; Java's logs are
not read, and its rounds lack these stages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from rmqha.chaos.outcome import Round


class Told(NamedTuple):
    """One line that matters, in milliseconds of the wall clock."""

    at_ms: int
    event: str


NOTICED, WRITING = "noticed", "writing"


def told_by(lines: Iterable[str]) -> list[Told]:
    """The lines of a node's log that are about a failover."""
    found = []
    for line in lines:
        if '"broker_inactive"' not in line and '"role_taken_up"' not in line:
            continue
        try:
            said = msgspec.json.decode(line)
            at_ms = int(datetime.fromisoformat(said["timestamp"]).timestamp() * 1000)
        except (msgspec.DecodeError, KeyError, TypeError, ValueError):
            continue  # a line that a kill cut short
        if said["event"] == "broker_inactive" and said.get("was_master"):
            found.append(Told(at_ms, NOTICED))
        elif said["event"] == "role_taken_up" and said.get("role") == "master":
            found.append(Told(at_ms, WRITING))
    return found


def with_stages(one: Round, begun_wall_ms: int, told: Sequence[Told]) -> Round:
    """A round with the stages that logs tell of it.

    Args:
        one: the round.
        begun_wall_ms: when its cell began, by the clock of the logs.
        told: by all nodes' logs, of the whole cell.
    """
    if one.elected_ms is None:
        return one  # nobody was elected: what logs tell is about something else
    begun = begun_wall_ms + one.at_ms
    over = begun + one.held_ms + (one.whole_ms or 0)

    def first(event: str) -> int | None:
        times = [t.at_ms - begun for t in told if t.event == event and begun <= t.at_ms <= over]
        return min(times, default=None)

    return msgspec.structs.replace(one, noticed_ms=first(NOTICED), writing_ms=first(WRITING))
