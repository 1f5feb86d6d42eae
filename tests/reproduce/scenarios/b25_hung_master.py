"""#10416: masters that fall silent while their connections stay open (SIGSTOP, a hung machine)."""

from __future__ import annotations

import time
from typing import NamedTuple

from tests.reproduce.finding import Finding, bug, right
from tests.reproduce.scenario import Scenario
from tests.reproduce.stage import Stage

TIMEOUT_S = 2.0
SETS = 5
EVERY_S = 1.0
"""A scan every 5 s meets five sets that fall silent a second apart in each of its phases."""
LATE_S = 1.5
WATCHED_S = 14.0


class Seen(NamedTuple):
    """Seconds from each master's last heartbeat to the election; None when there was none."""

    after_s: list[float | None]


def play(stage: Stage) -> Seen:
    """Five masters fall silent, one a second."""
    names = [f"{stage.name}-{number}" for number in range(SETS)]
    pairs = [stage.replicas(2, name) for name in names]
    silent: dict[str, float] = {}
    replaced: dict[str, float] = {}
    begun = time.monotonic()
    while len(replaced) < SETS and time.monotonic() < begun + WATCHED_S:
        due = int((time.monotonic() - begun) / EVERY_S) + 1
        for name, (master, _) in list(zip(names, pairs, strict=True))[len(silent) : due]:
            master.beat(epoch=1, heartbeatTimeoutMills=int(TIMEOUT_S * 1000))
            silent[name] = time.monotonic()
        for name in set(silent) - set(replaced):
            if stage.seen(name).master_id == 2:
                replaced[name] = time.monotonic()
        for _, slave in pairs:
            slave.beat(epoch=1)
        time.sleep(0.02)
    return Seen(
        [round(replaced[one] - silent[one], 2) if one in replaced else None for one in names]
    )


def judge(seen: Seen) -> Finding:
    """As late as the slowest."""
    took = [one for one in seen.after_s if one is not None]
    if len(took) < SETS:
        return bug(f"of {SETS} masters that fell silent {SETS - len(took)} were never replaced")
    slowest = max(took)
    said = (
        f"{SETS} masters fell silent, with a heartbeat timeout of {TIMEOUT_S:.0f} s each:"
        f" replaced {min(took):.1f} to {slowest:.1f} s later"
    )
    return right(said) if slowest < TIMEOUT_S + LATE_S else bug(said)


SCENARIO = Scenario(
    25,
    "a hung master is found by a scan, up to 5 s after its timeout",
    "#10416, #9717",
    play,
    judge,
)
