"""What users suffered from, by its number at apache/rocketmq, on the virtual cluster."""

from __future__ import annotations

import pytest

from rmqha.base.machine import Ticked
from rmqha.ha import events as ev
from rmqha.ha.events import PutStatus, Role
from rmqha.ha.settings import HaSettings
from tests.ha.cluster import Cluster
from tests.ha.memory_log import MemoryLog
from tests.ha.scenario import BODY, puts, seen, statuses, together


def test_5663_the_response_of_an_expansion_is_lost() -> None:
    """#5663: {1,2} may be in force, so a put needs 2 as well, though 1 has heard nothing."""
    cluster = Cluster(2)
    cluster.answer_alters = False
    cluster.elect(1)
    cluster.run(500)
    puts(cluster, 1, 1)
    cluster.run(500)
    (effect,) = cluster[1].alters
    assert effect.ids == {1, 2}
    cluster.cut.add(2)
    (token,) = puts(cluster, 1, 1)
    assert statuses(cluster, 1, [token]) == [None]
    cluster[1].give(ev.AlterLost())
    cluster.run(3_500)
    assert statuses(cluster, 1, [token]) == [PutStatus.FLUSH_SLAVE_TIMEOUT]


def test_6662_a_partitioned_master_with_one_slave_does_not_advance_its_confirm_offset() -> None:
    """#6662: consumers would see what the other half of the set may not have."""
    cluster = Cluster(3)
    cluster.elect(1)
    puts(cluster, 1, 10)
    cluster.run(1_000)
    assert cluster.sync_state_set == {1, 2, 3}
    cluster.answer_alters = False
    cluster.crash(3)
    before = cluster[1].log.confirm_offset
    puts(cluster, 1, 5)
    cluster.run(2_000)
    assert cluster[2].log.max_offset == cluster[1].log.max_offset > before
    assert cluster[1].log.confirm_offset == before


def test_6728_a_joining_slave_neither_stalls_nor_moves_the_confirm_offset() -> None:
    """#6728: its acknowledgement of 0 is no member's."""
    cluster = Cluster(3)
    cluster.crash(3)
    cluster.elect(1)
    puts(cluster, 1, 10)
    cluster.run(1_000)
    cluster.restart(3)
    cluster.replicas[1].give(Ticked())
    before = cluster[1].log.confirm_offset
    puts(cluster, 1, 5)
    assert cluster[1].log.confirm_offset == before + 5 * 158


def load(cluster: Cluster, turns: int, chunk: int) -> None:
    """A put every 5 ms, and ``chunk`` bytes each way on every connection."""
    for _ in range(turns):
        cluster[1].put(BODY)
        for pipe in list(cluster.pipes):
            cluster.deliver(pipe, chunk)
        for replica in cluster.replicas.values():
            replica.run_lane()
        while cluster[1].alters:
            cluster.alter(cluster[1], cluster[1].alters.pop(0))
        cluster.now_ms += 5
        cluster[1].give(Ticked())


@pytest.mark.costly
def test_6728_a_slave_joins_under_load_once_it_keeps_up() -> None:
    """A slave that is never quite level with a busy master gets in, and no put is lost by it.

    One that receives less than is written falls behind, and must not get in.
    """
    cluster = Cluster(2)
    cluster.elect(1)
    puts(cluster, 1, 400)
    cluster.crash(2)
    cluster.run(1_000)
    cluster[2].log, cluster[2].epoch_file = MemoryLog(), None
    cluster.restart(2)
    for _ in range(20):
        load(cluster, 10, 110)
        assert cluster.sync_state_set == {1}
    load(cluster, 400, 3_000)
    assert cluster.sync_state_set == {1, 2}
    cluster.settle()
    cluster.crash(1, power=True)
    cluster.elect(2)
    cluster.run(500)
    cluster.durability.check(cluster[2].snapshot())


def test_7017_an_isolated_master_acknowledges_nothing_and_loses_nothing_that_it_did() -> None:
    """#7017: with allAck a cut-off master's puts time out; its own tail is cut when it returns."""
    cluster = Cluster(3)
    cluster.elect(1)
    puts(cluster, 1, 10)
    cluster.run(1_000)
    cluster.cut.add(1)
    lost = puts(cluster, 1, 5, b"isolated" * 10)
    cluster.run(25_000)
    assert set(statuses(cluster, 1, lost)) == {PutStatus.FLUSH_SLAVE_TIMEOUT}
    cluster.elect(2)
    cluster.run(1_000)
    puts(cluster, 2, 3)
    cluster.cut.discard(1)
    cluster.tell(1)
    cluster.run(3_000)
    together(cluster, 2)
    assert not [body for body in cluster[1].log.records() if b"isolated" in body]


def test_9689_the_same_master_is_elected_again_under_load() -> None:
    """#9689: each batch is labelled with the epoch of its bytes, and nothing gets stuck."""
    cluster = Cluster(2)
    cluster.elect(1)
    cluster.run(500)
    for _ in range(5):
        puts(cluster, 1, 3)
        cluster[1].put(BODY)
        cluster.elect(1)
        puts(cluster, 1, 3)
    cluster.run(1_000)
    assert len(cluster[2].core.ha.epochs) == 6
    together(cluster, 1)


def test_9942_elections_without_writes_leave_epoch_files_that_agree() -> None:
    """#9942, #6505: an empty log, delays, and every replica master in turn."""
    cluster = Cluster(4)
    for master in (1, 2, 3, 4, 1):
        cluster.cut.add(master % 4 + 1)
        cluster.elect(master)
        cluster.run(60_000)
        cluster.cut.clear()
        for broker_id in cluster.replicas:
            cluster.tell(broker_id)
        cluster.run(6_000)
    puts(cluster, 1, 5)
    cluster.run(2_000)
    together(cluster, 1)
    assert cluster.sync_state_set == {1, 2, 3, 4}


def test_6505_two_masters_of_equal_start_do_not_share_an_epoch() -> None:
    """Both wrote from the same offset; the old one's bytes go, though its epoch is known."""
    cluster = Cluster(2)
    cluster.elect(1)
    cluster.run(6_000)
    cluster.cut.add(1)
    cluster.answer_alters = False
    puts(cluster, 1, 4, b"old" * 50)
    cluster.crash(1)
    cluster.cut.clear()
    cluster.answer_alters = True
    cluster.elect(2)
    cluster.run(500)
    puts(cluster, 2, 4, b"new" * 50)
    cluster.restart(1)
    cluster.run(2_000)
    together(cluster, 2)
    assert cluster[1].log.records() == [b"new" * 50] * 4


def test_6344_master_to_master_keeps_connections_and_queue_offsets() -> None:
    """#6344: nothing is rebuilt and nobody is disconnected."""
    cluster = Cluster(2)
    cluster.elect(1)
    puts(cluster, 1, 5)
    cluster.run(500)
    rebuilt, conns = cluster[1].log.rebuilt, [pipe.master_conn for pipe in cluster.pipes]
    cluster.elect(1)
    cluster.run(500)
    assert cluster[1].log.rebuilt == rebuilt == 1
    assert [pipe.master_conn for pipe in cluster.pipes] == conns != []


def test_6342_a_new_master_adopts_the_controllers_set_then_shrinks_it() -> None:
    """#6342: two views of one epoch's set would differ for ever."""
    cluster = Cluster(3)
    cluster.crash(3)
    cluster.answer_alters = False
    cluster.elect(1, members=frozenset({1, 2, 3}))
    assert cluster[1].core.members.sync_state_set.ids == {1, 2, 3}
    cluster.answer_alters = True
    cluster.run(2_000)
    assert cluster.sync_state_set == {1, 2}


def test_9897_two_slaves_that_leave_together_leave_together() -> None:
    """#9897: the second report re-added the first slave; here no request ever does."""
    cluster = Cluster(3)
    cluster.elect(1)
    puts(cluster, 1, 5)
    cluster.run(1_000)
    assert cluster.sync_state_set == {1, 2, 3}
    cluster.answer_alters = False
    cluster.crash(2)
    cluster.crash(3)
    asked = [effect.ids for effect in cluster[1].alters]
    cluster.answer_alters = True
    cluster.run(1_000)
    assert cluster.sync_state_set == {1}
    assert asked[0] == {1, 3}
    (token,) = puts(cluster, 1, 1)
    assert statuses(cluster, 1, [token]) == [PutStatus.PUT_OK]


def test_7219_a_master_missing_from_the_table_neither_flaps_nor_stops_the_check() -> None:
    """#7219: the master alone asks for nothing, for ever; a later slave still gets in."""
    cluster = Cluster(2)
    cluster.crash(2)
    cluster.elect(1)
    cluster.run(60_000)
    assert not [line for line in cluster.lines if "> AlterSyncStateSet" in line]
    cluster.restart(2)
    puts(cluster, 1, 1)
    cluster.run(1_000)
    assert cluster.sync_state_set == {1, 2}


def test_5651_a_dead_slave_is_not_waited_for_once_the_set_has_shrunk() -> None:
    """#5651: puts go on as soon as the controller has confirmed the smaller set."""
    cluster = Cluster(3)
    cluster.elect(1)
    puts(cluster, 1, 5)
    cluster.run(1_000)
    cluster.crash(3)
    tokens = puts(cluster, 1, 5)
    assert set(statuses(cluster, 1, tokens)) == {PutStatus.PUT_OK}


def test_7656_without_all_ack_consumers_do_not_wait_for_slaves() -> None:
    """#7656: confirmOffset is the end of the log."""
    cluster = Cluster(2, settings=HaSettings())
    cluster.elect(1)
    puts(cluster, 1, 5)
    cluster.run(1_000)
    assert cluster.sync_state_set == {1, 2}
    cluster.answer_alters = False
    cluster.crash(2)
    puts(cluster, 1, 5)
    assert seen(cluster, 1) == 10


@pytest.mark.parametrize("needed", [1, 2, 3])
def test_9642_each_count_of_acknowledgements_is_reached_exactly(needed: int) -> None:
    """#9642: inSyncReplicas=n needs this master and n - 1 members, not n and not n - 2."""
    cluster = Cluster(3, settings=HaSettings(in_sync_replicas=needed))
    cluster.elect(1)
    puts(cluster, 1, 1)
    cluster.run(1_500)
    assert cluster.sync_state_set == {1, 2, 3}
    token = cluster[1].put(BODY)
    assert isinstance(token, int)
    for replicas, slave in enumerate((2, 3), start=1):
        assert (cluster[1].done.get(token) is PutStatus.PUT_OK) == (replicas >= needed)
        for pipe in [one for one in cluster.pipes if one.slave == slave]:
            for _ in range(20):
                cluster.deliver(pipe, 10_000)
    assert cluster[1].done[token] is PutStatus.PUT_OK


def test_min_in_sync_replicas_refuses_before_anything_is_written() -> None:
    """IN_SYNC_REPLICAS_NOT_ENOUGH: clients see code 1 and Java's remark."""
    cluster = Cluster(2, settings=HaSettings(in_sync_replicas=2, min_in_sync_replicas=2))
    cluster.crash(2)
    cluster.elect(1)
    cluster.run(1_000)
    status = cluster[1].put(BODY)
    assert status is PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH
    assert (status.response_code, status.remark) == (1, "in-sync replicas not enough")
    assert cluster[1].log.max_offset == 0
    assert cluster[1].core.check_put(wait_store_ok=False) is PutStatus.PUT_OK


def test_6508_a_replica_without_a_role_takes_no_puts() -> None:
    """#6508: before the role is known, and while it changes, the store is fenced."""
    cluster = Cluster(2)
    before = cluster[1].put(BODY)
    assert before is PutStatus.SERVICE_NOT_AVAILABLE
    cluster[1].give(ev.ChangedToMaster(1, frozenset({1}), 1))
    meanwhile = cluster[1].put(BODY)
    assert meanwhile is PutStatus.SERVICE_NOT_AVAILABLE
    cluster.settle()
    assert isinstance(cluster[1].put(BODY), int)
    cluster[1].give(ev.ChangedToSlave(2, 2, None))
    after = cluster[1].put(BODY)
    assert after is PutStatus.SERVICE_NOT_AVAILABLE


def test_an_older_epoch_is_refused_by_both_roles() -> None:
    """A late notification must not bring back an old reign."""
    cluster = Cluster(2)
    cluster.elect(1)
    cluster.elect(1)
    puts(cluster, 1, 1)
    cluster.elect(1)
    cluster.run(500)
    cluster[1].give(ev.ChangedToMaster(1, frozenset({1}), 9))
    cluster[2].give(ev.ChangedToSlave(1, 3, "r1:1"))
    for broker_id in (1, 2):
        assert isinstance(cluster[broker_id].roles[-1], ev.RoleRefused)
    assert cluster[1].core.role is Role.MASTER


def test_1535_a_record_of_four_mebibytes_is_acknowledged() -> None:
    """#1535: large records were reported as FLUSH_SLAVE_TIMEOUT."""
    cluster = Cluster(2, file_size=16 << 20)
    cluster.elect(1)
    puts(cluster, 1, 1)
    cluster.run(500)
    cluster.check_properties = False
    token = cluster[1].put(b"." * (4 << 20))
    assert isinstance(token, int)
    cluster.settle(chunk=1 << 20)
    assert cluster[1].done[token] is PutStatus.PUT_OK


@pytest.mark.costly
def test_8875_ten_thousand_reconnects_leave_one_session() -> None:
    """#8875: connections leaked, and file descriptors with them."""
    cluster = Cluster(2)
    cluster.check_properties = False
    cluster.elect(1)
    puts(cluster, 1, 1)
    for number in range(10_000):
        cluster[1].give(ev.SlaveConnected(10_000 + number, "stranger"))
        cluster[1].give(ev.SlaveClosed(10_000 + number, "reset"))
    cluster.settle()
    assert len(cluster[1].core.sessions) == 1


def test_g4_a_slave_that_was_cut_off_inside_a_record_continues_at_its_start() -> None:
    """What arrived of a body counts, the incomplete record at its end does not."""
    cluster = Cluster(2)
    cluster.elect(1)
    cluster.run(500)
    for _ in range(3):
        cluster[1].put(BODY)
    (pipe,) = cluster.pipes
    cluster.deliver(pipe, 36 + 158)
    cluster.deliver(pipe, 36 + 200)
    cluster.close(pipe)
    assert cluster[2].log.max_offset == 158 + 200
    cluster.run(110)
    assert any("< TailCut" in line and "max_offset=316" in line for line in cluster.lines)
    cluster.run(2_000)
    together(cluster, 1)


def test_10666_a_power_cut_after_a_truncation_does_not_revive_the_cut_bytes() -> None:
    """#10666: with equal record sizes the old tail would be read as the new epoch's data."""
    cluster = Cluster(2)
    cluster.elect(1)
    puts(cluster, 1, 5)
    cluster.run(1_000)
    cluster.answer_alters = False
    cluster.crash(2)
    puts(cluster, 1, 5, b"stale" * 30)
    cluster[1].log.flush_now()
    cluster.crash(1)
    cluster.restart(2)
    cluster.answer_alters = True
    cluster.elect(2)
    cluster.run(500)
    puts(cluster, 2, 2)
    cluster.restart(1)
    cluster.run(1_000)
    cluster.crash(1, power=True)
    cluster.restart(1)
    cluster.run(1_000)
    together(cluster, 2)


def test_10666_is_seen_when_a_cut_does_not_erase() -> None:
    """The test above must fail with a store that only moves its positions."""
    cluster = Cluster(2)
    cluster[1].log.erase_cuts = False
    cluster.elect(1)
    puts(cluster, 1, 5)
    cluster.run(1_000)
    cluster.answer_alters = False
    cluster.crash(2)
    puts(cluster, 1, 5, b"stale" * 30)
    cluster[1].log.flush_now()
    cluster.crash(1)
    cluster.restart(2)
    cluster.answer_alters = True
    cluster.elect(2)
    cluster.run(500)
    puts(cluster, 2, 2)
    cluster.restart(1)
    cluster.run(1_000)
    cluster[1].log.flush_now()
    cluster.crash(1, power=True)
    assert [body for body in cluster[1].log.records() if b"stale" in body]
