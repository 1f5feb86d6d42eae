"""Proposals leave in groups: one under way, the next when it has committed or takes long."""

from __future__ import annotations

from typing import Any

from rmqha.controller.aio.patient_timer import LATE_MS, PatientTimer
from rmqha.controller.aio.proposal_rounds import (
    OVERLAP_AFTER_MS,
    PROPOSALS_HELD_MAX,
    ProposalRounds,
)


class Timer:
    """One that a test lets fire."""

    def __init__(self, due_ms: float, callback: Any) -> None:
        self.due_ms = due_ms
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Time:
    """A clock whose timers fire when they are due, or when the processor is free at last."""

    def __init__(self) -> None:
        self.now = 0
        self.timers: list[Timer] = []

    def now_ms(self) -> int:
        return self.now

    def call_later(self, delay_ms: float, callback: Any, *_: object) -> Timer:
        self.timers.append(Timer(self.now + delay_ms, callback))
        return self.timers[-1]

    def pass_until(self, now: int) -> None:
        self.now = now
        while due := [one for one in self.timers if one.due_ms <= now]:
            self.timers.remove(due[0])
            if not due[0].cancelled:
                due[0].callback()


class Log:
    """What the core was given; ``applied`` is how far the state is."""

    def __init__(self) -> None:
        self.time = Time()
        self.groups: list[tuple[bytes, ...]] = []
        self.applied = 0
        self.leads = True
        self.rounds = ProposalRounds(
            self.time,  # type: ignore[arg-type]  # as much of a clock as is asked for
            applied_index=lambda: self.applied,
            send=self.send,
        )
        self.rounds.is_open = True

    def send(self, records: tuple[bytes, ...]) -> int | None:
        self.groups.append(records)
        return sum(map(len, self.groups)) if self.leads else None

    def propose(self, *records: bytes) -> None:
        for record in records:
            self.rounds.propose(record)
        self.time.pass_until(self.time.now)


def test_records_of_one_turn_when_proposed_then_one_group() -> None:
    """Each group costs its nodes as much as twenty entries."""
    log = Log()
    log.propose(b"a", b"b")
    assert log.groups == [(b"a", b"b")]


def test_next_group_when_one_is_under_way_then_it_waits_for_the_commit() -> None:
    """It is gathered meanwhile, and leaves as soon as the state is that of the first."""
    log = Log()
    log.propose(b"a")
    log.propose(b"b")
    log.propose(b"c")
    assert log.groups == [(b"a",)]
    log.applied = 1
    log.rounds.settled()
    assert log.groups == [(b"a",), (b"b", b"c")]


def test_next_group_when_the_first_takes_long_then_it_overlaps_and_a_third_waits() -> None:
    """A slow disk must not hold all others up; more than two at a time would bring nothing."""
    log = Log()
    log.propose(b"a")
    log.propose(b"b")
    log.time.pass_until(OVERLAP_AFTER_MS)
    assert log.groups == [(b"a",), (b"b",)]
    log.propose(b"c")
    log.time.pass_until(10 * OVERLAP_AFTER_MS)
    assert len(log.groups) == 2
    log.applied = 1
    log.rounds.settled()
    assert log.groups[2:] == [(b"c",)]


def test_proposals_when_very_many_wait_then_none_is_held_back() -> None:
    """The core limits what it takes, and says so to who asks; here nobody would hear of it."""
    log = Log()
    log.propose(b"a")
    log.propose(*[b"x"] * PROPOSALS_HELD_MAX)
    assert [len(group) for group in log.groups] == [1, PROPOSALS_HELD_MAX]


def test_group_when_the_node_does_not_lead_or_its_role_changes_then_nothing_is_under_way() -> None:
    """Waiting for the commit of another leader's term would be waiting for ever."""
    log = Log()
    log.leads = False
    log.propose(b"a")
    log.propose(b"b")
    assert len(log.groups) == 2
    log.leads = True
    log.propose(b"c")
    log.rounds.role_changed()
    log.propose(b"d")
    assert len(log.groups) == 4


def test_timer_when_it_fires_in_time_then_the_deadline_counts_at_once() -> None:
    """Elections begin to the millisecond where nothing is late."""
    time, deadline, due = Time(), [100], []

    def passed() -> None:
        due.append(time.now)
        deadline[0] += 100

    timer = PatientTimer(time, lambda: deadline[0], passed)  # type: ignore[arg-type]  # as above
    timer.arm()
    time.pass_until(100)
    time.pass_until(200)
    assert due == [100, 200]


def test_timer_when_it_fires_late_then_what_has_arrived_comes_first() -> None:
    """A process that stood still finds heartbeats in its sockets; they move the deadline."""
    time, deadline, due = Time(), [100], []
    timer = PatientTimer(time, lambda: deadline[0], lambda: due.append(time.now))  # type: ignore[arg-type]  # as above
    timer.arm()
    time.pass_until(100 + LATE_MS + 1)
    deadline[0] = 300  # a heartbeat was in the socket
    time.pass_until(100 + LATE_MS + 2)
    assert due == []
    deadline[0] = 320
    timer.arm()
    time.now = 300
    time.pass_until(301)
    assert due == [], "armed anew for the later deadline"
    deadline[0] = 301
    timer.arm()
    timer.close()
    time.pass_until(400)
    assert due == []
