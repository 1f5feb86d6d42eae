"""The write lease: when a master may write by itself, and that no election falls into that time."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.base.errors import ConfigInvalid
from rmqha.base.machine import Note, Ticked
from rmqha.broker.membership.write_lease import (
    Confirm,
    Confirmed,
    Deposed,
    Fenced,
    Grant,
    LeaseEffect,
    Led,
    Left,
    Named,
    Reigned,
    Unfenced,
    Vouched,
    WriteLease,
)
from tests.broker.replicas import make_config

CONTROLLERS = ("c0:1", "c1:1", "c2:1")
TIMEOUT_MS, LEASE_MS = 10_000, 8_000


def began(now_ms: int = 1_000, controllers: tuple[str, ...] = CONTROLLERS) -> WriteLease:
    """A lease that all controllers vouch for and the first, which leads, has confirmed."""
    lease = WriteLease(controllers, LEASE_MS)
    lease.step(now_ms, Led(controllers[0]))
    lease.step(now_ms, Reigned())
    for one in controllers:
        lease.step(now_ms, Vouched(one, now_ms))
    lease.step(now_ms, Confirmed(asked(lease, now_ms)))
    assert lease.until_ms == now_ms + LEASE_MS
    return lease


def asked(lease: WriteLease, now_ms: int) -> int:
    """The number of the question that the lease wants answered now."""
    (found,) = [one for one in lease.step(now_ms, Ticked()) if isinstance(one, Confirm)]
    return found.number


def notes(effects: list[LeaseEffect]) -> list[str]:
    """What a log gets."""
    return [one.event for one in effects if isinstance(one, Note)]


def test_lease_when_no_controller_is_known_yet_then_nobody_gives_it() -> None:
    """They are looked up (fetchControllerAddrByDnsLookup); a majority of none is none."""
    lease = WriteLease((), LEASE_MS)
    assert lease.step(1_000, Reigned()) == []
    assert lease.step(1_000, Vouched("c0:1", 1_000)) == []
    assert (lease.until_ms, lease.next_deadline_ms) == (0, None)
    lease.step(1_100, Named(CONTROLLERS))
    for one in CONTROLLERS[:2]:
        lease.step(1_200, Vouched(one, 1_200))
    lease.step(1_300, Confirmed(asked(lease, 1_300)))
    assert lease.until_ms == 1_200 + LEASE_MS


def test_lease_when_fenced_then_it_ends_at_once_and_begins_again_only_with_a_new_proof() -> None:
    """Somebody asks for an election meanwhile: promises do not count, nor answers of before."""
    lease = began()
    assert lease.step(1_100, Fenced())[0] == Grant(0)
    for one in CONTROLLERS:
        lease.step(1_200, Vouched(one, 1_200))
    assert asked_numbers(lease.step(1_300, Ticked())) == []
    lease.step(1_300, Confirmed(1))
    assert lease.until_ms == 0
    (number,) = asked_numbers(lease.step(1_400, Unfenced()))
    lease.step(1_500, Confirmed(number - 1))
    assert lease.until_ms == 0, "an answer to a question of before the fence"
    lease.step(1_500, Confirmed(number))
    assert lease.until_ms == 1_200 + LEASE_MS


def asked_numbers(effects: list[LeaseEffect]) -> list[int]:
    """The numbers of questions."""
    return [one.number for one in effects if isinstance(one, Confirm)]


def test_lease_when_answers_are_slow_then_it_counts_from_the_sending() -> None:
    """Counted from the answer, the controller's timeout would end before the lease."""
    lease = WriteLease(CONTROLLERS, LEASE_MS)
    lease.step(0, Reigned())
    lease.step(0, Led("c0:1"))
    for one in CONTROLLERS:
        lease.step(4_000, Vouched(one, 1_000))
    number = asked(lease, 4_000)
    made = lease.step(4_100, Confirmed(number))
    assert made[0] == Grant(1_000 + LEASE_MS)
    assert notes(made) == ["write_lease_held"]


def test_lease_when_nobody_has_said_who_is_master_then_there_is_none() -> None:
    """After a partition controllers answer heartbeats of an old master, too."""
    lease = WriteLease(CONTROLLERS, LEASE_MS)
    lease.step(0, Led("c0:1"))
    lease.step(0, Reigned())
    for one in CONTROLLERS:
        lease.step(10, Vouched(one, 5))
    assert lease.until_ms == 0


def test_lease_when_it_runs_out_then_new_answers_alone_do_not_bring_it_back() -> None:
    """In the gap another may have been elected: only the leader can tell."""
    lease = began()
    made = lease.step(1_000 + LEASE_MS, Ticked())
    assert notes(made) == ["write_lease_lost"]
    assert lease.losses == 1
    for one in CONTROLLERS:
        lease.step(10_000, Vouched(one, 9_990))
    assert lease.until_ms == 0
    stale = 1
    lease.step(10_000, Confirmed(stale))
    assert lease.until_ms == 0
    lease.step(10_001, Confirmed(asked(lease, 10_000)))
    assert lease.until_ms == 9_990 + LEASE_MS


@pytest.mark.parametrize(
    ("silent", "held"),
    [((), True), (("c2:1",), True), (("c1:1", "c2:1"), False), (("c0:1",), False)],
    ids=["all answer", "one follower is away", "a minority answers", "the leader is away"],
)
def test_lease_when_some_are_silent_then_a_majority_and_the_leader_keep_it(
    silent: tuple[str, ...], held: bool
) -> None:
    """#7017: one controller on this side of a partition is not enough; nor is one that follows."""
    lease = began()
    for now_ms in range(2_000, 20_000, 1_000):
        for one in CONTROLLERS:
            if one not in silent:
                lease.step(now_ms, Vouched(one, now_ms))
    assert lease.is_held is held


def test_lease_when_connections_close_then_it_ends_at_once() -> None:
    """A controller elects a few milliseconds after a close; it does not wait for its timeout."""
    lease = began()
    assert lease.step(1_500, Left("c1:1")) == []
    assert lease.is_held
    made = lease.step(1_500, Left("c2:1"))
    assert made[0] == Grant(0)
    assert notes(made) == ["write_lease_lost"]


def test_lease_when_the_leadership_moves_then_the_new_leader_counts() -> None:
    """What the new one has heard decides, not what the old one had."""
    lease = began()
    for now_ms in range(2_000, 9_000, 1_000):
        lease.step(now_ms, Vouched("c0:1", now_ms))
        lease.step(now_ms, Vouched("c1:1", now_ms))
    assert lease.until_ms == 8_000 + LEASE_MS
    lease.step(8_100, Led("c2:1"))
    assert lease.until_ms == 1_000 + LEASE_MS


def test_lease_when_the_leader_goes_by_another_name_then_the_majority_decides() -> None:
    """controllerAddr may hold host names or one virtual address."""
    lease = WriteLease(("controllers.example:9878",), LEASE_MS)
    lease.step(0, Led("10.1.0.7:9878"))
    lease.step(0, Reigned())
    lease.step(5, Vouched("controllers.example:9878", 1))
    lease.step(6, Confirmed(asked(lease, 5)))
    assert lease.until_ms == 1 + LEASE_MS


def test_lease_when_deposed_then_nothing_is_left_for_the_next_reign() -> None:
    """Slaves' heartbeats are not answered; old promises must not be counted later."""
    lease = began()
    assert lease.step(1_200, Deposed()) == [Grant(0)]
    lease.step(1_300, Reigned())
    assert lease.until_ms == 0


# -- other controllers ---------------------------------------------------------------------------------


FIVE = (*CONTROLLERS, "c3:1", "c4:1")


def test_lease_when_controllers_are_named_that_promised_nothing_then_the_old_ones_keep_it() -> None:
    """Two are added to three: their three are a majority of five, so nothing is interrupted."""
    lease = began()
    assert lease.step(1_100, Named(FIVE, CONTROLLERS)) == []
    assert (lease.is_held, lease.losses) == (True, 0)
    made = lease.step(1_200, Left("c2:1"))
    assert made[0] == Grant(0), "two of five are none, whatever they were of three"


def test_lease_when_all_controllers_are_others_then_it_ends_and_needs_a_new_proof() -> None:
    """What the former ones had promised binds nobody any more."""
    lease = began()
    made = lease.step(1_100, Named(("d0:1", "d1:1", "d2:1")))
    assert made[0] == Grant(0)
    assert notes(made) == ["write_lease_lost"]
    for one in ("d0:1", "d1:1"):
        lease.step(1_200, Vouched(one, 1_150))
    lease.step(1_250, Confirmed(1))
    assert lease.until_ms == 0, "an answer of the former ones"
    lease.step(1_300, Confirmed(asked(lease, 1_300)))
    assert lease.until_ms == 1_150 + LEASE_MS


def test_lease_when_a_proof_is_under_way_then_other_controllers_need_their_own() -> None:
    """The leader may have answered before they promised anything."""
    lease = WriteLease(CONTROLLERS, LEASE_MS)
    lease.step(0, Led("c0:1"))
    lease.step(0, Reigned())
    for one in CONTROLLERS:
        lease.step(10, Vouched(one, 5))
    number = asked(lease, 20)
    lease.step(30, Named(CONTROLLERS[:2], CONTROLLERS[:2]))
    lease.step(40, Confirmed(number))
    assert lease.until_ms == 0
    lease.step(50, Confirmed(asked(lease, 50)))
    assert lease.is_held


@pytest.mark.parametrize(
    ("configured", "members"),
    [
        (FIVE, CONTROLLERS),  # c3 and c4 are named before they are added
        (("c1:1", "c3:1", "c4:1"), CONTROLLERS),  # c0 and c2 were taken out before they are removed
        (CONTROLLERS[1:2], CONTROLLERS),  # an operator has left two out
    ],
)
def test_lease_when_the_file_names_others_than_the_leader_then_a_majority_of_both_is_needed(
    configured: tuple[str, ...], members: tuple[str, ...]
) -> None:
    """A majority of the file alone is one member here; the two others could elect somebody else."""
    lease = WriteLease(configured, LEASE_MS)
    lease.step(0, Named(configured, members))
    lease.step(0, Led("c1:1"))
    lease.step(0, Reigned())
    for one in ("c1:1", "c3:1", "c4:1"):
        lease.step(10, Vouched(one, 5))
    assert asked_numbers(lease.step(20, Ticked())) == []
    lease.step(30, Vouched("c2:1", 25))
    assert asked_numbers(lease.step(40, Ticked())) != []


def test_lease_when_the_file_lacks_the_leader_then_its_promise_is_needed_all_the_same() -> None:
    """It elects alone: a lease without it would not hinder it."""
    lease = began()
    lease.step(1_100, Named(CONTROLLERS, FIVE))
    lease.step(1_100, Led("c4:1"))
    assert not lease.is_held
    lease.step(1_200, Vouched("c4:1", 1_150))
    lease.step(1_300, Confirmed(asked(lease, 1_300)))
    assert lease.is_held


def test_lease_when_the_file_loses_members_that_go_by_other_names_then_it_needs_a_new_proof() -> (
    None
):
    """One host name is left of three, none is a member's address: one controller kept the lease alone.

    The leader has to say again who the members are before its word counts; it may be cut off.
    """
    hosts = ("h0:1", "h1:1", "h2:1")
    lease = WriteLease(hosts, LEASE_MS)
    lease.step(0, Named(hosts, CONTROLLERS))
    lease.step(0, Led("c0:1"))
    lease.step(0, Reigned())
    for one in (*hosts, *CONTROLLERS):
        lease.step(10, Vouched(one, 5))
    lease.step(20, Confirmed(asked(lease, 20)))
    assert lease.is_held
    made = lease.step(30, Named(hosts[:1]))
    assert Grant(0) in made
    assert notes(made) == ["write_lease_lost"]
    for now_ms in range(1_000, 3 * LEASE_MS, 1_000):
        lease.step(now_ms, Vouched("h0:1", now_ms))
        assert not lease.is_held
    lease.step(3 * LEASE_MS, Named(hosts[:1], CONTROLLERS))
    for one in ("h0:1", *CONTROLLERS[:2]):
        lease.step(3 * LEASE_MS, Vouched(one, 3 * LEASE_MS))
    lease.step(3 * LEASE_MS, Confirmed(asked(lease, 3 * LEASE_MS)))
    assert lease.is_held


MEMBER_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("member"), st.sampled_from(FIVE)),
        st.tuples(st.just("told"), st.none()),
        st.tuples(st.just("file"), st.sets(st.sampled_from(FIVE), min_size=1)),
        st.tuples(st.just("heard"), st.sets(st.sampled_from(FIVE))),
        st.tuples(st.just("left"), st.sampled_from(FIVE)),
        st.tuples(st.just("pause"), st.integers(1, LEASE_MS)),
    ),
    max_size=40,
)


@pytest.mark.costly
@settings(max_examples=300, deadline=None)
@given(steps=MEMBER_STEPS)
def test_lease_when_members_and_the_file_change_then_it_meets_every_majority(  # noqa: C901 - one branch a step
    steps: list[tuple[str, Any]],
) -> None:
    """Whatever an operator writes into the file: who could elect another includes one who promised.

    Members change one at a time, as Raft has it, and the broker knows of all changes but the last.
    """
    lease = began(0)
    members, told, now_ms = set(CONTROLLERS), set(CONTROLLERS), 0
    configured: set[str] = set(CONTROLLERS)
    promised = dict.fromkeys(CONTROLLERS, 0)
    lease.step(0, Named(CONTROLLERS, CONTROLLERS))
    for kind, what in steps:
        if kind == "member":
            told = set(members)
            members ^= {what} if members != {what} else set()
        elif kind == "told":
            told = set(members)
        elif kind == "file":
            configured = what
        elif kind == "heard":
            for one in sorted(what):
                promised[one] = now_ms
                lease.step(now_ms, Vouched(one, now_ms))
        elif kind == "left":
            promised.pop(what, None)
            lease.step(now_ms, Left(what))
        else:
            now_ms += what
        lease.step(now_ms, Named(tuple(sorted(configured)), tuple(sorted(told))))
        for effect in lease.step(now_ms, Ticked()):
            if isinstance(effect, Confirm):
                lease.step(now_ms, Confirmed(effect.number))
        if lease.is_held:
            holds = {one for one in promised if now_ms < promised[one] + LEASE_MS}
            assert len(members - holds) < len(members) // 2 + 1


@pytest.mark.parametrize(
    ("keys", "lease_ms"),
    [
        ({}, 3_200),
        ({"writeLeaseMarginPercent": 10}, 3_600),
        ({"writeLeaseEnable": "false"}, 0),
        ({"writeLeaseEnable": "false", "brokerHeartbeatInterval": 4_000}, 0),
    ],
)
def test_settings_when_read_then_the_lease_is_the_timeout_less_the_margin(
    keys: dict[str, Any], lease_ms: int
) -> None:
    """controllerHeartBeatTimeoutMills is 4000 here."""
    config = make_config("10.0.0.1", ("c0:9878",), **keys)
    assert config.replicas.write_lease_ms == lease_ms


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"writeLeaseMarginPercent": 0}, "writeLeaseMarginPercent=0"),
        ({"writeLeaseMarginPercent": 91}, "writeLeaseMarginPercent=91"),
        ({"brokerHeartbeatInterval": 2_000}, "shorter than two heartbeats"),
    ],
)
def test_settings_when_one_lost_heartbeat_would_stop_the_writes_then_they_are_refused(
    keys: dict[str, Any], text: str
) -> None:
    """A lease that flickers is worse than none."""
    with pytest.raises(ConfigInvalid, match=text):
        make_config("10.0.0.1", ("c0:9878",), **keys)


# -- a model of the controllers: no election falls into the lease --------------------------------


@dataclass
class World:
    """Three controllers that elect after silence, a master whose clock is wrong, bad links.

    Leadership moves only to one that is not cut off from the majority, and that still hears the
    master or has not yet waited for its timeout: the limit that ADR 0016 states.
    """

    rate: float
    dice: random.Random
    now_ms: float = 0.0
    leader: int = 0
    elected_ms: float | None = None
    cut: frozenset[int] = frozenset()
    heard_ms: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    queue: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    asking: bool = False
    count: int = 0
    lease: WriteLease = field(default_factory=lambda: WriteLease(CONTROLLERS, LEASE_MS))

    def broker_ms(self) -> int:
        return int(self.now_ms * self.rate)

    def later(self, delay_ms: float, call: Callable[[], None]) -> None:
        self.count += 1
        heapq.heappush(self.queue, (self.now_ms + delay_ms, self.count, call))

    def give(self, event: Any) -> None:
        for effect in self.lease.step(self.broker_ms(), event):
            if isinstance(effect, Confirm) and not self.asking:
                self.asking = True
                self.ask(effect.number, self.leader)

    def ask(self, number: int, leader: int) -> None:
        state = {"master": False}

        def read() -> None:
            alive = leader not in self.cut and leader == self.leader
            state["master"] = alive and self.elected_ms is None

        def answered() -> None:
            self.asking = False
            if state["master"] and leader not in self.cut:
                self.give(Confirmed(number))

        self.later(self.dice.uniform(0, 200), read)
        self.later(self.dice.uniform(200, 600), answered)

    def beat(self) -> None:
        sent_ms = self.broker_ms()
        for number, name in enumerate(CONTROLLERS):
            self.later(self.dice.uniform(0, 900), self.hear(number, name, sent_ms))
        self.later(1_000, self.beat)

    def hear(self, number: int, name: str, sent_ms: int) -> Callable[[], None]:
        def heard() -> None:
            if number in self.cut:
                return
            self.heard_ms[number] = self.now_ms

            def answered() -> None:
                if number not in self.cut:
                    self.give(Vouched(name, sent_ms))

            self.later(self.dice.uniform(0, 900), answered)

        return heard

    def scan(self) -> None:
        """The leader looks for a dead master; an old one cut off with him elects nobody."""
        silent_ms = self.now_ms - self.heard_ms[self.leader]
        if self.elected_ms is None and silent_ms >= TIMEOUT_MS:
            self.elected_ms = self.now_ms
            assert self.broker_ms() >= self.lease.until_ms, "elected while the lease was held"
        self.later(10, self.scan)

    def run(self, until_ms: float) -> None:
        while self.queue and self.queue[0][0] <= until_ms:
            self.now_ms, _, call = heapq.heappop(self.queue)
            call()
            assert self.elected_ms is None or self.broker_ms() >= self.lease.until_ms
        self.now_ms = until_ms

    def move_leader(self, number: int) -> None:
        if number not in self.cut or self.now_ms - self.heard_ms[number] < LEASE_MS / 2:
            self.leader = number
            self.give(Led(CONTROLLERS[number]))


CUTS = st.sampled_from(
    [frozenset[int](), frozenset({1, 2}), frozenset({0, 1, 2}), frozenset({0}), frozenset({1})]
)
STORIES = st.lists(
    st.tuples(st.integers(50, 12_000), CUTS, st.sampled_from([None, None, 0, 1, 2])), max_size=12
)


@pytest.mark.costly
@settings(max_examples=60, deadline=None)
@given(story=STORIES, rate=st.sampled_from([0.81, 0.96, 1.0, 1.2]), seed=st.integers(0, 1 << 16))
def test_lease_when_links_break_and_clocks_are_wrong_then_no_election_falls_into_it(
    story: list[tuple[int, frozenset[int], int | None]], rate: float, seed: int
) -> None:
    """A slow clock of the master is the dangerous one; 20 % slow is what the margin allows."""
    world = World(rate, random.Random(seed))
    world.give(Led(CONTROLLERS[0]))
    world.give(Reigned())
    world.beat()
    world.scan()
    world.run(3_000)
    assert world.lease.is_held
    until_ms = 3_000.0
    for pause_ms, cut, leader in story:
        world.cut = cut
        if leader is not None:
            world.move_leader(leader)
        until_ms += pause_ms
        world.run(until_ms)


@pytest.mark.parametrize("lease_ms", [TIMEOUT_MS * 2, 1 << 40])
def test_the_model_finds_a_lease_that_is_too_long(lease_ms: int) -> None:
    """A model that finds nothing may be blind."""
    world = World(1.0, random.Random(1), lease=WriteLease(CONTROLLERS, lease_ms))
    world.give(Led(CONTROLLERS[0]))
    world.give(Reigned())
    world.beat()
    world.scan()
    world.run(3_000)
    world.cut = frozenset({0, 1, 2})
    with pytest.raises(AssertionError, match="elected while the lease was held"):
        world.run(20_000)


def test_lease_when_the_master_was_deposed_then_promises_of_before_are_none() -> None:
    """They were made before another reigned: one that reigns again needs newer ones."""
    lease = began()
    lease.step(1_100, Deposed())
    lease.step(1_200, Reigned())
    assert asked_numbers(lease.step(1_300, Ticked())) == []
    for one in CONTROLLERS:
        lease.step(1_400, Vouched(one, 1_300))
    lease.step(1_500, Confirmed(asked(lease, 1_400)))
    assert lease.until_ms == 1_300 + LEASE_MS
