"""A broker asks a leader that has just lost both other controllers."""

from __future__ import annotations

import time
from typing import NamedTuple

from rmqha.testing.real import wire
from tests.reproduce.finding import Finding, bug, right, unclear
from tests.reproduce.scenario import Group, Scenario
from tests.reproduce.stage import Stage

CLIENT_S = 3.0
"""How long a broker waits for an answer."""


class Seen(NamedTuple):
    """Seconds to the answer, and its code; None when none came in ten."""

    took_s: float
    code: int | None


def play(stage: Stage) -> Seen:
    """It wants an id, which a leader alone cannot give."""
    broker = stage.broker(1)
    broker.connection.invoke(wire.GET_METADATA_INFO)
    for node in stage.followers():
        stage.controllers.kill(node)
    begun = time.monotonic()
    code = None
    try:
        code = broker.apply()
    except OSError:
        pass
    return Seen(round(time.monotonic() - begun, 2), code)


def judge(seen: Seen) -> Finding:
    """An answer after three seconds is one that nobody hears."""
    asked = "two of three controllers were killed and the third one asked for an id:"
    if seen.code == 0:
        return unclear("a leader that had lost its quorum gave an id away")
    if seen.code is None:
        return bug(f"{asked} no answer in {seen.took_s:.0f} s")
    said = f"{asked} answer {seen.code} after {seen.took_s:.1f} s"
    return (
        right(said) if seen.took_s < CLIENT_S else bug(f"{said}; a broker waits {CLIENT_S:.0f} s")
    )


SCENARIO = Scenario(
    37, "a leader without quorum answers when nobody listens any more", "", play, judge,
    Group(count=3),
)  # fmt: skip
