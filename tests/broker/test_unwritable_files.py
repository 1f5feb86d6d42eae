"""A broker whose files of the configuration cannot be written: it refuses changes, and serves on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest

from rmqha.base.errors import DiskFailed
from rmqha.broker.groups.request_modes import RequestMode, RequestModes
from rmqha.remoting.command import RemotingCommand
from tests.broker.replicas import TOPIC, ReplicaCluster, master_of
from tests.broker.test_producer_services import send, stored


class Config:
    """The config folder of a replica, which can be made read-only.

    Attributes:
        failing: whether it is.
    """

    def __init__(self, cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self.failing = False
        self._cluster = cluster
        self._disk = cluster.disks[cluster.broker_hosts[0]]
        write = self._disk.write_atomic

        async def guarded(path: str, data: bytes) -> None:
            if self.failing and "/config/" in path:
                raise DiskFailed(f"{path}: read-only file system")
            await write(path, data)

        monkeypatch.setattr(self._disk, "write_atomic", guarded)

    def read(self, name: str) -> dict[str, object]:
        """A file as it is on the disk."""
        work = self._disk.read(f"/store/config/{name}")
        found: dict[str, object] = json.loads(self._cluster.loop.run_until_complete(work))
        return found


@pytest.fixture
def cluster() -> Iterator[ReplicaCluster]:
    """One replica, which reigns."""
    with ReplicaCluster(
        seed=3, replicas=1, messageDelayLevel="1s", flushConsumerOffsetInterval=200,
        flushDelayOffsetInterval=200, timerFlushIntervalMs=200,
    ) as one:  # fmt: skip
        one.boot_all()
        yield one


@pytest.fixture
def config(cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch) -> Config:
    """Its folder."""
    return Config(cluster, monkeypatch)


@pytest.mark.costly
def test_broker_when_no_file_can_be_written_then_it_serves_on_and_writes_them_later(
    cluster: ReplicaCluster, config: Config
) -> None:
    """Five files are written all the time; the first failure of any ended the broker."""
    address = master_of(cluster).config.address
    assert cluster.ask(address, 200, {}, GROUP.replace(b"NewGroup", b"CG")).code == 0
    config.failing = True
    for number in range(3):
        assert send(cluster, number, "DELAY\x011\x02").code == 0
    assert send(cluster, 9, "TIMER_DELAY_MS\x011000\x02").code == 0
    offset = {"consumerGroup": "CG", "topic": TOPIC, "queueId": "0", "commitOffset": "1"}
    cluster.until(lambda: len(stored(cluster, TOPIC)) == 4, "all deliveries")
    assert cluster.ask(address, 15, offset).code == 0
    cluster.run_for(5_000)
    master = master_of(cluster)
    unwritten = {path.rsplit("/", 1)[1] for path in master.troubles.reasons}
    assert {
        "topics.json",
        "consumerOffset.json",
        "delayOffset.json",
        "rmqhaTimers.json",
    } <= unwritten
    config.failing = False
    cluster.until(lambda: not master.troubles.reasons, "all files")
    assert config.read("delayOffset.json")["offsetTable"] == {"1": 3}
    offsets = config.read("consumerOffset.json")["offsetTable"]
    assert offsets[f"{TOPIC}@CG"] == {"0": 1}  # type: ignore[index]  # an object
    assert TOPIC in config.read("topics.json")["topicConfigTable"]  # type: ignore[operator]  # an object


NEW_TOPIC = {
    "topic": "New", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6", "order": "false",
    "defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0",
}  # fmt: skip
GROUP = json.dumps({"groupName": "NewGroup", "retryMaxTimes": 7}).encode()
MODE = json.dumps(
    {"topic": "Old", "consumerGroup": "OldGroup", "mode": "POP", "popShareQueueNum": 0}
).encode()


CHANGES = [
    (17, NEW_TOPIC, b""),
    (17, {**NEW_TOPIC, "topic": "Old", "readQueueNums": "9"}, b""),
    (215, {"topic": "Old"}, b""),
    (200, {}, GROUP),
    (200, {}, GROUP.replace(b"NewGroup", b"OldGroup").replace(b"7", b"8")),
    (207, {"groupName": "OldGroup", "cleanOffset": "true"}, b""),
]


def tables(cluster: ReplicaCluster) -> tuple[object, object, object]:
    """What people can change."""
    master = master_of(cluster)
    return (
        master.topics.table.members()["topicConfigTable"],
        master.groups.table.members()["subscriptionGroupTable"],
        master.pop.modes.members(),
    )


def begin(cluster: ReplicaCluster) -> str:
    """Make a topic and a group that changes are about; the master's address."""
    address = master_of(cluster).config.address
    assert cluster.ask(address, 17, {**NEW_TOPIC, "topic": "Old"}).code == 0
    assert cluster.ask(address, 200, {}, GROUP.replace(b"NewGroup", b"OldGroup")).code == 0
    return address


def refused(cluster: ReplicaCluster, code: int, fields: dict[str, str], body: bytes) -> None:
    """The change is refused, and changes nothing."""
    before = tables(cluster)
    answer = cluster.ask(master_of(cluster).config.address, code, fields, body)
    assert answer.code == 1
    assert "nothing is changed" in (answer.remark or "")
    assert "read-only file system" in (answer.remark or "")
    assert tables(cluster) == before


@pytest.mark.few
@pytest.mark.parametrize(("code", "fields", "body"), [*CHANGES, (401, {}, MODE)])
def test_change_when_files_cannot_be_written_then_it_is_refused_and_nothing_is_changed(
    cluster: ReplicaCluster, config: Config, code: int, fields: dict[str, str], body: bytes
) -> None:
    """The log keeps changes of topics and groups for as long as it is kept, and no longer."""
    address = begin(cluster)
    config.failing = True
    if code != 401:  # what no file but its own keeps finds out by itself
        assert cluster.ask(address, 200, {}, GROUP.replace(b"NewGroup", b"Other")).code == 0
        cluster.until(lambda: master_of(cluster).troubles.reasons, "the first failure")
    for _ in range(2):
        refused(cluster, code, fields, body)
    before = tables(cluster)
    config.failing = False
    cluster.until(lambda: not master_of(cluster).troubles.reasons, "all files")
    assert tables(cluster) == before
    assert cluster.ask(address, code, fields, body).code == 0
    assert tables(cluster) != before


@pytest.mark.costly
@pytest.mark.few
@pytest.mark.parametrize(("code", "fields", "body"), CHANGES)
def test_change_when_only_the_log_has_it_then_the_next_process_has_it_too(
    cluster: ReplicaCluster, config: Config, code: int, fields: dict[str, str], body: bytes
) -> None:
    """It was acknowledged before anybody knew that its file cannot be written."""
    address = begin(cluster)
    before = tables(cluster)
    config.failing = True
    assert cluster.ask(address, code, fields, body).code == 0
    changed = tables(cluster)
    assert changed != before
    host = cluster.host_of(master_of(cluster))
    cluster.kill(host, power=True)
    cluster.boot(host)
    cluster.until(lambda: cluster.master() is not None, "the master again")
    assert tables(cluster) == changed


def test_request_modes_when_one_cannot_be_written_then_what_others_have_set_stays(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table went back to what it was before the first of two, the second one's mode included."""
    address, modes = begin(cluster), master_of(cluster).pop.modes
    disk = cluster.disks[cluster.broker_hosts[0]]
    write, failed, both = disk.write_atomic, list[str](), asyncio.Event()

    async def write_third(path: str, data: bytes) -> None:
        # The file writes itself, and so does who has set the first mode: both in vain.
        if path.endswith("messageRequestMode.json") and len(failed) < 2:
            failed.append(path)
            await both.wait()
            raise DiskFailed("read-only file system")
        await write(path, data)

    monkeypatch.setattr(disk, "write_atomic", write_third)
    mine = list[RemotingCommand]()
    cluster.ask_later(address, 401, {}, MODE, mine.append)
    cluster.until(lambda: failed, "the first write")
    other = list[RemotingCommand]()
    cluster.ask_later(address, 401, {}, MODE.replace(b"OldGroup", b"Other"), other.append)
    cluster.until(lambda: modes.known("Old", "Other"), "the second mode")
    both.set()
    cluster.until(lambda: mine and other, "both answers")
    assert [mine[0].code, other[0].code] == [1, 0]
    assert modes.known("Old", "OldGroup") is None
    assert modes.known("Old", "Other") is not None


def test_request_mode_when_taken_back_then_the_one_before_counts() -> None:
    """Unless another one has been set since."""
    modes = RequestModes(9, RequestMode("", "", "POP", -1))
    first, second, third = (RequestMode("T", "G", "POP", share) for share in (1, 2, 3))
    for mode in (first, second):
        assert modes.put(mode) is None
    modes.take_back(second, first)
    assert modes.known("T", "G") == first
    assert modes.put(third) is None
    modes.take_back(first, None)
    assert modes.known("T", "G") == third
    modes.take_back(third, None)
    assert modes.known("T", "G") is None
