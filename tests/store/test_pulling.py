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
from rmqha.store.aio.pulling import Pulled, Pulling
from rmqha.store.record import HEADROOM, PROPERTIES_MAX, TOPIC_V1_MAX, encoded_size
from rmqha.store.settings import load_settings
from rmqha.store.transfer import ANSWER_HEADER_MAX, MESSAGE_SIZE_MAX, SENT_BYTES_MAX, Transfer
from tests.store.harness import TOPIC, message, real_store

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
