"""A disk that gets full: what is refused, what goes on, and which settings say so."""

from __future__ import annotations

import os

import pytest

from rmqha.broker.admin.aio.prometheus import Collector
from rmqha.broker.common.settings import load_config
from rmqha.cli.mqbroker import disk_use
from rmqha.remoting import fastjson
from tests.broker.replicas import TOPIC, ReplicaCluster, master_of, send_fields

SEND, PULL = 310, 11

KEPT = {
    "cleanFileForciblyEnable": "false", "deleteFileBatchMax": "3", "diskMaxUsedSpaceRatio": "70",
    "diskSpaceCleanForciblyRatio": "80", "diskSpaceWarningLevelRatio": "85",
}  # fmt: skip
SERIES = ("store_disk_full", "store_dispatch_lacks_space", "index_skipped_bytes_total")
FIGURES, QUIET = ("diskFull", "dispatchLacksSpace", "indexSkippedBytes"), ("false", "false", "0")
WITHOUT_EFFECT = ("enableAutoInSyncReplicas", "haMaxGapNotInSync", "totalReplicas")


def test_keys_when_nothing_reads_them_then_they_are_named_unknown() -> None:
    """An operator who limits the gap of his slaves, and is told nothing, believes that it is limited."""
    config = load_config(
        KEPT | dict.fromkeys(WITHOUT_EFFECT, "1"), host_name="h", local_address="127.0.0.1",
        user_home="/",
    )  # fmt: skip
    assert config.unknown == WITHOUT_EFFECT
    store = config.store
    assert not store.clean_file_forcibly_enable
    assert (store.delete_file_batch_max, store.disk_max_used_space_ratio) == (3, 70)
    assert store.disk_space_clean_forcibly_ratio == 80
    assert store.disk_space_warning_level_ratio == 85


def test_disk_use_when_the_commit_log_has_a_disk_of_its_own_then_both_are_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The look went to storePathRootDir alone: a full disk of the log's was seen by nobody, and nothing
    on it was deleted before its time."""

    def statvfs(path: str) -> os.statvfs_result:
        free = {"/log": 10, "/root": 60}[path]
        return os.statvfs_result((4096, 4096, 100, free, free, 9, 9, 9, 0, 255))

    config = load_config(
        {"storePathRootDir": "/root", "storePathCommitLog": "/log"}, host_name="h",
        local_address="127.0.0.1", user_home="/",
    )  # fmt: skip
    use = disk_use(config)
    monkeypatch.setattr(os, "statvfs", statvfs)
    # Request 28 has the commit log's, as Java's commitLogDiskRatio.
    assert (use(), use.of_queues()) == (0.9, 0.4)
    assert use.space() == (100 * 4096, 10 * 4096)


@pytest.mark.costly
def test_sends_when_the_disk_is_too_full_then_refused_as_java_does_while_the_rest_goes_on() -> None:
    """Reads, slaves and the deletion of what has expired are what makes the disk emptier again."""
    with ReplicaCluster(seed=36, replicas=2) as cluster:
        cluster.boot_all()
        cluster.until(cluster.in_sync, "SyncStateSet of two")
        master = master_of(cluster)
        address = master.config.address
        for number in range(4):
            answer = cluster.ask(address, SEND, send_fields(number) | {"e": "0"}, b"body")
            assert answer.code == 0
        master.store.expiring.is_disk_full = True
        master.store.expiring.ratios = (0.912, 0.3)
        refused = cluster.ask_together(
            address, SEND, [(send_fields(number), b"body") for number in range(5)]
        )
        assert {answer.code for answer in refused} == {14}
        assert {answer.remark for answer in refused} == {
            "service not available now. It may be caused by one of the following reasons: the "
            "broker's disk is full [CL:  0.91 CQ:  0.30 INDEX:  0.30], messages are put to the "
            "slave, message store has been shut down, etc."
        }
        back = {
            "offset": "0", "group": "G", "delayLevel": "0", "originMsgId": "", "originTopic": TOPIC,
            "unitMode": "false", "maxReconsumeTimes": "16",
        }  # fmt: skip
        answer = cluster.ask(address, 36, back)
        assert (answer.code, answer.remark) == (1, "SERVICE_NOT_AVAILABLE")
        assert master.store.reader.max_offset(TOPIC, 0) == 4
        pull = {
            "consumerGroup": "G", "topic": TOPIC, "queueId": "0", "queueOffset": "0",
            "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
            "subscription": "*", "subVersion": "0", "expressionType": "TAG",
        }  # fmt: skip
        assert cluster.ask(address, PULL, pull).code == 0
        cluster.run_for(20_000)
        assert cluster.in_sync()
        master.store.expiring.is_disk_full = False
        assert cluster.ask(address, SEND, send_fields(9), b"body").code == 0


def test_disk_when_it_is_too_full_or_cannot_be_read_then_metrics_and_28_say_so() -> None:
    """Sends were refused, queues stood still and the index passed over what it could not read: only
    the log told, and no alert can look there."""
    labels = {"cluster": "c", "node_type": "broker", "node_id": "b", "address": "a"}
    with ReplicaCluster(seed=43, replicas=1) as cluster:
        cluster.boot_all()
        master = master_of(cluster)

        def shown() -> tuple[dict[str, float], dict[str, str]]:
            found = cluster.loop.run_until_complete(master.admin.scrape())
            samples = {
                sample.name: sample.value
                for metric in Collector(labels, lambda: found).collect()
                for sample in metric.samples
            }
            table = fastjson.loads(cluster.ask(master.config.address, 28).body)["table"]
            return (
                {name: samples[f"rmqha_{name}"] for name in SERIES},
                {name: table[name] for name in FIGURES},
            )

        assert shown() == (dict.fromkeys(SERIES, 0.0), dict(zip(FIGURES, QUIET, strict=True)))
        store = master.store
        store.expiring.is_disk_full = store.dispatcher.lacks_space = True
        store.indexes.skipped_bytes = 4096
        assert shown() == (
            {"store_disk_full": 1, "store_dispatch_lacks_space": 1,
             "index_skipped_bytes_total": 4096},
            {"diskFull": "true", "dispatchLacksSpace": "true", "indexSkippedBytes": "4096"},
        )  # fmt: skip


@pytest.mark.costly
@pytest.mark.parametrize("full", ["expiring", "dispatcher", "both of them"])
def test_master_when_it_dies_then_a_slave_with_room_is_elected_before_one_without(
    full: str,
) -> None:
    """All in sync hold what was acknowledged, and the log of a full disk may have a place for a gigabyte.
    As master that one refuses every send, or never gets its queues ready; so it is one where all are."""
    with ReplicaCluster(seed=44, replicas=3) as cluster:
        cluster.boot_all()
        cluster.until(cluster.in_sync, "SyncStateSet of three")
        dead = master_of(cluster)
        by_id = sorted(
            (one for one in cluster.replicas.values() if one is not dead),
            key=lambda one: one.manager.broker_id or 0,
        )
        for one in by_id if full == "both of them" else by_id[:1]:
            if full == "dispatcher":
                one.store.dispatcher.lacks_space = True
            else:
                one.store.expiring.is_disk_full = True
        dead.store.expiring.is_disk_full = True  # nobody is elected for that
        cluster.run_for(3_000)
        assert master_of(cluster) is dead
        cluster.kill(next(host for host, one in cluster.replicas.items() if one is dead))
        cluster.until(lambda: cluster.master() not in (None, dead), "another master")
        assert master_of(cluster) is by_id[0 if full == "both of them" else 1]


def test_heartbeat_when_a_disk_is_full_then_it_says_so_from_the_first_one_on_and_no_longer_than_that() -> (
    None
):
    """In a field of its own: a controller takes one that stands still for somebody else's word."""
    with ReplicaCluster(seed=45, replicas=1) as cluster:
        cluster.boot_all()
        master = master_of(cluster)
        report = master._log_report
        assert {"noRoomMs", "stalledMs"}.isdisjoint(report.heartbeat_fields())
        master.store.expiring.is_disk_full = True
        said = report.heartbeat_fields()
        assert ("stalledMs" in said, said["noRoomMs"]) == (False, "1")
        cluster.run_for(2_000)
        assert int(report.heartbeat_fields()["noRoomMs"]) >= 1_900
        master.store.expiring.is_disk_full = False
        assert "noRoomMs" not in report.heartbeat_fields()
        master.store.dispatcher.lacks_space = True
        assert report.heartbeat_fields()["noRoomMs"] == "1"


def test_status_when_log_and_queues_have_disks_of_their_own_then_28_tells_each() -> None:
    """Who watches consumeQueueDiskRatio must not be shown the commit log's disk."""

    class Use:
        def __call__(self) -> float:
            return 0.75

        def of_queues(self) -> float:
            return 0.25

        def space(self) -> tuple[int, int]:
            return 100, 25

    with ReplicaCluster(seed=37, replicas=1) as cluster:
        cluster.boot_all()
        master = master_of(cluster)
        master.admin._disk_use = Use()
        table = fastjson.loads(cluster.ask(master.config.address, 28).body)["table"]
    assert (table["commitLogDiskRatio"], table["consumeQueueDiskRatio"]) == ("0.75", "0.25")
