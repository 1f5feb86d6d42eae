"""Sets of DLedger mode, and masters with slaves, become sets of controller mode with all they have."""

from __future__ import annotations

import json
import mmap
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from rmqha.store.dledger import TIMER_UNIT
from rmqha.store.record import Record, check_record, decode
from rmqha.testing.real import wire
from rmqha.testing.real.cluster import FAST_BROKER, Cluster
from rmqha.testing.real.java import JavaBroker, NameServer
from rmqha.testing.real.processes import WaitTimeout, allocate_ports, wait_until
from rmqha.testing.real.producer import (
    Producer,
    assert_nothing_lost,
    missing,
    read_back,
    read_commit_log,
)
from rmqha.testing.real.python import PythonBroker
from tests.interop import required
from tests.interop.alone import JavaAlone, new_topic
from tests.interop.our_mqadmin import run_our_mqadmin

pytestmark = pytest.mark.timeout(420)
"""A Java slave whose log has to be cut is away for 95 s, and the whole of a test takes 150 without."""

NAME = "broker-a"
TOPIC = "Converted"
FILE_SIZE = 1 << 20
SMALL = {"mappedFileSizeCommitLog": FILE_SIZE, "timerWheelEnable": True}
STOPPED_S = 60.0
READY_S = 60.0
DELAY_LEVEL = 5
DELAY_S = 60
"""What waits is not due before its set has been stopped: a delivery adds to the log."""
DELIVERED_S = 120.0
COMMIT = 8
END_TRANSACTION = 37


def convert(*arguments: str) -> dict[str, Any]:
    """What our tool says of the new store."""
    done = run_our_mqadmin("convertStore", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def records(store: Path) -> Iterator[Record]:
    """All records of a log, each checked."""
    for path in sorted((store / "commitlog").glob("[0-9]*")):
        start, at = int(path.name), 0
        with path.open("rb") as file:
            view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        while (head := check_record(view, at, len(view), start + at, check_crc=True)).size > 0:
            yield decode(view, head)
            at += head.size


@contextmanager
def name_server(folder: Path) -> Iterator[NameServer]:
    """Java's, of the time before."""
    server = NameServer(folder / "namesrv-before", allocate_ports()[0])
    server.start()
    try:
        server.wait_ready()
        yield server
    finally:
        server.child.kill()


def master_of(server: NameServer, topic: str) -> str | None:
    """Who serves the set by its route."""
    with wire.Connection(server.address) as connection:
        return wire.broker_addresses(connection, topic, NAME).get(0)


def send_transaction(address: str) -> None:
    """A half message and its commit, whose record names the half message's place in the log."""
    with wire.Connection(address) as broker:
        ext = {
            "producerGroup": "P", "topic": TOPIC, "defaultTopic": "TBW102",
            "defaultTopicQueueNums": 4, "queueId": 0, "sysFlag": 4, "flag": 0,
            "bornTimestamp": int(time.time() * 1000), "reconsumeTimes": 0, "unitMode": False,
            "properties": "TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01T1\x02WAIT\x01true\x02",
        }  # fmt: skip
        sent = broker.ask(wire.SEND_MESSAGE, ext, b"committed")
        broker.ask(
            END_TRANSACTION,
            {
                "producerGroup": "P", "tranStateTableOffset": sent.ext["queueOffset"],
                "commitLogOffset": int(sent.ext["msgId"][16:], 16), "commitOrRollback": COMMIT,
                "fromTransactionCheck": False, "msgId": "T1", "transactionId": "T1",
            },
        )  # fmt: skip


def send_delayed(address: str) -> None:
    """Two messages that are not delivered before the set has been converted."""
    waiting = {
        b"delayed": f"DELAY\x01{DELAY_LEVEL}\x02",
        b"timed": f"TIMER_DELAY_SEC\x01{DELAY_S}\x02",
    }
    with wire.Connection(address) as broker:
        for body, properties in waiting.items():
            answer = wire.send_message(
                broker, TOPIC, 1, body, keys=body.decode(), default_queues=4,
                properties=properties,
            )  # fmt: skip
            assert answer.code == wire.SUCCESS, answer


def timers(store: Path) -> list[int]:
    """The places in the log that Java's log of timers names."""
    found = []
    for path in sorted((store / "timerlog").glob("[0-9]*")):
        data, at = path.read_bytes(), 0
        while TIMER_UNIT.unpack_from(data, at)[0] == TIMER_UNIT.size:
            found.append(TIMER_UNIT.unpack_from(data, at)[5])
            at += TIMER_UNIT.size
    return found


def in_timer_log(store: Path) -> bool:
    """Whether the message has come so far; then only that file knows when it is due."""
    return bool(timers(store))


def stop_all(brokers: Sequence[JavaBroker]) -> None:
    """End them; a JVM that hangs in its shutdown is killed, as an operator would."""
    for broker in brokers:
        broker.child.terminate(STOPPED_S)


def controller_mode(folder: Path, stores: Sequence[Path], kinds: str) -> Cluster:
    """A set of controller mode on converted stores; ``kinds`` is ``j`` or ``p`` for each broker."""
    cluster = Cluster(folder, "rmqha", brokers=0, broker_settings={**FAST_BROKER, **SMALL})
    for number, (store, kind) in enumerate(zip(stores, kinds, strict=True), 1):
        if kind == "j":
            broker = cluster.add_broker()
        else:
            broker = PythonBroker.of(cluster, number, **SMALL)
            cluster.brokers.append(broker)
        broker.home.mkdir(parents=True, exist_ok=True)
        store.rename(broker.store)
    return cluster


def assert_all_there(cluster: Cluster, producer: Producer, *bodies: bytes) -> None:
    """Messages of before are where they were; what waited comes; a failover loses nothing of it.

    What waited comes at least once: the new master of a failover may deliver it again.
    """
    acked = producer.acked

    def lost() -> list[Any]:
        return missing(acked, read_back(cluster.master().address, TOPIC))

    try:
        wait_until(lambda: not lost(), READY_S, "all messages at the master")
    except WaitTimeout as late:
        gone = lost()
        raise AssertionError(f"{len(gone)} of {len(acked)} are missing: {gone[:3]}") from late
    for broker in cluster.brokers:
        assert not missing(acked, read_commit_log(broker, TOPIC)), broker.child.name
    with Producer(cluster.name_server.address, TOPIC) as more:
        more.wait_for_acks(100)
        before = cluster.controllers.wait_for_master(NAME)
        cluster.broker(before.master_id).child.kill()
        more.wait_for_acks(100)
        cluster.heal()
        assert_nothing_lost(cluster, more, replicas=cluster.brokers)
    assert not lost()

    def found() -> list[bytes]:
        return [*read_back(cluster.master().address, TOPIC).values()]

    wait_until(lambda: {*bodies} <= {*found()}, DELIVERED_S, f"{bodies}")
    assert found().count(b"committed") <= 1


def test_dledger_group_when_converted_then_every_message_is_in_place(tmp_path: Path) -> None:
    """Three nodes, two terms, a leader that died; then a set of both kinds."""
    required.require_classpath()
    ports = [allocate_ports()[0] for _ in range(3)]
    peers = ";".join(f"n{at}-127.0.0.1:{port}" for at, port in enumerate(ports))
    with name_server(tmp_path) as server, ExitStack() as ends:
        brokers = [
            JavaAlone(
                tmp_path / f"dledger{at}", server.address, enableDLegerCommitLog=True,
                dLegerGroup=NAME, dLegerPeers=peers, dLegerSelfId=f"n{at}", **SMALL,
            )
            for at in range(3)
        ]  # fmt: skip
        for broker in brokers:
            ends.callback(broker.child.kill)
            broker.start()
        first = wait_until(lambda: master_of(server, NAME), READY_S, "a leader")
        new_topic(next(one for one in brokers if one.address == first), server.address, TOPIC, 4)
        with Producer(server.address, TOPIC) as producer:
            producer.wait_for_acks(1_500)
            next(one for one in brokers if one.address == first).child.kill()
            wait_until(
                lambda: master_of(server, NAME) not in (None, first), READY_S, "another leader"
            )
            producer.wait_for_acks(2_000)
            second = master_of(server, NAME)
            assert second is not None
            send_transaction(second)
            send_delayed(second)
            producer.stop()
        leader = next(one for one in brokers if one.address == second)
        wait_until(lambda: in_timer_log(leader.store), READY_S, "the timer log")
        stop_all(brokers)
    told = [
        convert(
            "-s", str(one.store), "-o", str(tmp_path / f"new{at}"), "--file-size", str(FILE_SIZE)
        )
        for at, one in enumerate(brokers)
    ]
    ended = [one["last_index"] for one in told]
    new = [tmp_path / f"new{at}" for at in range(3)]
    assert max(one["last_term"] for one in told) > 0
    logs = [[*records(store)] for store in new]
    longest = logs[ended.index(max(ended))]
    for log in logs:
        assert log == longest[: len(log)], "logs of one group differ"
    (half,) = [one for one in longest if one.topic == "RMQ_SYS_TRANS_HALF_TOPIC"]
    (commit,) = [one for one in longest if one.body == b"committed" and one.topic == TOPIC]
    assert commit.prepared_transaction_offset == half.physical_offset
    (timed,) = [one for one in longest if one.topic == "rmq_sys_wheel_timer"]
    assert timers(new[brokers.index(leader)]) == [timed.physical_offset]
    # The last leader comes first: others copy its tables only every ten seconds.
    order = sorted(range(3), key=lambda at: brokers[at] is not leader)
    assert told[order[0]]["topics"] == max(one["topics"] for one in told)
    assert ended[order[0]] == max(ended)
    with controller_mode(tmp_path / "after", [new[at] for at in order], "pjp") as cluster:
        cluster.start()
        assert_all_there(cluster, producer, b"committed", b"delayed", b"timed")


def test_master_and_slave_when_adopted_then_the_slave_copies_nothing_again(tmp_path: Path) -> None:
    """Both logs are of one epoch then, so each is cut and followed by rule."""
    required.require_classpath()
    with name_server(tmp_path) as server, ExitStack() as ends:
        master = JavaAlone(tmp_path / "master", server.address, **SMALL)
        slave = JavaAlone(
            tmp_path / "slave", server.address, **SMALL, brokerRole="SLAVE", brokerId=1
        )
        for broker in (master, slave):
            ends.callback(broker.child.kill)
            broker.start()
        wait_until(lambda: master_of(server, NAME), READY_S, "the master")
        new_topic(master, server.address, TOPIC, 4)
        with Producer(server.address, TOPIC) as producer:
            producer.wait_for_acks(2_000)
            send_delayed(master.address)
            producer.stop()
        wait_until(lambda: in_timer_log(master.store), READY_S, "the timer log")
        copied = lambda: len([*records(slave.store)]) >= len([*records(master.store)])  # noqa: E731
        wait_until(copied, READY_S, "the slave to have all")
        # The slave goes on copying while the master ends.
        stop_all([master, slave])
    told = [convert("-s", str(one.store)) for one in (master, slave)]
    assert told[0]["files"] == told[1]["files"]
    assert sum(one["messages"] for one in told[0]["files"]) > 2_000
    inode = {at: _first_file(one).stat().st_ino for at, one in enumerate((master, slave))}
    stores = [master.store, slave.store]
    with controller_mode(tmp_path / "after", stores, "jp") as cluster:
        cluster.start()
        for at, broker in enumerate(cluster.brokers):
            assert _first_file(broker).stat().st_ino == inode[at], "the log was copied again"
        assert_all_there(cluster, producer, b"delayed", b"timed")


def _first_file(broker: JavaBroker) -> Path:
    return broker.store / "commitlog" / f"{0:020d}"
