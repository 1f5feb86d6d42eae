"""The table of a write lease's states against the core: every row happens, and nothing else."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from rmqha.base.machine import Ticked
from rmqha.broker.membership import write_lease as wl
from rmqha.broker.membership.lease_table import TABLE
from rmqha.broker.membership.write_lease import LeaseEvent, WriteLease

CONTROLLERS = ("c0:1", "c1:1", "c2:1")
LEASE_MS = 8_000
NOW_MS = 1_000


def phase(lease: WriteLease, now_ms: int) -> str:
    """Which state of the table a lease is in."""
    if not lease._reigns:
        return "slave"
    if lease._fenced:
        return "fenced"
    if now_ms < lease.until_ms:
        return "held"
    return "asking" if now_ms < lease._candidate_until_ms else "unpromised"


def played(*events: LeaseEvent) -> WriteLease:
    lease = WriteLease(CONTROLLERS, LEASE_MS)
    for event in events:
        lease.step(NOW_MS, event)
    return lease


REIGN: tuple[LeaseEvent, ...] = (wl.Led("c0:1"), wl.Reigned())
TWO: tuple[LeaseEvent, ...] = tuple(wl.Vouched(one, NOW_MS) for one in CONTROLLERS[:2])
ALL: tuple[LeaseEvent, ...] = (*TWO, wl.Vouched("c2:1", NOW_MS))

BEGINNINGS: tuple[Callable[[], WriteLease], ...] = (
    played,
    lambda: played(wl.Led("c0:1"), *ALL),
    lambda: played(wl.Fenced()),
    lambda: played(*REIGN),
    lambda: played(*REIGN, TWO[0]),
    lambda: played(*REIGN, TWO[1], wl.Vouched("c2:1", NOW_MS)),
    lambda: played(*REIGN, *TWO),
    lambda: played(*REIGN, *ALL),
    lambda: played(*REIGN, *TWO, wl.Confirmed(1)),
    lambda: played(*REIGN, *ALL, wl.Confirmed(1)),
    lambda: played(*REIGN, wl.Fenced()),
    lambda: played(*REIGN, *ALL, wl.Fenced()),
    lambda: played(*REIGN, *ALL, wl.Confirmed(1), wl.Fenced()),
)


def happenings(now_ms: int) -> list[LeaseEvent]:
    """Every event, in the shapes that matter."""
    found: list[LeaseEvent] = [
        wl.Reigned(), wl.Deposed(), wl.Fenced(), wl.Unfenced(), Ticked(),
        wl.Confirmed(0), wl.Confirmed(1), wl.Confirmed(2),
    ]  # fmt: skip
    found += [
        wl.Named(CONTROLLERS, CONTROLLERS), wl.Named(CONTROLLERS[:1], CONTROLLERS[:1]),
        wl.Named(CONTROLLERS, ("c3:1",)), wl.Named(CONTROLLERS),
    ]  # fmt: skip
    for one in (*CONTROLLERS, "unknown:1"):
        found += [wl.Led(one), wl.Left(one), wl.Vouched(one, now_ms), wl.Vouched(one, 0)]
    return found


def seen() -> set[tuple[str, str, str]]:
    """Every change that the core makes; time passes by itself, as ``Ticked``."""
    found = set()
    for begin, wait_ms in itertools.product(BEGINNINGS, (0, LEASE_MS - 1, LEASE_MS, LEASE_MS * 3)):
        now_ms = NOW_MS + wait_ms
        for event in happenings(now_ms):
            lease = begin()
            before = phase(lease, NOW_MS)
            lease.step(now_ms, Ticked())
            between = phase(lease, now_ms)
            found.add((before, "Ticked", between))
            lease.step(now_ms, event)
            found.add((between, type(event).__name__, phase(lease, now_ms)))
    return {(state, event, to) for state, event, to in found if state != to}


def test_lease_when_every_event_comes_in_every_state_then_the_table_says_where_it_leads() -> None:
    """A way into "held" that the table lacks is a way to acknowledge what another cuts."""
    rows = {(row.state, row.event, row.to) for row in TABLE}
    assert seen() - rows == set(), "the core does what the table lacks"
    assert rows - seen() == set(), "the table says what the core never does"
    assert len(rows) == len(TABLE), "a row stands twice"


def test_lease_when_it_begins_then_only_the_leaders_word_has_begun_it() -> None:
    """One row leads into "held": promises alone do not say who is master (ADR 0016)."""
    assert [(row.state, row.event) for row in TABLE if row.to == "held"] == [
        ("asking", "Confirmed")
    ]
