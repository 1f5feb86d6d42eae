"""The controller's machine: failover, notifications, queues, leadership."""

from __future__ import annotations

import pytest

from rmqha.base.ids import BrokerId
from rmqha.base.machine import Ticked
from rmqha.controller.machine import (
    Committed,
    ControllerMachine,
    LeadershipChanged,
    MachineSettings,
    ProposalDropped,
    RouteFollowed,
    RouteUnknown,
    RouteUpdated,
    SnapshotLoaded,
    WatchRoute,
)
from tests.controller.metadata.driving import CLUSTER, NAME, Driver


def test_failover_when_the_master_s_connection_closes_then_elected_after_the_grace() -> None:
    """The second half of the conformance script, until the set is whole again."""
    driver = Driver()
    driver.pair()
    driver.told()
    driver.close(1)
    driver.pass_time(99)
    assert driver.master() == (1, 1)
    driver.pass_time(1)
    assert driver.master() == (2, 2)
    assert driver.machine.state.sets[NAME].sync_state_set == (2,)
    assert driver.machine.state.sets[NAME].sync_state_set_epoch == 3
    assert driver.told() == ["h:2"]
    note = next(one for one in reversed(driver.notes) if one.event == "master_elected")
    assert note.facts["old_master_broker_id"] == 1
    assert note.facts["reason"] == "master_inactive"


def test_failover_when_nobody_can_follow_then_the_master_is_lost_once() -> None:
    """Java adds three epochs, one for each retry; then the first in-sync replica gets it back."""
    driver = Driver()
    driver.pair()
    driver.close(2)
    driver.pass_time(100)
    assert driver.alter(1, 1, [1], 2).code == 0
    driver.close(1)
    driver.pass_time(30_000)
    assert driver.master() == (None, 2)
    info = driver.ask(1004, 5, brokerName=NAME)
    assert info.ext_fields == {"masterEpoch": "2"}
    driver.beat(2, connection=12)
    driver.pass_time(6_000)
    assert driver.master() == (None, 2)
    assert driver.elect(2, connection=12).code == 2012
    driver.beat(1, connection=11)
    assert driver.master() == (1, 3)
    assert driver.elect(1, connection=11).code == 2011


def test_failover_when_a_slave_dies_then_nothing_changes() -> None:
    """#8380: a dead slave must not cost an epoch."""
    driver = Driver()
    driver.pair()
    driver.close(2)
    for _ in range(20):
        driver.pass_time(1_000)
        driver.beat(1, epoch=1)
    assert driver.master() == (1, 1)


def test_failover_when_the_master_hangs_then_elected_after_its_timeout() -> None:
    """#10416: SIGSTOP closes nothing."""
    driver = Driver()
    driver.pair()
    for _ in range(10):
        driver.pass_time(1_000)
        driver.beat(2)
    driver.pass_time(1)
    assert driver.master() == (2, 2)


def test_failover_when_unclean_is_on_then_an_outsider_is_elected_loudly() -> None:
    """#4771: off by default, an error in the log when it happens."""
    driver = Driver()
    driver.register(1)
    driver.beat(1)
    assert driver.elect(1).code == 0
    driver.register(2)
    driver.beat(2)
    driver.close(1)
    driver.pass_time(200)
    assert driver.master() == (None, 2)
    driver.machine.configure(MachineSettings(enable_elect_unclean_master=True))
    assert driver.elect(2).code == 0
    assert driver.notes[-1].event == "master_elected_unclean"
    assert driver.notes[-1].level == "error"


def crashed_master() -> Driver:
    """Three replicas in sync; the master's connection was closed and 2 is elected."""
    driver = Driver()
    driver.pair()
    driver.register(3)
    driver.beat(3)
    assert driver.alter(1, 1, [1, 2, 3], 2).code == 0
    driver.pass_time(1_000)
    for broker_id in (1, 2, 3):
        driver.beat(broker_id, epoch=1)
    driver.told()
    driver.close(1)
    driver.pass_time(100)
    assert driver.master() == (2, 2)
    assert driver.told() == ["h:2"]
    return driver


def test_notify_when_the_old_master_crashed_then_slaves_hear_with_the_new_one_s_heartbeat() -> None:
    """A slave that asks the name server too early gets no master, for up to 30 s."""
    driver = crashed_master()
    driver.beat(2, epoch=1)
    assert driver.told() == []
    driver.beat(2, epoch=2)
    assert driver.told() == ["h:3"]


def test_notify_when_the_old_master_crashed_then_slaves_hear_after_the_short_delay() -> None:
    """Writes that need two replicas wait for the slaves."""
    driver = crashed_master()
    driver.pass_time(299)
    assert driver.told() == []
    driver.pass_time(1)
    assert driver.told() == ["h:3"]


def hung_master() -> Driver:
    """Three replicas in sync; the master falls silent, its connection stays open."""
    driver = Driver()
    driver.pair()
    driver.register(3)
    driver.beat(3)
    assert driver.alter(1, 1, [1, 2, 3], 2).code == 0
    driver.pass_time(1_000)
    driver.told()
    for _ in range(9):
        driver.pass_time(1_000)
        driver.beat(2, epoch=1)
        driver.beat(3, epoch=1)
    driver.pass_time(1)
    assert driver.master() == (2, 2)
    assert driver.told() == ["h:2"]
    return driver


def test_notify_when_the_old_master_hangs_then_slaves_hear_a_margin_after_the_heartbeat() -> None:
    """A slave that finds the hanging master's port never lets go of it."""
    driver = hung_master()
    driver.beat(2, epoch=2)
    driver.pass_time(999)
    driver.beat(2, epoch=2)
    assert driver.told() == []
    driver.pass_time(1)
    assert driver.told() == ["h:3"]
    driver.pass_time(1_000)
    assert driver.told() == []


def test_notify_when_the_old_master_hangs_then_slaves_hear_after_the_long_delay() -> None:
    """The new master may be slow; nobody waits for ever."""
    driver = hung_master()
    driver.pass_time(7_999)
    assert driver.told() == []
    driver.pass_time(1)
    assert driver.told() == ["h:3"]


def test_notify_when_an_operator_chose_then_the_old_master_hears_at_once() -> None:
    """It is alive and takes writes until it is told; the others would find its port open."""
    driver = Driver()
    driver.pair()
    driver.register(3)
    driver.beat(3)
    driver.pass_time(1_000)
    driver.told()
    assert driver.elect(2, designate=True).code == 0
    assert [one.ext_fields for one in driver.notified] == [
        {"masterBrokerId": "2", "masterAddress": "h:2", "masterEpoch": "2", "syncStateSetEpoch": "3"}
    ] * 2  # fmt: skip
    assert driver.notified[0].body == b'{"syncStateSet":[2],"syncStateSetEpoch":3}'
    assert driver.told() == ["h:2", "h:1"]
    driver.beat(2, epoch=1)
    assert driver.told() == []
    driver.beat(2, epoch=2)
    driver.pass_time(999)
    assert driver.told() == []
    driver.pass_time(1)
    assert driver.told() == ["h:3"]
    driver.pass_time(1_000)
    assert driver.told() == []


def test_notify_when_the_route_is_watched_then_slaves_hear_when_it_names_the_master() -> None:
    """Neither the heartbeat nor the short delay says what a name server will answer."""
    driver = Driver(routes=True)
    driver.pair()
    driver.register(3)
    driver.beat(3)
    driver.elect(2, designate=True)
    assert driver.told()[-2:] == ["h:2", "h:1"]
    assert driver.watched[-1] == WatchRoute(CLUSTER, NAME, 2, "h:2", 8_000)
    driver.step(RouteFollowed(NAME, 2))
    driver.beat(2, epoch=2)
    driver.pass_time(5_000)
    assert driver.told() == []
    driver.step(RouteUpdated(NAME, 1))
    assert driver.told() == []
    driver.step(RouteUpdated(NAME, 2))
    assert driver.told() == ["h:3"]
    driver.step(RouteUpdated(NAME, 2))
    assert driver.told() == []


def test_notify_when_the_route_is_watched_for_long_then_slaves_hear_all_the_same() -> None:
    """A name server that never learns must not keep a slave from its master."""
    driver = Driver(routes=True)
    driver.pair()
    driver.register(3)
    driver.beat(3)
    driver.elect(2, designate=True)
    driver.told()
    driver.step(RouteFollowed(NAME, 2))
    driver.beat(2, epoch=2)
    driver.pass_time(7_999)
    assert driver.told() == []
    driver.pass_time(1)
    assert driver.told() == ["h:3"]


def test_notify_when_the_master_does_not_say_whose_route_then_the_delay_counts() -> None:
    """It may be cut off from this leader; its slaves must hear all the same."""
    driver = Driver(routes=True)
    driver.pair()
    driver.register(3)
    driver.beat(3)
    driver.close(1)
    driver.told()
    driver.pass_time(100)
    assert driver.master() == (2, 2)
    driver.told()
    driver.pass_time(299)
    assert driver.told() == []
    driver.pass_time(1)
    assert driver.told() == ["h:3"]
    driver.step(RouteFollowed(NAME, 2))
    driver.step(RouteUpdated(NAME, 2))
    assert driver.told() == []


@pytest.mark.parametrize("heard_first", [True, False])
def test_notify_when_the_route_cannot_be_seen_then_the_heartbeat_counts(heard_first: bool) -> None:
    """As without a name server, whichever comes first."""
    driver = Driver(routes=True)
    driver.pair()
    driver.register(3)
    driver.beat(3)
    driver.elect(2, designate=True)
    driver.told()
    driver.step(RouteFollowed(NAME, 2))
    if heard_first:
        driver.beat(2, epoch=2)
        driver.pass_time(400)
        driver.step(RouteUnknown(NAME, 2))
        driver.pass_time(599)
    else:
        driver.step(RouteUnknown(NAME, 2))
        driver.beat(2, epoch=2)
        driver.pass_time(999)
    assert driver.told() == []
    driver.pass_time(1)
    assert driver.told() == ["h:3"]


def test_notify_when_nothing_shall_be_watched_then_nothing_is() -> None:
    """Where controllers must not talk to name servers."""
    driver = Driver(settings=MachineSettings(watch_name_server_route=False), routes=True)
    driver.pair()
    driver.elect(2, designate=True)
    assert driver.watched == []


def test_read_when_a_slave_polls_before_its_turn_then_it_is_asked_to_come_again() -> None:
    """A broker's own 1004 would tell it what its notification must not tell it yet."""
    driver = Driver()
    driver.pair()
    driver.register(3)
    driver.beat(3)
    driver.elect(2, designate=True)

    def poll(connection: int) -> tuple[int, str | None]:
        answer = driver.ask(1004, connection, brokerName=NAME)
        return answer.code, (answer.ext_fields or {}).get("masterBrokerId")

    assert poll(3) == (2, None)
    told_or_not_a_broker = [poll(connection) for connection in (1, 2, 99)]
    assert told_or_not_a_broker == [(0, "2")] * 3
    driver.beat(2, epoch=2)
    driver.pass_time(999)
    assert poll(3) == (2, None)
    driver.pass_time(1)
    assert poll(3) == (0, "2")


def test_read_when_a_connection_carries_master_and_slave_then_it_is_answered() -> None:
    """A broker container speaks for several brokers: its master must not wait."""
    driver = Driver()
    driver.pair()
    driver.register(3)
    driver.beat(3, connection=2)
    driver.elect(2, designate=True)
    assert driver.ask(1004, 2, brokerName=NAME).code == 0


def test_notify_when_a_newer_election_comes_then_the_older_one_is_not_told_any_more() -> None:
    """Each epoch is told once; the third replica hears of the newest only."""
    driver = Driver()
    driver.pair()
    driver.register(3)
    driver.beat(3)
    driver.pass_time(1_000)
    driver.told()
    driver.elect(2, designate=True)
    assert driver.alter(2, 2, [1, 2], 3).code == 0
    driver.pass_time(200)
    driver.elect(1, designate=True)
    assert driver.told() == ["h:2", "h:1", "h:1", "h:2"]
    driver.pass_time(7_999)
    assert driver.told() == []
    driver.pass_time(1)
    assert driver.notified[0].ext_fields["masterEpoch"] == "3"
    assert driver.told() == ["h:3"]


def test_leadership_when_leader_and_master_died_together_then_one_short_outage() -> None:
    """#5712: a new leader acts on what it heard as a follower."""
    driver = Driver()
    driver.pair()
    driver.step(LeadershipChanged(False, 2))
    driver.close(1)
    driver.pass_time(200)
    assert driver.master() == (1, 1)
    driver.step(LeadershipChanged(True, 3))
    assert driver.master() == (2, 2)


def test_leadership_when_the_master_was_never_heard_then_spared_for_the_cold_start() -> None:
    """#9682: the slave's heartbeat may come first after a restart of the controllers."""
    driver = Driver()
    driver.pair()
    restarted = Driver()
    restarted.step(LeadershipChanged(False, 1))
    restarted.step(SnapshotLoaded(9, driver.machine.snapshot()))
    restarted.log = [b""] * 9
    restarted.step(LeadershipChanged(True, 2))
    for _ in range(9):
        restarted.beat(2)
        restarted.pass_time(1_000)
    assert restarted.master() == (1, 1)
    restarted.beat(2)
    restarted.pass_time(1_000)
    assert restarted.master() == (2, 2)


def test_leadership_when_the_master_was_silent_here_only_then_spared_for_its_timeout() -> None:
    """A node that was cut off itself would elect beside a master that holds its write lease."""
    driver = Driver()
    driver.pair()
    driver.step(LeadershipChanged(False, 2))
    for _ in range(15):
        driver.beat(2)
        driver.pass_time(1_000)
    # The connection of a master that is long silent here tells nothing of it any more.
    driver.close(1)
    driver.beat(2)
    driver.step(LeadershipChanged(True, 3))
    for _ in range(9):
        driver.beat(2)
        driver.pass_time(1_000)
    assert driver.master() == (1, 1)
    driver.beat(2)
    driver.pass_time(1_100)
    assert driver.master() == (2, 2)


def test_leadership_when_just_won_then_recent_elections_are_announced_again() -> None:
    """The old leader may have died between commit and notification."""
    driver = Driver()
    driver.pair()
    driver.elect(2, designate=True)
    driver.told()
    driver.step(LeadershipChanged(True, 2))
    driver.pass_time(300)
    assert driver.told() == ["h:2", "h:1"]
    driver.pass_time(6_000)
    driver.beat(1)
    driver.beat(2)
    driver.step(LeadershipChanged(True, 3))
    driver.pass_time(300)
    assert driver.told() == []


def test_queue_when_one_is_in_flight_then_the_others_decide_on_its_outcome() -> None:
    """Two brokers ask at once; only one epoch is spent."""
    driver = Driver()
    for broker_id in (1, 2):
        driver.register(broker_id)
        driver.beat(broker_id)
    driver.hold = True
    first = driver.send(1002, 1, clusterName=CLUSTER, brokerName=NAME, brokerId=1)
    second = driver.send(1002, 2, clusterName=CLUSTER, brokerName=NAME, brokerId=2)
    other = driver.send(
        1013, 5, clusterName=CLUSTER, brokerName="other", appliedBrokerId=1,
        registerCheckCode="h:5;1",
    )  # fmt: skip
    assert len(driver.held) == 2
    assert not {first, second, other} & driver.replies.keys()
    assert driver.ask(1004, 1, brokerName=NAME).ext_fields == {"masterEpoch": "0"}
    driver.commit_one()
    assert driver.replies[first].code == 0
    assert driver.replies[second].code == 2011
    driver.commit_one()
    assert driver.replies[other].code == 0


def test_queue_when_full_then_busy_and_when_leadership_goes_then_2007() -> None:
    """Everything is bounded, and nobody waits for an answer that cannot come."""
    driver = Driver(MachineSettings(requests_queued_per_set_max=2))
    driver.register(1)
    driver.hold = True
    tokens = [
        driver.send(1002, n, clusterName=CLUSTER, brokerName=NAME, brokerId=1) for n in range(1, 5)
    ]
    assert driver.replies[tokens[3]].code == 2
    driver.step(LeadershipChanged(False, 2))
    assert [driver.replies[token].code for token in tokens[:3]] == [2007] * 3
    driver.commit_one()
    assert driver.master() == (1, 1)


def test_queue_when_a_connection_closes_then_its_waiting_requests_are_not_decided() -> None:
    """A dead asker must not be elected as "alive for that request"."""
    driver = Driver()
    driver.pair()
    driver.hold = True
    driver.send(1001, 1, b'{"syncStateSet":[1],"syncStateSetEpoch":2}', brokerName=NAME,
                masterBrokerId=1, masterEpoch=1)  # fmt: skip
    waiting = driver.send(1002, 2, clusterName=CLUSTER, brokerName=NAME, brokerId=2)
    driver.close(2)
    assert driver.replies[waiting].code == 1
    driver.commit_one()
    assert not driver.held


def test_dropped_when_a_proposal_cannot_commit_then_2007_and_the_next_runs() -> None:
    """A controller's own election is proposed again, three times at most."""
    driver = Driver()
    driver.pair()
    driver.hold = True
    asked = driver.send(1002, 9, clusterName=CLUSTER, brokerName=NAME, brokerId=2,
                        designateElect="true")  # fmt: skip
    driver.step(ProposalDropped(driver.held.popleft().record))
    assert driver.replies[asked].code == 2007
    driver.close(1)
    driver.pass_time(100)
    for _ in range(3):
        driver.step(ProposalDropped(driver.held.popleft().record))
    assert not driver.held
    driver.hold = False
    driver.pass_time(5_000)
    assert driver.master() == (2, 2)


def test_committed_when_repeated_or_from_another_term_then_harmless() -> None:
    """A restarted node replays; tokens of another term match nothing."""
    driver = Driver()
    driver.pair()
    follower = ControllerMachine()
    for index, record in enumerate(driver.log, 1):
        follower.step(0, Committed(index, record))
        assert follower.step(0, Committed(index, record)) == []
    assert follower.step(0, Committed(len(driver.log) + 1, b"")) == []
    assert follower.state == driver.machine.state
    assert follower.applied_index == len(driver.log) + 1


def test_snapshot_when_loaded_then_the_same_state_and_bytes() -> None:
    """A node that joins late must equal one that replayed everything."""
    driver = Driver()
    driver.pair()
    joined = ControllerMachine()
    joined.step(0, SnapshotLoaded(len(driver.log), driver.machine.snapshot()))
    assert joined.state == driver.machine.state
    assert joined.snapshot() == driver.machine.snapshot()


def test_status_when_asked_then_counts_and_roles() -> None:
    """#8454: Java counts one active broker too few."""
    driver = Driver()
    driver.pair()
    status = driver.status()
    assert status["is_leader"]
    (one,) = status["broker_sets"]
    assert one["active_brokers"] == 2
    assert [replica["role"] for replica in one["replicas"]] == ["master", "slave"]
    assert status["elections"] == [
        {"cluster": CLUSTER, "broker_set": NAME, "election_result": "new_master_elected", "count": 1}
    ]  # fmt: skip


@pytest.mark.parametrize("code", [1004, 1006, 1012])
def test_read_when_asked_beside_step_then_the_same_answer(code: int) -> None:
    """The shell's fast path must not drift from the slow one."""
    driver = Driver()
    driver.pair()
    slow = driver.ask(code, 1, b'["broker-a"]', clusterName=CLUSTER, brokerName=NAME)
    ext = {"clusterName": CLUSTER, "brokerName": NAME}
    fast = driver.machine.read(driver.now_ms, 1, code, ext, b'["broker-a"]')
    assert (slow.code, slow.remark, slow.ext_fields, slow.body) == (
        fast.code, fast.remark, fast.ext_fields, fast.body,
    )  # fmt: skip


def test_settings_when_changed_at_run_time_then_in_force() -> None:
    """1009 changes them on a running controller; the grace stays within its limit."""
    driver = Driver()
    driver.pair()
    driver.told()
    driver.machine.configure(
        MachineSettings(notify_broker_role_changed=False, close_grace_ms=60_000)
    )
    driver.close(1)
    driver.pass_time(100)
    assert driver.master() == (2, 2)
    assert driver.told() == []
    driver.step(Ticked())


def test_forged_heartbeats_when_they_fill_the_table_then_brokers_register_and_serve() -> None:
    """A table full of brokers that claim a day of silence kept every new broker from its set."""
    driver = Driver(MachineSettings(live_brokers_max=100, heartbeat_timeout_ms_max=60_000))
    for number in range(200):
        driver.beat(
            1 + number, 1_000 + number % 20, brokerName="forged",
            heartbeatTimeoutMills=86_400_000,
        )  # fmt: skip
    driver.pair()
    alive = driver.machine.liveness.alive
    assert alive(driver.now_ms, CLUSTER, NAME, BrokerId(1))
    assert alive(driver.now_ms, CLUSTER, NAME, BrokerId(2))
    driver.pass_time(60_001)
    assert driver.machine.liveness.living(driver.now_ms) == []


def test_registered_brokers_when_cleaned_or_loaded_then_the_live_table_knows() -> None:
    """Who is registered has a place of its own there; who is removed has it no more."""
    driver = Driver(MachineSettings(live_brokers_max=3))
    driver.pair()
    driver.beat(3)
    found = driver.machine.liveness
    registered = [found.info(CLUSTER, NAME, BrokerId(number)) for number in (1, 2, 3)]
    assert [one is not None and one.registered for one in registered] == [True, True, False]
    cleaned = driver.ask(
        1011, 99, clusterName=CLUSTER, brokerName=NAME, brokerControllerIdsToClean="2",
        isCleanLivingBroker="true",
    )  # fmt: skip
    assert cleaned.code == 0
    assert [one is not None and one.registered for one in registered] == [True, False, False]
    other = Driver()
    other.register(1)
    driver.step(SnapshotLoaded(10, other.machine.snapshot()))
    assert [one is not None and one.registered for one in registered] == [True, False, False]
    driver.step(SnapshotLoaded(11, Driver().machine.snapshot()))
    assert [one is not None and one.registered for one in registered] == [False, False, False]


def test_id_when_who_asked_for_it_has_hung_up_then_it_is_no_sign_of_life() -> None:
    """Nothing would end a broker on a connection that is closed already, but its timeout."""
    driver = Driver()
    driver.hold = True
    driver.send(
        1013, 1, clusterName=CLUSTER, brokerName=NAME, appliedBrokerId=1, registerCheckCode="h:1;1"
    )
    driver.close(1)
    driver.hold = False
    driver.commit_one()
    assert 1 in driver.machine.state.sets[NAME].replicas
    assert driver.machine.liveness.info(CLUSTER, NAME, BrokerId(1)) is None


def test_step_down_when_slaves_are_still_to_be_told_then_they_are_the_next_leader_s_to_tell() -> (
    None
):
    """It may have elected another one since."""
    driver = Driver()
    driver.pair()
    driver.register(3)
    driver.beat(3, epoch=1)
    driver.routes = True
    driver.close(1)
    driver.pass_time(100)
    driver.told()
    assert driver.master() == (2, 2)
    driver.step(LeadershipChanged(is_leader=False, term=2))
    driver.step(RouteUpdated(NAME, 2))
    assert driver.told() == []
    driver.pass_time(60_000)
    assert driver.told() == []
    assert driver.machine.next_deadline_ms() is None


def test_vacancy_when_somebody_of_another_cluster_is_heard_then_no_election() -> None:
    """Two clusters with sets of one name: that broker is not the one that was in sync."""
    driver = Driver()
    driver.pair()
    driver.close(1)
    driver.pass_time(100)
    driver.close(2)
    driver.pass_time(100)
    assert driver.master() == (None, 3)
    before = dict(driver.machine._elections.counts)
    driver.beat(2, connection=22, clusterName="another")
    assert dict(driver.machine._elections.counts) == before
    driver.beat(2, connection=23)
    assert driver.master() == (2, 4)
