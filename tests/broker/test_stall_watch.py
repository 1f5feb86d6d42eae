"""The watcher of a broker: when it acts, in which order, and when its fence falls again."""

from __future__ import annotations

import pytest

from rmqha.base.machine import Note
from rmqha.broker.common.replicas_settings import ReplicasSettings
from rmqha.broker.membership.events import Answered, Ask, Beat, Unanswered
from rmqha.broker.membership.stall_page import PAGE_BYTES, Facts, StallPage
from rmqha.broker.membership.stall_watch import (
    BEAT_FOR_MS,
    FORGET_MS,
    LOOK_MS,
    Looked,
    LowerFence,
    RaiseFence,
    StallWatch,
    WatchEffect,
    WatchSettings,
)
from rmqha.remoting.bodies import SyncStateSet
from rmqha.remoting.codes import RequestCode, ResponseCode
from tests.broker.replicas import make_config

OWN, HEIR, THIRD = 1, 2, 3
CONTROLLERS = ("c0:1", "c1:1")
STALL_MS = 2_000
ELECT = RequestCode.CONTROLLER_ELECT_MASTER
LEADER = {"controllerLeaderAddress": "c0:1", "isLeader": "true"}


class Watched:
    """A watch, its clock, and a page's fence."""

    def __init__(self) -> None:
        replicas = ReplicasSettings("C", "broker-a", "10.0.0.1:10911", CONTROLLERS)
        self.watch = StallWatch(WatchSettings(replicas, STALL_MS))
        self.now_ms = 1_000
        self.sign_ms: int | None = None
        self.write_ms = 0
        self.is_fenced = False
        self.is_seen = True
        self.made: list[WatchEffect] = []

    def give(self, event: Looked | Answered | Unanswered) -> list[WatchEffect]:
        """Step, and keep the fence as a page does."""
        made = self.watch.step(self.now_ms, event)
        for one in made:
            if isinstance(one, RaiseFence):
                self.is_fenced = True
            elif isinstance(one, LowerFence):
                self.is_fenced = False
        self.made += made
        return made

    def look(self, for_ms: int = LOOK_MS) -> list[WatchEffect]:
        """Look as often as a watcher does, for so long."""
        found: list[WatchEffect] = []
        for _ in range(max(1, for_ms // LOOK_MS)):
            self.now_ms += LOOK_MS
            sign_ms = self.now_ms if self.sign_ms is None else self.sign_ms
            facts = Facts(sign_ms, OWN, self.write_ms, 7, 5_000, 4_000)
            found += self.give(Looked(facts, self.is_fenced, self.is_seen))
        return found

    def stand_still(self) -> None:
        """The broker gives its last sign."""
        self.look()
        self.sign_ms = self.now_ms

    def asks(self, code: int) -> list[Ask]:
        """Questions so far."""
        return [one for one in self.made if isinstance(one, Ask) and one.code == code]

    def answer(self, code: int, fields: dict[str, str], *ids: int) -> list[WatchEffect]:
        """Answer the last question of a code."""
        body = SyncStateSet(ids, 3).encode() if ids else b""
        return self.give(Answered(self.asks(code)[-1].token, 0, fields, body))

    def ask_for_master(self) -> None:
        """A stall whose watcher has found the leading controller."""
        self.stand_still()
        self.look(STALL_MS)
        self.answer(RequestCode.CONTROLLER_GET_METADATA_INFO, LEADER)
        self.look()

    def say_master(self, master: int, *ids: int, epoch: int = 7) -> list[WatchEffect]:
        """The leader says who is master."""
        fields = {"masterBrokerId": str(master), "masterEpoch": str(epoch)}
        return self.answer(RequestCode.CONTROLLER_GET_REPLICA_INFO, fields, *ids)


def notes(made: list[WatchEffect]) -> list[str]:
    """What a log gets."""
    return [one.event for one in made if isinstance(one, Note)]


def test_broker_when_it_gives_signs_then_nothing_is_done() -> None:
    """A watcher that acts on a healthy broker would move mastership for nothing."""
    one = Watched()
    assert one.look(60_000) == []


def test_broker_when_silent_for_less_than_a_stall_then_nothing_is_done() -> None:
    """A long garbage collection is no reason to elect."""
    one = Watched()
    one.stand_still()
    assert one.look(STALL_MS - LOOK_MS) == []
    assert notes(one.look()) == ["broker_stalled"]


def test_stall_when_seen_then_the_fence_is_up_before_anybody_is_asked() -> None:
    """A master that goes on in between would acknowledge beside its successor."""
    one = Watched()
    one.stand_still()
    made = one.look(STALL_MS)
    assert isinstance(made[0], RaiseFence)
    beat = next(effect for effect in made if isinstance(effect, Beat))
    assert beat.addresses == CONTROLLERS
    said = {key: beat.fields[key] for key in ("brokerId", "epoch", "maxOffset", "confirmOffset")}
    assert said == {"brokerId": "1", "epoch": "7", "maxOffset": "5000", "confirmOffset": "4000"}
    assert int(beat.fields["stalledMs"]) >= STALL_MS


def test_stall_when_the_broker_is_master_then_a_member_of_its_set_is_designated() -> None:
    """Nobody else holds all that was acknowledged; and each is tried in its turn."""
    one = Watched()
    one.ask_for_master()
    one.say_master(OWN, OWN, HEIR, THIRD)
    fields = one.asks(ELECT)[-1].fields
    assert (fields["brokerId"], fields["designateElect"]) == (str(HEIR), "true")
    assert fields["completeOnly"] == "true"
    one.give(Answered(one.asks(ELECT)[-1].token, ResponseCode.CONTROLLER_ELECT_MASTER_FAILED))
    one.look(300)
    one.say_master(OWN, OWN, HEIR, THIRD)
    assert one.asks(ELECT)[-1].fields["brokerId"] == str(THIRD)
    made = one.answer(ELECT, {"masterBrokerId": str(THIRD), "masterEpoch": "8"}, THIRD)
    assert notes(made) == ["mastership_handed_over"]
    assert one.watch.moved


@pytest.mark.parametrize("ids", [(OWN,), (HEIR, THIRD)], ids=["alone", "not the master"])
def test_stall_when_nothing_is_to_hand_over_then_no_election_is_asked_for(
    ids: tuple[int, ...],
) -> None:
    """A slave that stands still must not move the mastership of a healthy master."""
    one = Watched()
    one.ask_for_master()
    one.say_master(ids[0], *ids)
    one.look(5_000)
    assert one.asks(ELECT) == []


def test_stall_when_elected_anew_in_the_middle_of_it_then_it_is_handed_over_again() -> None:
    """The new master died, and the controllers believe the heartbeats of this one."""
    one = Watched()
    one.ask_for_master()
    one.say_master(HEIR, HEIR)
    one.look(1_500)
    one.say_master(OWN, OWN, THIRD, epoch=9)
    assert one.asks(ELECT)[-1].fields["brokerId"] == str(THIRD)


def test_write_when_it_waits_in_a_thread_then_it_is_a_stall_without_heartbeats() -> None:
    """The loop runs: it sends its own, and its connections are the ones that count."""
    one = Watched()
    one.look()
    one.write_ms = one.now_ms
    made = one.look(STALL_MS)
    assert notes(made) == ["broker_stalled"]
    assert not [effect for effect in made if isinstance(effect, Beat)]


def test_watcher_when_it_stood_still_itself_then_it_blames_nobody() -> None:
    """The machine slept, or had no processor for either of them."""
    one = Watched()
    one.look(1_000)
    one.sign_ms = one.now_ms
    one.now_ms += 10_000
    assert one.look(STALL_MS) == []
    assert notes(one.look()) == ["broker_stalled"]


def test_fence_when_the_broker_goes_on_then_it_falls_once_the_broker_has_seen_it() -> None:
    """It must have taken its lease back, or it would never notice that there was a fence."""
    one = Watched()
    one.ask_for_master()
    one.say_master(HEIR, HEIR)
    one.is_seen, one.sign_ms = False, None
    assert notes(one.look()) == ["broker_goes_on"]
    assert one.look(1_000) == []
    one.is_seen = True
    assert one.look() == [LowerFence()]


def test_fence_when_an_election_was_not_answered_then_it_stays_until_that_is_forgotten() -> None:
    """The leader may act upon the question after the broker has its lease again."""
    one = Watched()
    one.ask_for_master()
    one.say_master(OWN, OWN, HEIR)
    one.sign_ms = None
    one.look(1_000)
    assert one.is_fenced, "the question is still open"
    one.give(Unanswered(one.asks(ELECT)[-1].token, sent=True))
    one.look(FORGET_MS - 2 * LOOK_MS)
    assert one.is_fenced
    one.look(3 * LOOK_MS)
    assert not one.is_fenced


def test_fence_when_its_watcher_has_ended_then_the_next_one_takes_it_down_later() -> None:
    """Nobody knows what the first one had asked for."""
    one = Watched()
    one.is_fenced = True
    one.look(FORGET_MS - LOOK_MS)
    assert one.is_fenced
    one.look(3 * LOOK_MS)
    assert not one.is_fenced


def test_heartbeats_when_a_broker_stands_still_for_long_then_they_end() -> None:
    """Whoever never goes on shall be missed: others may be elected who are not in sync."""
    one = Watched()
    one.stand_still()
    one.look(BEAT_FOR_MS)
    assert not [effect for effect in one.look(5_000) if isinstance(effect, Beat)]


def test_leader_when_it_leads_no_more_then_another_is_looked_for() -> None:
    """Controllers and a disk may fail together."""
    one = Watched()
    one.ask_for_master()
    token = one.asks(RequestCode.CONTROLLER_GET_REPLICA_INFO)[-1].token
    one.give(Answered(token, ResponseCode.CONTROLLER_NOT_LEADER))
    before = len(one.asks(RequestCode.CONTROLLER_GET_METADATA_INFO))
    # The question to the other controller, which was never answered, ends first.
    for ask in one.asks(RequestCode.CONTROLLER_GET_METADATA_INFO):
        one.give(Unanswered(ask.token, sent=True))
    one.look(500)
    assert len(one.asks(RequestCode.CONTROLLER_GET_METADATA_INFO)) > before


def test_page_when_both_sides_have_written_then_each_reads_the_other() -> None:
    """Two processes share it: every word must be where the other looks for it."""
    memory = bytearray(PAGE_BYTES)
    broker, watcher = StallPage(memoryview(memory)), StallPage(memoryview(memory))
    facts = Facts(12, 3, 11, 7, 1 << 40, 1 << 39)
    broker.tell(facts)
    assert watcher.facts == facts
    watcher.raise_fence()
    watcher.raise_fence()
    assert (broker.is_fenced, watcher.is_fence_seen) == (True, False)
    broker.saw_fence()
    assert watcher.is_fence_seen
    watcher.lower_fence()
    assert not broker.is_fenced


@pytest.mark.parametrize(
    ("keys", "stall_ms"),
    [
        ({}, 1_600),
        ({"controllerHeartBeatTimeoutMills": 10_000}, 2_000),
        ({"diskStallMs": 0}, 0),
        ({"writeLeaseEnable": "false"}, 0),
    ],
)
def test_setting_when_a_lease_is_shorter_then_a_stall_is_over_in_its_first_half(
    keys: dict[str, object], stall_ms: int
) -> None:
    """A hand-over after the lease would come too late to be one."""
    assert make_config("10.0.0.1", CONTROLLERS, **keys).stall_ms == stall_ms
