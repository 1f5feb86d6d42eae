"""#10812: a broker that reaches the leader with everything but its heartbeats."""

from __future__ import annotations

import time
from typing import NamedTuple

from tests.reproduce.finding import Finding, bug, right, unclear
from tests.reproduce.scenario import Scenario
from tests.reproduce.stage import Stage

TIMEOUT_MS = 2_000
WATCHED_S = 9.0
"""The timeout, and a scan after it."""
POLL_EVERY_S = 0.2


class Seen(NamedTuple):
    """(master, epoch) before and after nine seconds of polling."""

    before: tuple[int | None, int]
    after: tuple[int | None, int]


def play(stage: Stage) -> Seen:
    """The master asks who is master (1004) all the time; its heartbeats go elsewhere."""
    master, slave = stage.replicas(2)
    before = stage.seen()
    master.beat(epoch=1, heartbeatTimeoutMills=TIMEOUT_MS)
    end = time.monotonic() + WATCHED_S
    after = before
    while time.monotonic() < end and after.master_epoch == before.master_epoch:
        master.poll()
        slave.beat(epoch=1)
        time.sleep(POLL_EVERY_S)
        after = stage.seen()
    return Seen((before.master_id, before.master_epoch), (after.master_id, after.master_epoch))


def judge(seen: Seen) -> Finding:
    """Whoever asks is alive."""
    if seen.before != (1, 1):
        return unclear(f"the set began with master and epoch {seen.before}")
    if seen.after == seen.before:
        return right("a master whose requests came, but no heartbeat, stayed master")
    return bug(
        "a master that asked its controller five times a second was replaced by"
        f" {seen.after[0]}, for its heartbeats did not come"
    )


SCENARIO = Scenario(
    17, "a master that asks five times a second is dead without heartbeats", "#10812", play, judge
)
