"""Every election explains itself: the same on every node, within bounds, and never otherwise than it was."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from msgspec.structs import replace

from rmqha.base.ids import BrokerId
from rmqha.controller.machine import (
    Committed,
    Configured,
    ControllerMachine,
    LeadershipChanged,
    MachineSettings,
    SnapshotLoaded,
)
from rmqha.controller.metadata import events as ev
from rmqha.controller.metadata.apply import apply
from rmqha.controller.metadata.elect import elect
from rmqha.controller.metadata.packing import pack
from rmqha.controller.metadata.snapshot import from_snapshot, to_snapshot
from rmqha.controller.metadata.state import MetadataState, digest_of_set
from rmqha.controller.metadata.why_elected import CANDIDATES_MAX, ELECTED, Ballot, candidates
from rmqha.remoting.heartbeat import Heartbeat
from tests.controller.metadata.driving import CLUSTER, NAME, Driver

KEPT = MachineSettings(elections_per_set=3, elections_in_all=100, digest_every=5)
WALL_MS = 1_700_000_000_000


def trio(settings: MachineSettings = KEPT) -> Driver:
    """Brokers 1 (master), 2 and 3, all in sync; 3 is behind."""
    driver = Driver(settings)
    driver.step(LeadershipChanged(True, 2, WALL_MS - driver.now_ms))
    for one in (1, 2, 3):
        driver.register(one)
        driver.beat(one, epoch=-1, maxOffset=0)
    assert driver.elect(1).code == 0
    assert driver.alter(1, 1, [1, 2, 3], 1).code == 0
    driver.beat(1, epoch=1, maxOffset=900)
    driver.beat(2, epoch=1, maxOffset=800)
    driver.beat(3, epoch=1, maxOffset=700)
    return driver


def move(driver: Driver, broker_id: int) -> None:
    """Make this one the master, all being in sync."""
    one = driver.machine.state.sets[NAME]
    if one.sync_state_set != (1, 2, 3):
        assert driver.alter(*driver.master(), [1, 2, 3], one.sync_state_set_epoch).code == 0
    assert driver.elect(broker_id, designate=True).code == 0


def history(driver: Driver, name: str = NAME, count: int = 50) -> list[dict[str, Any]]:
    """What 60011 answers."""
    answer = driver.ask(60011, 99, brokerName=name, maxNums=count)
    assert answer.code == 0
    return list(json.loads(answer.body)["elections"])


def verdicts(one: dict[str, Any]) -> dict[int, str]:
    """By broker id."""
    return {seen["brokerId"]: seen["verdict"] for seen in one["candidates"]}


def test_history_when_a_master_dies_then_who_was_passed_over_and_why() -> None:
    """An operator asks afterwards why this one; nobody was there."""
    driver = trio()
    driver.now_ms += 50
    driver.close(1)
    driver.pass_time(200)
    newest, first = history(driver)
    assert verdicts(newest) == {1: "not alive", 2: ELECTED, 3: "shorter log"}
    assert (newest["oldMaster"], newest["newMaster"], newest["masterEpoch"]) == (1, 2, 2)
    assert (newest["trigger"], newest["reason"]) == ("controller", "master_inactive")
    assert newest["oldMasterSilentMs"] == 150
    assert newest["decidedMs"] == WALL_MS + 150
    assert newest["candidates"][2] == {
        "brokerId": 3, "epoch": 1, "maxOffset": 700, "priority": 2**31 - 1, "alive": True,
        "inSyncStateSet": True, "silentMs": 150, "stalledMs": 0, "verdict": "shorter log",
    }  # fmt: skip
    assert verdicts(first) == {1: ELECTED, 2: "another asked first", 3: "another asked first"}
    note = next(one for one in driver.notes if one.facts.get("reason") == "master_inactive")
    assert note.facts["passed_over"] == "1 (not alive), 3 (shorter log)"


def test_history_when_stages_follow_then_their_times_are_told() -> None:
    """Which stage took long is what one wants to know of a slow failover."""
    driver = trio(replace(KEPT, watch_name_server_route=False))
    driver.hold = True
    driver.close(1)
    driver.pass_time(100)
    driver.now_ms += 7
    driver.hold = False
    driver.commit_one()
    driver.now_ms += 30
    driver.beat(2, epoch=1, maxOffset=800)
    assert history(driver)[0]["firstHeartbeatMs"] is None, "that was the old epoch"
    driver.now_ms += 20
    driver.beat(2, epoch=2, maxOffset=800)
    newest = history(driver)[0]
    stages = ("waitedMs", "commitMs", "toldMs", "slavesToldMs", "firstHeartbeatMs")
    assert [newest[key] for key in stages] == [0, 7, 0, 50, 50]


def test_history_when_it_waits_for_its_turn_then_the_wait_is_told() -> None:
    """One change in flight a set: an election may stand behind another change."""
    driver = trio()
    driver.hold = True
    driver.send(1001, 1, b'{"syncStateSet":[1,2],"syncStateSetEpoch":2}', brokerName=NAME,
                masterBrokerId=1, masterEpoch=1)  # fmt: skip
    driver.close(1)
    driver.pass_time(100)
    driver.now_ms += 40
    driver.commit_one()
    driver.hold = False
    driver.commit_one()
    newest = history(driver)[0]
    assert newest["waitedMs"] == 40
    assert verdicts(newest)[3] == "not in the SyncStateSet"


def test_history_when_nobody_can_follow_then_a_lost_master_is_explained_too() -> None:
    """A set without master is what people look at first."""
    driver = trio()
    assert driver.alter(1, 1, [1], 2).code == 0
    driver.close(1)
    driver.pass_time(200)
    newest = history(driver)[0]
    assert newest["newMaster"] is None
    assert verdicts(newest) == {
        1: "not alive", 2: "not in the SyncStateSet", 3: "not in the SyncStateSet",
    }  # fmt: skip


def test_history_when_another_node_leads_then_it_tells_the_same() -> None:
    """The leader that decided may be the one that died."""
    driver = trio()
    driver.close(1)
    driver.pass_time(200)
    follower = ControllerMachine(KEPT)
    for index, record in enumerate(driver.log, 1):
        follower.step(0, Committed(index, record))
    assert follower.snapshot() == driver.machine.snapshot()
    newcomer = ControllerMachine(KEPT)
    newcomer.step(0, SnapshotLoaded(driver.machine.applied_index, driver.machine.snapshot()))
    assert newcomer.state == follower.state == driver.machine.state
    digests = {one.state.packed.digest() for one in (newcomer, follower, driver.machine)}
    assert len(digests) == 1
    newcomer.step(0, LeadershipChanged(True, 9))
    told = json.loads(newcomer.read(0, 1, 60011, {"brokerName": NAME}).body)["elections"]
    soft = ("commitMs", "toldMs", "slavesToldMs", "firstHeartbeatMs")
    known = [{key: one[key] for key in one if key not in soft} for one in history(driver)]
    assert [{key: one[key] for key in one if key not in soft} for one in told] == known


def test_history_when_long_then_bounded_a_set_and_in_all() -> None:
    """A set that flaps for a year must not fill every node's memory and snapshots."""
    driver = trio(replace(KEPT, elections_in_all=5))
    for name in ("other-1", "other-2", "other-3"):
        own = {"clusterName": CLUSTER, "brokerName": name}
        driver.ask(1013, 7, **own, appliedBrokerId=1, registerCheckCode="h:1;1")
        driver.ask(1003, 7, **own, brokerId=1, brokerAddress="h:1")
        assert driver.ask(1002, 7, **own, brokerId=1).code == 0
    for one in (2, 3, 1, 2):
        move(driver, one)
    assert [one["newMaster"] for one in history(driver)] == [2, 1, 3]
    everything = history(driver, "")
    assert [one["brokerName"] for one in everything] == [NAME, NAME, NAME, "other-3", "other-2"]
    assert [one["brokerName"] for one in history(driver, "", 2)] == [NAME, NAME]
    index, loaded = from_snapshot(driver.machine.snapshot())
    assert (index, loaded) == (driver.machine.applied_index, driver.machine.state)
    assert loaded.election_order.next_number() == driver.machine.state.election_order.next_number()
    driver.ask(1011, 7, clusterName=CLUSTER, brokerName=NAME, isCleanLivingBroker="true")
    assert [one["brokerName"] for one in history(driver, "")] == ["other-3", "other-2"]
    assert driver.ask(60011, 7, brokerName=NAME).code == 2008


def test_history_when_nodes_have_other_settings_then_their_states_do_not_part() -> None:
    """How much is kept is the leader's word in the event; a node's own setting changes nothing."""
    driver = trio()
    other = ControllerMachine(replace(KEPT, elections_per_set=1, elections_in_all=1))
    for one in (2, 3, 1, 2, 3):
        move(driver, one)
        # The test's settings say: this leader keeps less from here on.
        driver.step(Configured(replace(KEPT, elections_per_set=2 if one == 1 else 3)))
    for index, record in enumerate(driver.log, 1):
        other.step(0, Committed(index, record))
    assert other.state == driver.machine.state
    assert other.digests.compared == driver.machine.digests.compared > 0


def test_records_of_before_when_read_then_the_same_state_digest_and_snapshot() -> None:
    """A store and a group of an older release go on: nothing of theirs is read or summed otherwise."""
    old = pack([1, 5, 6, [3, "a", 1, 3, "broker", "asked", False]])
    event = ev.MasterElected("a", BrokerId(1), 3, "broker", "asked", False)
    assert ev.from_proposal(old) == (5, 6, event)
    assert ev.to_proposal(5, 6, event) == old
    state = MetadataState()
    apply(state, ev.BrokerIdTaken("c", "a", "h:1", BrokerId(1), "h:1;1"))
    apply(state, event)
    plain = ["c", "a", 1, [], [[1, "h:1", "h:1;1"]], 3, 1, [1], 1]
    assert to_snapshot(9, state) == pack([1, 9, [plain]])
    # Of release 0.1.0 before there was a history.
    assert f"{digest_of_set(state.sets['a']):016x}" == DIGEST_OF_BEFORE


DIGEST_OF_BEFORE = "693f57c7a4903aff"


def test_settings_when_no_history_is_wanted_then_records_are_those_of_before() -> None:
    """A group that is upgraded node by node needs records that the older nodes can read."""
    driver = trio(replace(KEPT, elections_per_set=0))
    assert history(driver) == []
    for record in driver.log:
        said = ev.from_entry(record)
        assert not isinstance(said, ev.MasterElected) or said.why is None


def test_learners_when_they_are_all_that_is_left_then_nobody_is_elected() -> None:
    """Not by their own question, nor by an operator, nor uncleanly, nor with the newest log."""
    driver = Driver(replace(KEPT, enable_elect_unclean_master=True))
    for one in (1, 2):
        driver.register(one)
    driver.beat(2, epoch=3, maxOffset=900, asyncLearner="true")
    assert driver.elect(2).code == 2012
    assert driver.elect(2, designate=True).code == 2012
    driver.beat(1, epoch=2, maxOffset=800)
    assert driver.elect(1).code == 0
    assert verdicts(history(driver)[0]) == {1: ELECTED, 2: "a learner"}
    driver.beat(1, epoch=4, maxOffset=800)
    driver.close(1)
    driver.pass_time(200)
    assert driver.master()[0] is None
    assert verdicts(history(driver)[0])[2] == "a learner"
    driver.beat(2, epoch=3, maxOffset=900, asyncLearner="false")
    assert driver.elect(2).code == 0, "it is none any more"


def test_dry_run_when_asked_then_it_says_what_1002_does_and_changes_nothing() -> None:
    """An operator wants to know before, not after."""
    driver = trio()
    assert driver.alter(1, 1, [1, 2], 2).code == 0
    for broker_id, code in ((1, 2011), (2, 0), (3, 2012), (9, 2012)):
        before, length = driver.machine.snapshot(), len(driver.log)
        fields = {"clusterName": CLUSTER, "brokerName": NAME, "brokerId": broker_id,
                  "designateElect": "true"}  # fmt: skip
        answer = driver.ask(60012, 99, **fields)
        assert (driver.machine.snapshot(), len(driver.log)) == (before, length)
        assert answer.code == 0
        said = json.loads(answer.body)
        assert said["code"] == code
        assert said["newMaster"] == (broker_id if code in (0, 2011) else None)
        if broker_id == 3:
            assert verdicts(said) == {
                1: "another is designated", 2: "another is designated",
                3: "not in the SyncStateSet",
            }  # fmt: skip
    assert driver.elect(3, designate=True).code == 2012
    assert driver.elect(2, designate=True).code == 0
    unknown = json.loads(driver.ask(60012, 99, brokerName="x", brokerId=1).body)
    assert unknown["code"] == 2010


@pytest.mark.parametrize("seed", range(300))
def test_verdicts_when_elections_are_drawn_then_each_is_true(seed: int) -> None:
    """A verdict that does not fit the facts sends an operator the wrong way."""
    rng = random.Random(seed)
    ids = tuple(BrokerId(one) for one in range(1, rng.randint(2, 6)))
    heard = {
        one: Heartbeat(epoch=rng.randint(1, 2), max_offset=rng.randint(1, 2),
                       election_priority=rng.randint(1, 2), stalled_ms=rng.choice((0, 0, 9)))
        for one in ids if rng.random() < 0.9
    }  # fmt: skip
    driver = Driver()
    for one, beat in heard.items():
        driver.machine.heartbeat(driver.now_ms, one, replace(
            beat, broker_id=one, cluster_name=CLUSTER, broker_name=NAME))  # fmt: skip
    live = driver.machine.liveness
    gone = {one for one in heard if rng.random() < 0.3}
    in_sync = tuple(one for one in ids if rng.random() < 0.6)
    old = rng.choice((None, *in_sync)) if in_sync else None
    prefer = rng.choice((None, None, *ids))
    everybody = rng.choice((None, ids))
    alive = lambda one: one in heard and one not in gone  # noqa: E731
    info = lambda one: live.info(CLUSTER, NAME, one)  # noqa: E731
    won = elect(in_sync, everybody, old_master=old, prefer=prefer, alive=alive, info=info)
    ballot = Ballot(ids, in_sync, False, won, old, prefer, False, alive, info)
    found, left_out = candidates(driver.now_ms, ballot)
    assert left_out == 0
    assert [one.broker_id for one in found if one.verdict == ELECTED] == ([won] if won else [])
    best = {one.broker_id: one for one in found}.get(won or BrokerId(0))
    for one in found:
        unstalled = best is not None and one.stalled_ms > 0 and best.stalled_ms == 0
        holds = {
            ELECTED: True,
            "never heard": one.silent_ms is None and not one.alive,
            "not alive": not one.alive,
            "another is designated": prefer not in (None, one.broker_id),
            "not in the SyncStateSet": not one.in_sync and (best is None or best.in_sync),
            "the master is alive": won == old,
            "its disk stands still or is full": unstalled and best is not None and best.in_sync,
            "older epoch": best is not None and one.epoch < best.epoch,
            "shorter log": best is not None and one.max_offset < best.max_offset,
            "lower priority": best is not None and (one.priority or 0) > (best.priority or 0),
            "greater id": best is not None and one.broker_id > best.broker_id,
        }
        assert holds[one.verdict], (one, ballot)


def test_candidates_when_very_many_then_the_elected_and_the_nearest_are_kept() -> None:
    """A set may have a thousand replicas; an event must stay small."""
    ids = tuple(BrokerId(one) for one in range(1, 1001))
    ballot = Ballot(ids, (BrokerId(900), BrokerId(901)), False, BrokerId(900), None, None, False,
                    lambda one: one >= 900, lambda one: None)  # fmt: skip
    found, left_out = candidates(0, ballot)
    assert (len(found), left_out) == (CANDIDATES_MAX, 1000 - CANDIDATES_MAX)
    assert {900, 901} <= {one.broker_id for one in found}
