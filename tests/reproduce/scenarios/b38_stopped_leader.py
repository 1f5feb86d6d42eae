"""#4835: the leader of three controllers is stopped in order, as in each rolling restart."""

from __future__ import annotations

import threading
import time
from typing import NamedTuple

from tests.reproduce.finding import Finding, bug, right
from tests.reproduce.scenario import Group, Scenario
from tests.reproduce.stage import Stage, within

SHORT_S = 0.5
PATIENCE_S = 20.0


class Seen(NamedTuple):
    """Seconds from SIGTERM until another controller serves; None when none did."""

    after_s: float | None


def play(stage: Stage) -> Seen:
    """SIGTERM, and the others are asked all the time."""
    leader = stage.calm()
    followers = stage.followers()
    ending = threading.Thread(target=stage.controllers.terminate, args=(leader,))
    begun = time.monotonic()
    ending.start()
    serves = within(PATIENCE_S, lambda: any(stage.serves(node) for node in followers))
    after_s = time.monotonic() - begun
    ending.join()
    return Seen(round(after_s, 2) if serves else None)


def judge(seen: Seen) -> Finding:
    """It could have said goodbye."""
    if seen.after_s is None:
        return bug(f"the leader was stopped in order: no other one in {PATIENCE_S:.0f} s")
    said = f"the leader was stopped in order: another one served {seen.after_s:.2f} s later"
    return right(said) if seen.after_s < SHORT_S else bug(said)


SCENARIO = Scenario(
    38, "a leader that is stopped in order leaves a gap", "#4835", play, judge, Group(count=3)
)
