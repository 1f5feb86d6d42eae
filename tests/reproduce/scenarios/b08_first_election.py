"""#10013: ``mqadmin electMaster`` for a set that never had a master."""

from __future__ import annotations

from typing import NamedTuple

from tests.reproduce.finding import Finding, bug, right, unclear
from tests.reproduce.scenario import Scenario
from tests.reproduce.stage import Stage


class Seen(NamedTuple):
    """(master, its address) after ``-b 99``, and the code when the real broker asks after ``-b -1``."""

    unknown: tuple[int | None, str | None]
    after_minus_one: int


def play(stage: Stage) -> Seen:
    """One set is given a broker that nobody has, another one -1."""
    broker = stage.broker(1)
    broker.register()
    broker.beat()
    stage.broker(99).elect(designate=True)
    unknown = stage.seen()
    other = stage.broker(1, f"{stage.name}-b")
    other.register()
    other.beat()
    stage.broker(-1, other.name).elect(designate=True)
    return Seen((unknown.master_id, unknown.master_address), other.elect().code)


def judge(seen: Seen) -> Finding:
    """Neither may harm a set."""
    took = seen.unknown[0] == 99
    if not took and seen.after_minus_one == 0:
        return right(
            "electMaster -b 99, a broker that nobody has, was refused; after -b -1 the set's own"
            " broker could be elected"
        )
    found = []
    if took:
        where = seen.unknown[1] or "without an address"
        found.append(f"electMaster -b 99 made a broker master that nobody has, {where}")
    if seen.after_minus_one == 2012:
        found.append("after -b -1 no broker of the set can be elected any more (2012)")
    return bug("; ".join(found)) if found else unclear(f"seen: {seen}")


SCENARIO = Scenario(
    8,
    "the first election takes a broker that nobody has, and -1 ends the set",
    "#10013",
    play,
    judge,
)
