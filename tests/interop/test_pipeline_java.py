"""Stores that real Java brokers wrote, read by the pipeline: every message once, as Java has it.

Singles of 100 B to 1 MB, batches, compressed bodies, delays, transactions committed and rolled back,
over several files; ``java/LogPeer.java`` sends and receives them.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rmqha.pipeline import read, session
from rmqha.pipeline.commitlog.batches import Wanted, read_part
from rmqha.pipeline.commitlog.columns import SCHEMA
from rmqha.pipeline.commitlog.splits import plan
from rmqha.pipeline.commitlog.store_folder import open_replica
from rmqha.store import checkpoint, consume_queue
from rmqha.store.record import COMPRESSED
from rmqha.testing.real import wire
from rmqha.testing.real.java import SMALL_JVM, JavaBroker, NameServer
from rmqha.testing.real.processes import allocate_ports, wait_until
from tests.interop import required
from tests.interop.alone import ALONE, BROKER, REGISTERED_S
from tests.interop.peers import java_peer_command

SOURCE = Path(__file__).parent / "java" / "LogPeer.java"
TOPIC = "PipelineInterop"
QUEUES = 4
FILE_SIZE = 4 << 20
PART_BYTES = 1 << 20
PEER_TIMEOUT_S = 120
CHECKPOINT_S = 90
SETTINGS: dict[str, object] = {
    **ALONE,
    "mappedFileSizeCommitLog": FILE_SIZE,
    "mappedFileSizeConsumeQueue": 20 * 50,
    "messageDelayLevel": "1s 2s",
}


class Stored(NamedTuple):
    """A Java broker's store, and what a Java consumer got of the topic."""

    root: Path
    received: list[dict[str, Any]]


@pytest.fixture(scope="module", params=["5.3.3", "5.5.0"])
def stored(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Stored:
    """Written by a broker of one release, which has been stopped."""
    version: str = request.param
    required.require_classpath(version)
    folder = tmp_path_factory.mktemp(f"java-{version}")
    name_server = NameServer(folder / "namesrv", allocate_ports()[0], version)
    name_server.start()
    broker = JavaBroker(
        folder / "broker", allocate_ports(), 1, name_server.address, "",
        broker_name=BROKER, version=version, settings=SETTINGS,
    )  # fmt: skip
    try:
        name_server.wait_ready()
        broker.start()
        broker.wait_ready()
        servers = name_server.address
        with wire.Connection(servers) as connection:
            wait_until(
                lambda: wire.broker_addresses(connection, BROKER, BROKER),
                REGISTERED_S,
                "the broker",
            )
        with wire.Connection(broker.address) as connection:
            wire.create_topic(connection, TOPIC, QUEUES)
        received = send_and_receive(version, folder / "peer", servers)
        assert broker.child.terminate()
        return Stored(broker.store, received)
    finally:
        broker.child.kill()
        name_server.child.kill()


def send_and_receive(version: str, home: Path, servers: str) -> list[dict[str, Any]]:
    """Have Java send everything; what its consumer got."""
    options = ("-Xmx256m", *SMALL_JVM)
    command = java_peer_command(version, home, [servers, TOPIC], options, SOURCE)
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PEER_TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    lines = [line.split("\t") for line in done.stdout.splitlines() if line.startswith("row\t")]
    return [
        {
            "queueId": int(queue), "queueOffset": int(offset), "sha256": digest,
            "bodySize": int(size), "keys": keys, "tags": tags, "bornMs": int(born),
        }
        for _, queue, offset, digest, size, keys, tags, born in lines
    ]  # fmt: skip


def rows(root: Path, wanted: Wanted | None = None) -> list[dict[str, Any]]:
    """Every row, over parts whose edges lie anywhere."""
    return [
        row
        for part in plan(open_replica(str(root)), PART_BYTES)
        for batch in read_part(part, wanted or Wanted())
        for row in batch.to_pylist()
    ]


def as_received(row: dict[str, Any]) -> dict[str, Any]:
    """A row as the consumer would show it: clients decompress bodies."""
    body = zlib.decompress(row["body"]) if row["sysFlag"] & COMPRESSED else row["body"]
    return {
        "queueId": row["queueId"], "queueOffset": row["queueOffset"],
        "sha256": hashlib.sha256(body).hexdigest(), "bodySize": len(body), "keys": row["keys"],
        "tags": row["tags"], "bornMs": round(row["bornTimestamp"].timestamp() * 1000),
    }  # fmt: skip


def units(root: Path) -> Iterator[tuple[str, int, int, int, int]]:
    """Topic, queue, queue offset, place and size of every unit of every consume queue."""
    for path in sorted((root / "consumequeue").glob("*/*/0*")):
        topic, queue_id = path.parts[-3:-1]
        data = memoryview(path.read_bytes())
        for number, (at, size) in enumerate(consume_queue.places(data)):
            if size not in (0, consume_queue.FILLER_SIZE):
                index = int(path.name) // consume_queue.UNIT.size + number
                yield topic, int(queue_id), index, at, size


def in_order(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """By queue and offset."""
    return sorted(found, key=lambda row: (row["queueId"], row["queueOffset"]))


def test_log_when_scanned_then_every_message_once_as_the_consume_queues_say(
    stored: Stored,
) -> None:
    """System topics too: half messages and their ends, delayed ones and what became of them."""
    found = rows(stored.root)
    assert len(list((stored.root / "commitlog").iterdir())) > 2
    assert all(row["_corrupt"] is None and row["crcOk"] for row in found)
    places = [
        (row["topic"], row["queueId"], row["queueOffset"], row["physicalOffset"], row["size"])
        for row in found
    ]
    assert len(set(places)) == len(places)
    assert sorted(places) == sorted(units(stored.root))
    topics = {row["topic"] for row in found}
    assert {TOPIC, "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"} <= topics


def test_topic_when_read_then_what_a_java_consumer_received(stored: Stored) -> None:
    """By a scan, and by the consume queues."""
    scanned = [row for row in rows(stored.root) if row["topic"] == TOPIC]
    assert len(scanned) == len(stored.received)
    assert in_order([as_received(row) for row in scanned]) == in_order(stored.received)
    assert max(row["bodySize"] for row in scanned) == 1_000_000
    assert sum(bool(row["sysFlag"] & COMPRESSED) for row in scanned) == 5
    assert all(row["properties"] for row in scanned)
    assert rows(stored.root, Wanted(topics=frozenset({TOPIC}))) == scanned
    log = read(stored.root, columns=SCHEMA.names, topic=TOPIC, mode="FAILFAST")
    assert log.to_table().to_pylist() == scanned


@pytest.mark.parametrize("stored", ["5.5.0"], indirect=True)
@pytest.mark.filterwarnings("ignore")
def test_store_when_read_by_spark_then_the_same(stored: Stored) -> None:
    """Through a session, of the topic alone."""
    if os.environ.get("CI") != "true":
        pytest.importorskip("pyspark")
    from tests.pipeline.conftest import SMALL

    spark = session("interop", master="local[2]", settings=SMALL)
    try:
        log = spark.read.format("rocketmq-commitlog").option("includeBody", "true")
        found = (
            log.load(str(stored.root))
            .where(f"topic = '{TOPIC}' AND crcOk")
            .selectExpr(
                "queueId", "queueOffset", "sha2(body, 256) sha256", "sysFlag & 1 AS compressed"
            )
        )
        read = {(r.queueId, r.queueOffset): r.sha256 for r in found.collect() if not r.compressed}
        assert found.count() == len(stored.received)
    finally:
        spark.stop()
    expected = {(r["queueId"], r["queueOffset"]): r["sha256"] for r in stored.received}
    assert len(read) == len(expected) - 5
    assert read.items() <= expected.items()


def test_reading_when_a_running_java_broker_has_been_restarted_then_what_it_stored_since_is_there(
    tmp_path: Path,
) -> None:
    """Its checkpoint has the confirm offset of its recovery from then on: half of the log was left out
    without a word. And the next file, which it makes ahead, is no damage."""
    required.require_classpath()
    name_server = NameServer(tmp_path / "namesrv", allocate_ports()[0])
    broker = JavaBroker(
        tmp_path / "broker", allocate_ports(), 1, name_server.address, "",
        broker_name=BROKER, settings=SETTINGS,
    )  # fmt: skip

    def rows() -> tuple[int, int]:
        table = read(str(broker.store), columns=["topic", "_corrupt"]).to_table()
        topics, damage = (table.column(name).to_pylist() for name in ("topic", "_corrupt"))
        return topics.count(TOPIC), len(damage) - damage.count(None)

    try:
        name_server.start()
        name_server.wait_ready()
        for life in (1, 2):
            broker.start()
            broker.wait_ready()
            with wire.Connection(broker.address) as connection:
                wire.create_topic(connection, TOPIC, QUEUES)
                for number in range(20):
                    answer = wire.send_message(
                        connection, TOPIC, 0, b"%d" % number, keys=f"{life}-{number}",
                        default_queues=QUEUES,
                    )  # fmt: skip
                    assert answer.code == 0, answer.remark
            assert rows() == (20 * life, 0)
            if life == 1:
                assert broker.child.terminate()
        kept = broker.store / "checkpoint"
        wait_until(
            lambda: checkpoint.read(kept.read_bytes()).confirm_offset > 0,
            CHECKPOINT_S, "the confirm offset of its recovery in the checkpoint",
        )  # fmt: skip
        assert rows() == (40, 0)
    finally:
        broker.child.kill()
        name_server.child.kill()
