"""What a read of a queue finds where there is nothing yet, or what nobody can be sent."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rmqha.base.errors import ConfigInvalid
from rmqha.broker.pull.request import status_code
from rmqha.remoting.settings import FRAME_BYTES_MAX
from rmqha.store.aio import pulling
from rmqha.store.aio.message_store import MessageStore
from rmqha.store.aio.pulling import Pulled, Pulling
from rmqha.store.consume_queue import SCHEDULE_TOPIC, UNIT, tags_code
from rmqha.store.properties import encode
from rmqha.store.record import HEADROOM, PROPERTIES_MAX, TOPIC_V1_MAX, encoded_size
from rmqha.store.settings import load_settings
from rmqha.store.transfer import ANSWER_HEADER_MAX, MESSAGE_SIZE_MAX, SENT_BYTES_MAX, Transfer
from tests.store.harness import BORN_MS, TOPIC, message, real_store

ALL = Transfer(1 << 30, 99, 1 << 20, 99, 1 << 20)
NOBODY: Any = None


def read(reads: Pulling, offset: int) -> Pulled:
    """Whatever there is from here on."""
    return reads.read(
        TOPIC, 0, offset, None, count_max=99, bytes_max=1 << 20, scan_max=99, transfer=ALL
    )


@pytest.mark.parametrize("dispatched", [0, 3])
def test_read_when_the_queue_is_not_dispatched_to_its_end_then_what_the_log_has_is_no_wrong_offset(
    dispatched: int,
) -> None:
    """Code 21 would send the consumer of a new master back to what it has consumed already."""
    key = (TOPIC.encode(), 0)
    queue = SimpleNamespace(max_offset=dispatched, min_offset=lambda _: 0)
    queues: Any = SimpleNamespace(queues={key: queue} if dispatched else {}, next_offsets={key: 10})
    log: Any = SimpleNamespace(min_offset=0, max_offset=10_000)
    reads = Pulling(log, queues, lambda: 0, NOBODY)
    for offset in range(dispatched, 11):
        found = read(reads, offset)
        assert (status_code(found.status, offset), found.next_offset) == (19, offset)
    assert status_code(read(reads, 11).status, 11) == 21


@pytest.mark.parametrize("is_there", [False, True])
def test_read_when_a_queue_never_had_anything_then_it_is_called_empty(is_there: bool) -> None:
    """The answer says it in Java's word, which tells tools that there is nothing to go on to."""
    queue = SimpleNamespace(max_offset=0, min_offset=lambda _: 0)
    queues: Any = SimpleNamespace(
        queues={(TOPIC.encode(), 0): queue} if is_there else {}, next_offsets={}
    )
    log: Any = SimpleNamespace(min_offset=0, max_offset=0)
    found = read(Pulling(log, queues, lambda: 0, NOBODY), 0)
    assert (found.status, found.next_offset) == ("NO_MESSAGE_IN_QUEUE", 0)


def test_read_when_a_record_fits_into_no_answer_then_it_is_passed_over_and_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was written where longer ones are taken: all behind it in its queue waited for ever."""

    async def play() -> None:
        store = real_store(tmp_path)
        await store.open()
        for body in (b"1", b"x" * 2_000, b"2"):
            end = store.append(message(body=body)).end
        await store.wait_dispatched(end)
        monkeypatch.setattr(pulling, "SENT_BYTES_MAX", 1_000)
        found = read(store.pulling, 0)
        assert (found.messages, found.next_offset) == (2, 3)
        assert b"".join(found.parts).count(b"x" * 99) == 0
        found = read(store.pulling, 1)
        assert (found.messages, found.next_offset, found.starts) == (1, 3, [2])
        monkeypatch.setattr(pulling, "SENT_BYTES_MAX", 10)
        assert read(store.pulling, 0)[:5] == ("NO_MATCHED_MESSAGE", [], 0, 0, 3)
        await store.close()

    asyncio.run(play())
    told = [one for one in capsys.readouterr().out.splitlines() if "record_oversized" in one]
    assert len(told) == 3, "each once, however often it is passed over"


def test_message_when_it_is_as_long_as_any_broker_takes_then_it_fits_into_an_answer() -> None:
    """A stored record that no frame can carry would be a message that nobody ever gets."""
    longest = message(
        topic="T" * TOPIC_V1_MAX, properties=b"k\x01" + b"v" * (PROPERTIES_MAX - 3) + b"\x02",
        body=bytes(MESSAGE_SIZE_MAX), born_host=bytes(20), store_host=bytes(20),
    )  # fmt: skip
    assert encoded_size(longest, property_crc=False) <= MESSAGE_SIZE_MAX + HEADROOM
    assert MESSAGE_SIZE_MAX + HEADROOM <= SENT_BYTES_MAX == FRAME_BYTES_MAX - ANSWER_HEADER_MAX
    taken = load_settings({"maxMessageSize": str(MESSAGE_SIZE_MAX)}, user_home="/")
    assert taken.max_message_size == MESSAGE_SIZE_MAX
    with pytest.raises(ConfigInvalid, match="maxMessageSize=16646145 is not a number from 1"):
        load_settings({"maxMessageSize": str(MESSAGE_SIZE_MAX + 1)}, user_home="/")


def with_addresses(root: Path, numbers: range, topic: str = TOPIC) -> None:
    """The units as a Java broker with ``enableConsumeQueueExt`` writes them: codes are in other files."""
    path = root / "consumequeue" / topic / "0" / f"{0:020}"
    data = bytearray(path.read_bytes())
    for number in numbers:
        offset, size, _ = UNIT.unpack_from(data, number * UNIT.size)
        UNIT.pack_into(data, number * UNIT.size, offset, size, -(1 << 63) + 60 * number)
    path.write_bytes(data)


async def of_java(root: Path, addressed: range) -> MessageStore:
    """A store of six messages, of which each second has a tag; of some the units have no hash."""
    store = real_store(root)
    await store.open()
    for number in range(6):
        properties = encode({"TAGS": "even"} if number % 2 == 0 else {})
        store.append(message(body=b"%d" % number, properties=properties))
    await store.wait_dispatched(store.max_offset)
    await store.close()
    with_addresses(root, addressed)
    store = real_store(root)
    await store.open()
    return store


@pytest.mark.parametrize("addressed", [range(6), range(3), range(3, 6), range(0)])
async def test_read_when_units_are_of_a_java_broker_with_ext_files_then_tags_are_found(
    tmp_path: Path, addressed: range
) -> None:
    """The codes were taken for hashes of other tags: no old message was delivered, without a word."""
    store = await of_java(tmp_path, addressed)

    def wanted(tag: bytes, number: bytes = b"", count_max: int = 99) -> Pulled:
        return store.pulling.read(
            TOPIC, 0, 0, frozenset([tags_code(tag)]), count_max=count_max, bytes_max=1 << 20,
            scan_max=99, transfer=ALL, matches=(lambda view: number in bytes(view)) if number else None,
        )  # fmt: skip

    found = wanted(b"even")
    assert (found.messages, found.starts, found.next_offset) == (3, [0, 2, 4], 6)
    assert wanted(b"even", count_max=2).next_offset in (3, 4)
    assert wanted(b"odd")[:5] == ("NO_MATCHED_MESSAGE", [], 0, 0, 6)
    assert wanted(b"even", number=TOPIC.encode()).starts == [0, 2, 4]
    assert wanted(b"even", number=b"nothing").status == "NO_MATCHED_MESSAGE"
    for number in range(6):
        unit = store.reader.unit(TOPIC, 0, number)
        assert unit is not None
        assert unit.tags_code == (tags_code(b"even") if number % 2 == 0 else 0)
    await store.close()


async def test_delayed_message_when_its_unit_is_of_such_a_broker_then_it_says_when_it_is_due(
    tmp_path: Path,
) -> None:
    """An address is a time long past: it would be delivered at once."""
    topic = SCHEDULE_TOPIC.decode()
    store = real_store(tmp_path)
    await store.open()
    store.append(message(topic=topic, properties=encode({"DELAY": "2"})))
    await store.wait_dispatched(store.max_offset)
    due = store.reader.unit(topic, 0, 0)
    assert due is not None
    assert due.tags_code > BORN_MS
    await store.close()
    with_addresses(tmp_path, range(1), topic)
    again = real_store(tmp_path)
    await again.open()
    assert again.reader.unit(topic, 0, 0) == due
    await again.close()


async def test_read_when_records_without_a_hash_are_many_then_some_are_looked_at_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer asks on; nobody else waits for all of them."""
    store = await of_java(tmp_path, range(6))
    monkeypatch.setattr(pulling, "LOOKS_MAX", 2)
    at = 0
    for after, count in ((2, 1), (4, 1), (6, 1)):
        found = store.pulling.read(
            TOPIC, 0, at, frozenset([tags_code(b"even")]), count_max=9, bytes_max=1 << 20,
            scan_max=99, transfer=ALL,
        )  # fmt: skip
        assert (found.next_offset, found.messages) == (after, count)
        at = after
    await store.close()


async def test_read_when_a_record_without_a_hash_is_damaged_then_it_is_not_passed_over(
    tmp_path: Path,
) -> None:
    """Nobody knows what it was: the consumer waits for it, as for any damaged message."""
    store = await of_java(tmp_path, range(6))
    unit = store.reader.unit(TOPIC, 0, 2)
    assert unit is not None
    store.commit_log.write(unit.physical_offset + 4, memoryview(b"torn"))
    found = store.pulling.read(
        TOPIC, 0, 1, frozenset([tags_code(b"other")]), count_max=9, bytes_max=1 << 20,
        scan_max=99, transfer=ALL,
    )  # fmt: skip
    assert found.starts == [2]
    assert store.pulling.whole(found).status == "MESSAGE_DAMAGED"
    assert store.reader.unit(TOPIC, 0, 2) is not None
    await store.close()
