"""Records of rare kinds between Java's own store and ours, both ways.

Client batches, inner batches in batch consume queues, topics longer than 127 characters (V2), IPv6
hosts; ``java/StoreSample.java`` is Java's side.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rmqha.runtime.aio.clock import SystemClock
from rmqha.runtime.aio.disk import SystemDisk
from rmqha.runtime.logs import Logger
from rmqha.store import properties as props
from rmqha.store.aio.message_store import MessageStore
from rmqha.store.record import INNER_BATCH, MAGIC_V2, Message, Record, decode, pack_host
from rmqha.store.settings import StoreSettings
from rmqha.testing.real import maven
from rmqha.testing.real.java import java_command
from tests.interop import required

SOURCE = Path(__file__).parent / "java" / "StoreSample.java"
FILE_SIZE = 1 << 16
BATCH, INNER, LONG = "client-batch", "inner-batch", "L" * 200
ROUNDS, MEMBERS = 40, 3
PROGRAM_TIMEOUT_S = 150
Row = tuple[str, int, int, bytes]
"""Topic, queue offset, physical offset, body: what a reader is shown of one stored record."""


def run_java(version: str, folder: Path, phase: str) -> list[Row]:
    """Have Java write or read the store at ``folder / "store"``; all that it reads."""
    jars = required.require_classpath(version)
    javac = Path(maven.java()).resolve().with_name("javac")
    command = [javac, "-nowarn", "-cp", jars, "-d", folder, SOURCE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    args = [phase, str(folder / "store"), str(FILE_SIZE), LONG]
    line = java_command(version, folder / "home", "StoreSample", args, ("-Xmx256m",))
    at = line.index("-cp") + 1
    line[at] = f"{folder}:{line[at]}"
    done = subprocess.run(
        line, capture_output=True, text=True, timeout=PROGRAM_TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    parts = [text.split("\t") for text in done.stdout.splitlines() if text.count("\t") == 3]
    return [(p[0], int(p[1]), int(p[2]), bytes.fromhex(p[3])) for p in parts]


def our_store(folder: Path) -> MessageStore:
    root = folder / "store"
    settings = StoreSettings(str(root), str(root / "commitlog"), FILE_SIZE)
    return MessageStore(SystemClock(), SystemDisk(), settings, Logger(node="samples"))


def read_all(store: MessageStore) -> tuple[list[Row], list[Record]]:
    """Every record through its queue, in the order of Java's program."""
    rows, records = [], []
    for topic in (BATCH, INNER, LONG):
        offset = 0
        while offset < store.reader.max_offset(topic, 0):
            found = store.reader.get(topic, 0, offset, count_max=32, bytes_max=1 << 20)
            for view in found.records:
                record = store.reader.look(int.from_bytes(view[28:36]))
                assert record is not None
                records.append(record)
                rows.append((topic, record.queue_offset, record.physical_offset, record.body))
            assert found.next_begin_offset > offset
            offset = found.next_begin_offset
    return rows, records


def packed(topic: str, number: int) -> bytes:
    """A client's batch, framed as clients frame it."""
    body = b""
    for member in range(MEMBERS):
        text = f"{topic}-{number}-{member}".encode()
        size = 22 + len(text)
        body += b"".join(n.to_bytes(4) for n in (size, 0, 0, 0, len(text))) + text + bytes(2)
    return body


def write_ours(store: MessageStore) -> None:
    """The same kinds of records by our store."""
    host, wide = pack_host("127.0.0.1", 1234), pack_host("2001:db8::1", 1234)
    keys = props.encode({"KEYS": "ours"})
    inner = props.encode({"INNER_NUM": str(MEMBERS)})
    for number in range(ROUNDS):
        born = 1_700_000_000_000 + number
        store.append_batch(Message(BATCH, 0, packed(BATCH, number), keys, born, host, host))
        body = packed(INNER, number)
        store.append(Message(INNER, 0, body, inner, born, host, host, INNER_BATCH | 0x40))
        born_host = wide if number % 2 else host
        store.append(Message(LONG, 0, b"wide-%d" % number, keys, born, born_host, host))


@pytest.mark.parametrize("version", maven.VERSIONS)
async def test_rare_records_change_hands_both_ways(tmp_path: Path, version: str) -> None:
    """Java writes, we read; we write behind it, Java reads all of it."""
    written = run_java(version, tmp_path, "write")
    assert len(written) == ROUNDS * (MEMBERS + 2)
    store = our_store(tmp_path)
    assert (await store.open()).clean
    rows, records = read_all(store)
    assert rows == written
    assert {r.magic == MAGIC_V2 for r in records if r.topic == LONG} == {True}
    assert {r.magic == MAGIC_V2 for r in records if r.topic != LONG} == {False}
    assert sum(len(r.born_host) == 20 for r in records) == ROUNDS // 2
    assert store.reader.max_offset(INNER, 0) == ROUNDS * MEMBERS
    assert {r.property_map()["INNER_BASE"] for r in records if r.topic == INNER} == {
        str(MEMBERS * number) for number in range(ROUNDS)
    }
    write_ours(store)
    await store.wait_dispatched(store.max_offset)
    rows, _ = read_all(store)
    assert len(rows) == 2 * len(written)
    buffer, head = store.commit_log.check(0)
    assert decode(buffer, head).topic == BATCH
    await store.close()
    assert run_java(version, tmp_path, "read") == rows
