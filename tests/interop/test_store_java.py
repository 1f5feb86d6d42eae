"""Store directories change hands between real Java brokers and ours, both ways."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqha.runtime.aio.clock import SystemClock
from rmqha.runtime.aio.disk import SystemDisk
from rmqha.runtime.logs import Logger
from rmqha.store import properties as props
from rmqha.store.aio.message_store import MessageStore
from rmqha.store.record import Message, decode, pack_host
from rmqha.store.settings import StoreSettings
from rmqha.testing.real import wire
from rmqha.testing.real.java import JavaBroker, NameServer
from rmqha.testing.real.maven import VERSIONS
from rmqha.testing.real.processes import allocate_ports, wait_until
from tests.interop import required

FILE_SIZE = 1 << 20
QUEUES = 4
COUNT = 1_500
HASH_SLOTS = 1_000
INDEX_UNITS = 1_000
TOPIC = "StoreInterop"
QUERY_NOT_FOUND = 22
SOLO = {
    "enableControllerMode": False,
    "brokerRole": "ASYNC_MASTER",
    "brokerId": 0,
    "mappedFileSizeCommitLog": FILE_SIZE,
    "mappedFileSizeConsumeQueue": 20 * 200,
    "messageIndexEnable": True,
    "maxHashSlotNum": HASH_SLOTS,
    "maxIndexNum": INDEX_UNITS,
}


@pytest.fixture(params=VERSIONS)
def broker(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[JavaBroker]:
    """A Java broker without controllers, not yet started, and its name server."""
    version: str = request.param
    required.require_classpath(version)
    name_server = NameServer(tmp_path / "namesrv", allocate_ports()[0], version)
    name_server.start()
    java = JavaBroker(
        tmp_path / "broker", allocate_ports(), 1, name_server.address, "",
        version=version, settings=SOLO,
    )  # fmt: skip
    try:
        name_server.wait_ready()
        yield java
    finally:
        java.child.kill()
        name_server.child.kill()


def our_store(root: Path) -> MessageStore:
    """Our store over the same directory, with the broker's file sizes."""
    settings = StoreSettings(
        str(root), str(root / "commitlog"), FILE_SIZE, 20 * 200, max_hash_slot_num=HASH_SLOTS,
        max_index_num=INDEX_UNITS, message_index_enable=True,
    )  # fmt: skip
    return MessageStore(SystemClock(), SystemDisk(), settings, Logger(node="interop"))


def query(connection: wire.Connection, key: str) -> wire.Answer:
    """Ask a broker for messages by key (12)."""
    fields = {
        "topic": TOPIC, "key": key, "maxNum": "32", "beginTimestamp": "0",
        "endTimestamp": str(1 << 62),
    }  # fmt: skip
    return connection.invoke(12, fields)


def body_of(number: int) -> bytes:
    return b"%06d-" % number + bytes(number * 37 % 4_000)


def send_all(broker: JavaBroker) -> dict[tuple[int, int], bytes]:
    """Send messages of many sizes; (queue, offset) to body."""
    sent: dict[tuple[int, int], bytes] = {}
    with wire.Connection(broker.address, 10.0) as connection:
        wire.create_topic(connection, TOPIC, QUEUES)
        for number in range(COUNT):
            queue = number % QUEUES
            answer = wire.send_message(
                connection, TOPIC, queue, body_of(number), keys=f"k{number}", default_queues=QUEUES
            )
            assert answer.code == wire.SUCCESS, answer
            sent[(queue, int(answer.ext["queueOffset"]))] = body_of(number)
    return sent


def read_through_queues(store: MessageStore) -> dict[tuple[int, int], bytes]:
    """Our reader's view of the topic."""
    found: dict[tuple[int, int], bytes] = {}
    for queue in range(QUEUES):
        offset = 0
        while True:
            result = store.reader.get(TOPIC, queue, offset, count_max=64, bytes_max=1 << 20)
            if not result.records:
                break
            for number, view in enumerate(result.records):
                record = store.reader.look(int.from_bytes(view[28:36]))
                assert record is not None
                assert record.queue_offset == offset + number
                found[(queue, record.queue_offset)] = record.body
            offset = result.next_begin_offset
    return found


def queue_files(root: Path) -> dict[str, bytes]:
    """Every consume-queue file of the topic that holds a unit."""
    folder = root / "consumequeue" / TOPIC
    files = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("0*") if p.is_file()}
    return {name: data for name, data in files.items() if any(data)}


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
async def test_a_directory_of_java_opens_here(broker: JavaBroker, clean: bool) -> None:
    """All messages are there, and our own dispatcher builds Java's queue files to the byte."""
    broker.start()
    broker.wait_ready()
    sent = send_all(broker)
    with wire.Connection(broker.address, 10.0) as connection:
        wait_until(
            lambda: sum(len(wire.pull_queue(connection, TOPIC, q)) for q in range(QUEUES)) == COUNT,
            30.0, "Java's own queues",
        )  # fmt: skip
    if clean:
        assert broker.child.terminate()
    else:
        broker.child.kill()
    java_queues = queue_files(broker.store)
    assert len(java_queues) == -(-COUNT // QUEUES // 200) * QUEUES
    shutil.rmtree(broker.store / "consumequeue")
    store = our_store(broker.store)
    found = await store.open()
    assert found.clean == clean
    assert found.records >= COUNT if not clean else found.records > 0
    await store.wait_dispatched(store.max_offset)
    assert read_through_queues(store) == sent
    if clean:
        # Java's index of every key; the index of a killed broker is not trusted.
        for number in range(0, COUNT, 97):
            by_key = store.reader.query(TOPIC, f"k{number}", begin_ms=0, end_ms=1 << 62, limit=8)
            assert [record.body for record in by_key] == [body_of(number)]
        assert not store.reader.query(TOPIC, "none", begin_ms=0, end_ms=1 << 62, limit=8)
    await store.close()
    assert queue_files(broker.store) == java_queues


async def test_a_directory_of_ours_opens_in_java_and_comes_back(broker: JavaBroker) -> None:
    """Java reads every message, goes on where we ended, and we go on where Java ended."""
    store = our_store(broker.store)
    await store.open()
    written: dict[tuple[int, int], bytes] = {}
    hosts = [pack_host("127.0.0.1", 1234), pack_host("2001:db8::1", 1234)]
    for number in range(COUNT):
        properties = props.encode({"TAGS": f"t{number % 3}", "KEYS": f"k{number}"})
        message = Message(
            TOPIC, number % QUEUES, body_of(number), properties, 1_700_000_000_000 + number,
            hosts[number % 2], hosts[number // 2 % 2],
        )  # fmt: skip
        result = store.append(message)
        written[(number % QUEUES, result.queue_offset)] = message.body
    await store.wait_dispatched(store.max_offset)
    await store.close()
    broker.start()
    broker.wait_ready()
    with wire.Connection(broker.address, 10.0) as connection:
        wire.create_topic(connection, TOPIC, QUEUES)
        pulled = {
            (m.queue_id, m.queue_offset): m.body
            for queue in range(QUEUES)
            for m in wire.pull_queue(connection, TOPIC, queue)
        }
        assert pulled == written
        for number in range(0, COUNT, 131):
            assert body_of(number) in query(connection, f"k{number}").body
        assert query(connection, "none").code == QUERY_NOT_FOUND
        answer = wire.send_message(
            connection, TOPIC, 0, b"from java", keys="x", default_queues=QUEUES
        )
        assert int(answer.ext["queueOffset"]) == -(-COUNT // QUEUES)
        written[(0, int(answer.ext["queueOffset"]))] = b"from java"
    assert broker.child.terminate()
    again = our_store(broker.store)
    assert (await again.open()).clean
    await again.wait_dispatched(again.max_offset)
    assert read_through_queues(again) == written
    for key, body in (("x", b"from java"), ("k0", body_of(0)), ("k1400", body_of(1_400))):
        by_key = again.reader.query(TOPIC, key, begin_ms=0, end_ms=1 << 62, limit=8)
        assert [record.body for record in by_key] == [body]
    buffer, head = again.commit_log.check(0)
    assert decode(buffer, head).property_map()["KEYS"] == "k0"
    await again.close()
