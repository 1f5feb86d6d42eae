"""What a master delivers by itself may have left the memory: nobody waits for that but who it is for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmqha.store.aio import cold_reads
from rmqha.store.aio.commit_log import CommitLog
from rmqha.store.aio.reader import Reader
from rmqha.store.record import Record
from tests.broker.replicas import TOPIC, ReplicaCluster, master_of, send_fields

READ_MS = 300.0
NEAR_BYTES = 1_000
"""Some three messages."""

POP = {"consumerGroup": "G", "topic": TOPIC, "queueId": "-1", "maxMsgNums": "32",
       "invisibleTime": "3000", "pollTime": "0", "bornTime": "0", "initMode": "0",
       "expType": "TAG", "exp": "*"}  # fmt: skip

KINDS = {
    "delays": ("DELAY\x011\x02", "0", TOPIC),
    "timers": ("TIMER_DELAY_SEC\x012\x02", "0", TOPIC),
    "transactions": ("TRAN_MSG\x01true\x02PGROUP\x01PG\x02", "4", "RMQ_SYS_TRANS_HALF_TOPIC"),
    "pops": ("", "0", f"%RETRY%G_{TOPIC}"),
}
"""What makes a message one of each kind, its sysFlag, and where the delivery is found."""


SOON: dict[str, object] = {
    "messageDelayLevel": "2s 3s", "transactionCheckInterval": 2000, "transactionTimeOut": 2000,
}  # fmt: skip
"""All of them are due within seconds."""


class ColdDisk:
    """A disk whose log has left the memory, and which keeps what is fetched there.

    Attributes:
        stood: places of the log that somebody looked at in the loop while they were on the disk only.
        fetched: what was read in a thread, and is in memory.
        keeps_max: so many of them at a time.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stood: list[int] = []
        self.fetched: list[tuple[int, int]] = []
        self._monkeypatch = monkeypatch
        self.is_slow = False
        self.keeps_max = 1_000
        monkeypatch.setattr(cold_reads, "COLD_BYTES", NEAR_BYTES)

    def slow(self, cluster: ReplicaCluster) -> None:
        """From now on; whatever was fetched before has left again."""
        for disk in cluster.disks.values():
            disk.mood.read_ms = READ_MS
        self.fetched.clear()
        if not self.is_slow:
            self.is_slow = True
            self._watch()

    def _watch(self) -> None:
        fetch, look = CommitLog.fetch, Reader.look

        def is_there(begin: int, end: int) -> bool:
            return any(low <= begin and end <= high for low, high in self.fetched)

        async def fetching(log: CommitLog, begin: int, end: int) -> None:
            await fetch(log, begin, end)
            self.fetched.append((begin, end))
            del self.fetched[: max(0, len(self.fetched) - self.keeps_max)]

        def looking(reader: Reader, offset: int) -> Record | None:
            record = look(reader, offset)
            log = reader._log
            if record is not None and log.max_offset - offset > NEAR_BYTES + 500:
                end = offset + len(record.body)
                if not is_there(offset, end):
                    self.stood.append(offset)
            return record

        self._monkeypatch.setattr(
            CommitLog, "is_cached", lambda _, begin, end: is_there(begin, end)
        )
        self._monkeypatch.setattr(CommitLog, "fetch", fetching)
        self._monkeypatch.setattr(Reader, "look", looking)

        async def reaching(_: cold_reads.ReadAhead, offset: int) -> None:
            """Whoever goes through the whole log would have all of it in memory."""

        self._monkeypatch.setattr(cold_reads.ReadAhead, "reach", reaching)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> ColdDisk:
    """Of every host."""
    return ColdDisk(monkeypatch)


@pytest.fixture
def cluster() -> Iterator[ReplicaCluster]:
    """One replica, which reigns."""
    with ReplicaCluster(seed=7, replicas=1, **SOON) as one:
        one.boot_all()
        yield one


def deliver_later(cluster: ReplicaCluster, kind: str, count: int) -> None:
    """Send messages that are delivered in some seconds, and others after them."""
    more, flag, _ = KINDS[kind]
    address = master_of(cluster).config.address
    for number in range(count):
        values = send_fields(number)
        fields = {**values, "i": values["i"] + more, "f": flag}
        assert cluster.ask(address, 310, fields, b"body-%d" % number).code == 0
    if kind == "pops":
        cluster.run_for(100)
        assert cluster.ask(address, 200050, POP).code == 0
    for number in range(12):
        assert cluster.send(number, b="OTHER") is not None


def delivered(cluster: ReplicaCluster, kind: str) -> int:
    """How many of them were."""
    reader, topic = master_of(cluster).store.reader, KINDS[kind][2]
    return sum(reader.max_offset(topic, queue_id) for queue_id in range(4))


def expected(kind: str, count: int) -> int:
    """Half messages are stored once more, where they were."""
    return 2 * count if kind == "transactions" else count


@pytest.mark.costly
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_delivery_when_what_it_delivers_is_cold_then_it_is_read_first_and_others_are_served(
    cluster: ReplicaCluster, disk: ColdDisk, kind: str
) -> None:
    """The event loop waited for the disk at each of them, and everybody with it."""
    deliver_later(cluster, kind, 5)
    before = delivered(cluster, kind)
    disk.slow(cluster)
    cluster.until(lambda: delivered(cluster, kind) > before, "a delivery", 20_000)
    begun_s = cluster.loop.time()
    assert cluster.send(7).code == 0  # type: ignore[union-attr]  # it answers
    assert (cluster.loop.time() - begun_s) * 1000 < READ_MS / 2
    wanted = expected(kind, 5) + (1 if KINDS[kind][2] == TOPIC else 0)
    cluster.until(lambda: delivered(cluster, kind) >= wanted, "all deliveries", 20_000)
    assert disk.stood == []
    assert disk.fetched


@pytest.mark.costly
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_new_master_when_all_that_it_is_to_deliver_is_cold_then_it_is_read_first(
    cluster: ReplicaCluster, disk: ColdDisk, kind: str
) -> None:
    """A master reads what waits when its reign begins: days of it with long timers."""
    deliver_later(cluster, kind, 5)
    before = delivered(cluster, kind)
    host = cluster.broker_hosts[0]
    cluster.kill(host)
    disk.slow(cluster)
    cluster.boot(host)
    cluster.until(lambda: cluster.master() is not None, "a master")
    wanted = before + 5
    cluster.until(lambda: delivered(cluster, kind) >= wanted, "all deliveries", 30_000)
    assert disk.stood == []
    assert disk.fetched
    cluster.run_for(1_000)
    assert delivered(cluster, kind) == wanted


@pytest.mark.costly
@pytest.mark.few
@pytest.mark.parametrize("keeps_max", [0, 1])
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_delivery_when_the_memory_keeps_next_to_nothing_then_it_comes_once_all_the_same(
    cluster: ReplicaCluster, disk: ColdDisk, monkeypatch: pytest.MonkeyPatch, kind: str,
    keeps_max: int,
) -> None:  # fmt: skip
    """What leaves the memory again before it is looked at would be read for ever, and what is
    delivered beside it for ever, too."""
    monkeypatch.setattr(cold_reads, "GAP_BYTES", 0)
    monkeypatch.setattr(cold_reads, "RECORD_BYTES", 100)
    disk.keeps_max = keeps_max
    deliver_later(cluster, kind, 5)
    before = delivered(cluster, kind)
    disk.slow(cluster)
    wanted = before + 5
    cluster.until(lambda: delivered(cluster, kind) >= wanted, "all deliveries", 60_000)
    cluster.run_for(1_000)
    assert delivered(cluster, kind) == wanted


@pytest.mark.costly
def test_revival_when_one_message_of_a_check_point_is_cold_then_each_comes_once(
    cluster: ReplicaCluster, disk: ColdDisk
) -> None:
    """Those before it were written already when it was found missing, and again after it was read."""
    master = master_of(cluster)
    for number in range(0, 16, 4):
        assert cluster.send(number) is not None
    cluster.run_for(100)
    assert cluster.ask(master.config.address, 200050, POP).code == 0
    cold, after = (master.store.pulling.place(TOPIC, 0, at) for at in (2, 3))
    assert cold is not None
    assert after is not None
    for number in range(12):
        assert cluster.send(number, b="OTHER") is not None
    disk.slow(cluster)
    disk.fetched += [(0, cold), (after, 1 << 60)]
    cluster.until(lambda: delivered(cluster, "pops") >= 4, "all revivals", 20_000)
    cluster.run_for(1_000)
    assert delivered(cluster, "pops") == 4
    assert disk.fetched[2:]
