"""#10416, #9717: a master falls silent below JRaft's controllers of 5.2.0 to 5.3.3."""

from __future__ import annotations

import time
from typing import NamedTuple

from tests.reproduce.finding import Finding, bug, right
from tests.reproduce.scenario import Group, Scenario
from tests.reproduce.stage import Stage

TIMEOUT_MS = 2_000
WATCHED_S = 15.0
"""Seven times the timeout, three scans."""


class Seen(NamedTuple):
    """Seconds from the master's last heartbeat to the election; None when there was none."""

    after_s: float | None


def play(stage: Stage) -> Seen:
    """Its connection stays open, as under SIGSTOP."""
    master, slave = stage.replicas(2)
    master.beat(epoch=1, heartbeatTimeoutMills=TIMEOUT_MS)
    begun = time.monotonic()
    while (passed_s := time.monotonic() - begun) < WATCHED_S:
        slave.beat(epoch=1)
        if stage.seen().master_id == 2:
            return Seen(round(passed_s, 2))
        time.sleep(0.05)
    return Seen(None)


def judge(seen: Seen) -> Finding:
    """It is found, sooner or later."""
    if seen.after_s is None:
        return bug(
            "a master fell silent, with a heartbeat timeout of 2 s:"
            f" {WATCHED_S:.0f} s later nobody had replaced it"
        )
    return right(
        f"a master fell silent, with a heartbeat timeout of 2 s: replaced {seen.after_s:.1f} s later"
    )


SCENARIO = Scenario(
    41, "JRaft of 5.2.0 to 5.3.3 never finds a hung master", "#10416, #9717", play, judge,
    Group(java="jraft"),
)  # fmt: skip
