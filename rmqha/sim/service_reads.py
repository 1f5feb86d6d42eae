"""What clients of a broker's services are given: messages, and what acknowledges those of a pop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple
from zlib import crc32

from rmqha.base.invariants import invariant
from rmqha.broker.aio.replica import BrokerReplica
from rmqha.broker.pop.request import PopKey, encode_key
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.store.consume_queue import tags_code
from rmqha.store.record import Record, check_record, decode
from rmqha.verify.deliveries import Delivered, check_properties

SERVED, POPPED, ORDERED = "Served", "Popped", "Ordered"
POP_GROUP, ORDER_GROUP, PRODUCERS = "PopGroup", "OrderGroup", "PG"
TAGS = 3


class Popped(NamedTuple):
    """A message that was handed out."""

    body: bytes
    fields: dict[str, str]
    """Of its acknowledgement."""

    @property
    def pop_ms(self) -> int:
        """The broker's wall clock when it was handed out."""
        return int(self.fields["extraInfo"].split(" ")[1])

    @property
    def visible_ms(self) -> int:
        """Wall clock: from when on others may get it."""
        _, pop_ms, invisible_ms, *_ = self.fields["extraInfo"].split(" ")
        return int(pop_ms) + int(invisible_ms)


def properties_of(body: bytes, *, marked: bool) -> dict[str, str]:
    """What a message is sent with: it follows from its body, so whoever reads it can tell.

    Args:
        marked: with key, tag and a property of its own; else with a name only, as stories were before.
    """
    text = body.decode()
    if not marked:
        return {"UNIQ_KEY": text}
    return {
        "UNIQ_KEY": text, "KEYS": f"key{text}", "TAGS": f"tag{crc32(body) % TAGS}", "own": text[::-1]
    }  # fmt: skip


def check_sent(record: Record, *, marked: bool) -> None:
    """A message has key, tag and property of whoever sent it; raises InvariantBroken."""
    body = bytes(record.body)
    check_properties(body, properties_of(body, marked=marked), record.property_map())


class Stored(NamedTuple):
    """A copy of a message where consumers read."""

    record: Record
    tags_code: int
    """Of its queue: by it consumers of a tag are served."""

    def check(self, *, marked: bool) -> None:
        """It is found as it was sent; raises InvariantBroken."""
        check_sent(self.record, marked=marked)
        body = bytes(self.record.body)
        wanted = tags_code(properties_of(body, marked=marked).get("TAGS", "").encode())
        invariant(
            self.tags_code == wanted, "a message is in its queue with another tag",
            body=body, found=self.tags_code, wanted=wanted,
        )  # fmt: skip

    def delivered(self, firsts: Mapping[bytes, int]) -> Delivered:
        """Which message, and where; ``firsts`` says where each is first in the log."""
        body = bytes(self.record.body)
        return Delivered(body, self.record.physical_offset, firsts[body])


def stored_in(master: BrokerReplica, topic: str) -> Iterator[Stored]:
    """All messages of a topic's first queue."""
    reader = master.store.reader
    for at in range(reader.min_offset(topic, 0), reader.max_offset(topic, 0)):
        unit = reader.unit(topic, 0, at)
        record = None if unit is None else reader.look(unit.physical_offset)
        if unit is not None and record is not None:
            yield Stored(record, unit.tags_code)


async def first_stored(master: BrokerReplica) -> dict[bytes, int]:
    """When each message that consumers can read was stored first."""
    found: dict[bytes, int] = {}
    for one in stored_in(master, SERVED):
        found.setdefault(bytes(one.record.body), one.record.store_timestamp)
    return found


def records_of(body: bytes) -> Iterator[Record]:
    """The messages of an answer."""
    at, view = 0, memoryview(body)
    while at < len(view):
        offset = int.from_bytes(view[at + 28 : at + 36])
        head = check_record(view, at, len(view), offset, check_crc=True)
        invariant(head.size > 0, "a broker hands out what is no record", reason=head.reason)
        yield decode(view, head)
        at += head.size


def popped(answer: RemotingCommand, name: str, *, marked: bool) -> Iterator[Popped]:
    """The messages of a pop, with what acknowledges each, as Java's client makes it."""
    got = answer.ext_fields or {}
    if answer.code != ResponseCode.SUCCESS:
        return
    starts: dict[tuple[str, str], int] = {}
    for one in got["startOffsetInfo"].split(";"):
        mark, queue, start = one.split(" ")
        starts[mark, queue] = int(start)
    for record in records_of(bytes(answer.body)):
        key = record.property_map().get("POP_CK") or encode_key(
            PopKey(
                starts["0", str(record.queue_id)], int(got["popTime"]), int(got["invisibleTime"]),
                int(got["reviveQid"]), "0", name, record.queue_id, record.queue_offset,
            )
        )  # fmt: skip
        retry = key.split(" ")[4] == "1"
        fields = {
            "consumerGroup": POP_GROUP, "queueId": str(record.queue_id),
            "topic": f"%RETRY%{POP_GROUP}_{POPPED}" if retry else POPPED,
            "offset": str(record.queue_offset), "extraInfo": key,
        }  # fmt: skip
        check_sent(record, marked=marked)
        yield Popped(bytes(record.body), fields)
