"""Whole replicas on the virtual cluster: the scenarios of AutoSwitchHATest."""

from __future__ import annotations

from rmqha.ha import events as ev
from rmqha.ha.events import PutStatus
from rmqha.ha.settings import HaSettings
from tests.ha.cluster import Cluster
from tests.ha.scenario import LEARNER, puts, seen, statuses, together


def test_a_new_set_replicates_and_expands() -> None:
    """The plain case: without it nothing else means anything."""
    cluster = Cluster(3)
    cluster.elect(1)
    cluster.run(2_000)
    tokens = puts(cluster, 1, 10)
    cluster.run(2_000)
    assert statuses(cluster, 1, tokens) == [PutStatus.PUT_OK] * 10
    assert cluster.sync_state_set == {1, 2, 3}
    assert [seen(cluster, one) for one in (1, 2, 3)] == [10, 10, 10]
    together(cluster, 1)


def test_confirm_offset() -> None:
    """testConfirmOffset: a record that only the dead master had is cut when it returns."""
    cluster = Cluster(2, file_size=1 << 20)
    cluster.elect(1)
    cluster.run(1_000)
    puts(cluster, 1, 10)
    cluster.run(1_000)
    assert seen(cluster, 2) == 10
    cluster.answer_alters = False
    cluster.crash(2)
    before = cluster[1].log.confirm_offset
    (token,) = puts(cluster, 1, 1, b"dirty" * 20)
    cluster.run(4_000)
    assert statuses(cluster, 1, [token]) == [PutStatus.FLUSH_SLAVE_TIMEOUT]
    assert cluster[1].log.confirm_offset == before == 1580
    cluster.crash(1)
    cluster.answer_alters = True
    cluster.restart(2)
    cluster.elect(2)
    cluster.run(1_000)
    puts(cluster, 2, 10)
    cluster.restart(1)
    cluster.run(2_000)
    assert seen(cluster, 1) == 20
    together(cluster, 2)


def test_async_learner_broker_role() -> None:
    """testAsyncLearnerBrokerRole: a learner has the data and is never in the set."""
    cluster = Cluster(2)
    cluster[2].settings = LEARNER
    cluster[2].start()
    cluster.elect(1)
    puts_made = puts(cluster, 1, 10)
    cluster.run(20_000)
    assert seen(cluster, 2) == 10
    assert cluster.sync_state_set == {1}
    assert set(statuses(cluster, 1, puts_made)) == {PutStatus.PUT_OK}


def test_option_all_ack_in_sync_state_set() -> None:
    """testOptionAllAckInSyncStateSet: one dead member of the set makes puts time out."""
    cluster = Cluster(2)
    cluster.elect(1)
    puts(cluster, 1, 10)
    cluster.run(1_000)
    assert cluster.sync_state_set == {1, 2}
    cluster.answer_alters = False
    cluster.crash(2)
    (token,) = puts(cluster, 1, 1)
    assert statuses(cluster, 1, [token]) == [None]
    cluster.run(3_000)
    assert statuses(cluster, 1, [token]) == [PutStatus.FLUSH_SLAVE_TIMEOUT]


def test_change_role_many_times() -> None:
    """testChangeRoleManyTimes: roles swap, and the slave sees 10, 20, 30."""
    cluster = Cluster(2)
    for round_number, master in enumerate((1, 2, 1), start=1):
        cluster.elect(master)
        cluster.run(1_000)
        puts(cluster, master, 10)
        cluster.run(1_000)
        assert seen(cluster, 3 - master) == 10 * round_number
    assert [entry.epoch for entry in cluster[1].core.ha.epochs.entries] == [1, 2, 3]
    together(cluster, 1)


def test_add_broker() -> None:
    """testAddBroker: a third replica joins later."""
    cluster = Cluster(3)
    cluster.crash(3)
    cluster.elect(1)
    puts(cluster, 1, 10)
    cluster.restart(3)
    cluster.run(1_000)
    assert (seen(cluster, 2), seen(cluster, 3)) == (10, 10)


def two_epochs_without_first_file() -> Cluster:
    """Epochs 1 and 2 with 10 records each in files of 1700 bytes; the first file has expired."""
    cluster = Cluster(3, file_size=1700)
    cluster.crash(3)
    cluster.elect(1)
    cluster.run(500)
    puts(cluster, 1, 10)
    cluster.elect(1)
    cluster.run(500)
    puts(cluster, 1, 10)
    cluster.run(500)
    for broker_id in (1, 2):
        cluster[broker_id].give(ev.Trimmed(cluster[broker_id].log.expire_first_file()))
    cluster.settle()
    return cluster


def test_truncate_epoch_log_and_add_broker() -> None:
    """testTruncateEpochLogAndAddBroker: a replica joins after the first file has expired."""
    cluster = two_epochs_without_first_file()
    assert cluster[1].log.min_offset == 1700
    cluster.restart(3)
    cluster.run(1_000)
    assert cluster[3].log.min_offset == 1700
    assert seen(cluster, 3) == 10
    together(cluster, 1)


def test_truncate_epoch_log_and_change_master() -> None:
    """testTruncateEpochLogAndChangeMaster: another master, and the old one follows it."""
    cluster = two_epochs_without_first_file()
    cluster.restart(3)
    cluster.run(1_000)
    cluster.elect(2)
    cluster.run(1_000)
    puts(cluster, 2, 10)
    cluster.run(1_000)
    assert seen(cluster, 3) == 20
    together(cluster, 2)


def test_add_broker_and_sync_from_last_file() -> None:
    """testAddBrokerAndSyncFromLastFile: an empty replica begins with the newest file."""
    cluster = Cluster(3, file_size=1700)
    cluster.crash(3)
    cluster.elect(1)
    puts(cluster, 1, 10)
    cluster.elect(1)
    puts(cluster, 1, 10)
    cluster[3].settings = HaSettings(all_ack_in_sync_state_set=True, sync_from_last_file=True)
    cluster.restart(3)
    cluster.run(1_000)
    assert cluster[3].log.min_offset == 1700
    assert seen(cluster, 3) == 10
    together(cluster, 1)


def test_check_synchronizing_sync_state_set_flag() -> None:
    """testCheckSynchronizingSyncStateSetFlag: while a change is under way both sets count."""
    cluster = Cluster(2)
    cluster.answer_alters = False
    cluster.elect(1)
    puts(cluster, 1, 10)
    cluster.run(1_000)
    members = cluster[1].core.members.sync_state_set
    assert members.asked
    assert cluster[1].log.confirm_offset == 1580
    assert members.union == {1, 2}
    cluster.answer_alters = True
    cluster.settle()
    assert not members.asked


def test_consume_queues_do_not_exceed_the_confirm_offset_after_a_restart() -> None:
    """testBuildConsumeQueueNotExceedConfirmOffset, #6609: unconfirmed records stay unread."""
    cluster = Cluster(2)
    cluster.elect(1)
    puts(cluster, 1, 10)
    cluster.run(1_000)
    log = cluster[1].log
    log.flush_now()
    log._durable_confirm = 790
    cluster.crash(2)
    cluster.crash(1)
    assert log.confirm_offset == 790
    assert seen(cluster, 1) == 5
