"""Stored messages as brokers hand them out (12, 33, 11), and how the Java tool shows one.

Source: MessageDecoder and QueryMsgByIdSubCommand, RocketMQ 5.3.3; the record is the store's.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from rmqha.admin.java_text import PROPERTIES_BUCKETS, bytes_text, map_text, null, time_of
from rmqha.base.errors import RemoteProtocolError
from rmqha.remoting.address import format_address
from rmqha.store import properties as props
from rmqha.store import record
from rmqha.store.compression import Inflater

BODY_FOLDER = "/tmp/rocketmq/msgbodys"

_PHYSICAL_OFFSET_AT = slice(28, 36)

_FILE_NAME = re.compile(r"[0-9A-Za-z_-]{1,255}")


class StoredMessage(Struct, frozen=True):
    """One message of the store, as commands show it.

    Attributes:
        stored: the record.
        properties: its properties, and what a pull adds to them.
        body: decompressed where that is possible.
        sys_flag: without the mark of a compression that was undone.
        broker_name: where it was pulled from, else None.
    """

    stored: record.Record
    properties: Mapping[str, str]
    body: bytes
    sys_flag: int
    broker_name: str | None = None

    @property
    def offset_message_id(self) -> str:
        """Where it is stored."""
        return self.stored.message_id

    @property
    def message_id(self) -> str:
        """The producer's id, else where it is stored."""
        return self.properties.get(props.UNIQ_KEY) or self.offset_message_id

    @property
    def keys(self) -> str | None:
        """The keys, separated by blanks."""
        return self.properties.get(props.KEYS)

    @property
    def tags(self) -> str | None:
        """The text of the message's tag."""
        return self.properties.get(props.TAGS)

    @property
    def store_address(self) -> str:
        """The broker that stored it first."""
        return format_address(*record.unpack_host(self.stored.store_host))

    @property
    def born_address(self) -> str:
        """The producer's connection."""
        return format_address(*record.unpack_host(self.stored.born_host))

    @property
    def body_path(self) -> str:
        """Where its body is written; an id that is no plain word names no file of its own."""
        known = _FILE_NAME.fullmatch(self.message_id)
        return f"{BODY_FOLDER}/{self.message_id if known else self.offset_message_id}"

    def pulled(
        self, broker_name: str, queue_id: int, delta: int, min_offset: str, max_offset: str
    ) -> StoredMessage:
        """The message as a Java client sees one that it pulled.

        Args:
            queue_id: of a logical queue; the record has the number of the physical one.
            delta: how much further the logical queue's offset is than the physical one's.
        """
        more = {**self.properties, "MIN_OFFSET": min_offset, "MAX_OFFSET": max_offset}
        offset = self.stored.queue_offset + delta
        stored = self.stored._replace(queue_id=queue_id, queue_offset=offset)
        return replace(self, stored=stored, properties=more, broker_name=broker_name)

    def data(self) -> dict[str, object]:
        """Its facts for ``--json``; a body that is not UTF-8 comes as base64."""
        stored = self.stored
        try:
            body = {"body": self.body.decode()}
        except UnicodeDecodeError:
            body = {"bodyBase64": base64.b64encode(self.body).decode()}
        return {
            "msgId": self.message_id, "offsetMsgId": self.offset_message_id,
            "topic": stored.topic, "tags": self.tags, "keys": self.keys,
            "queueId": stored.queue_id, "queueOffset": stored.queue_offset,
            "commitLogOffset": stored.physical_offset, "reconsumeTimes": stored.reconsume_times,
            "bornTimestamp": stored.born_timestamp, "storeTimestamp": stored.store_timestamp,
            "bornHost": self.born_address, "storeHost": self.store_address,
            "sysFlag": self.sys_flag, "properties": dict(self.properties), **body,
        }  # fmt: skip

    def lines(self, body_path: str) -> list[tuple[str, str]]:
        """Labels and values, as the Java tool lists them; the first is where it is stored."""
        stored = self.stored
        return [
            ("OffsetID:", self.offset_message_id),
            ("Topic:", stored.topic),
            ("Tags:", f"[{null(self.tags)}]"),
            ("Keys:", f"[{null(self.keys)}]"),
            ("Queue ID:", str(stored.queue_id)),
            ("Queue Offset:", str(stored.queue_offset)),
            ("CommitLog Offset:", str(stored.physical_offset)),
            ("Reconsume Times:", str(stored.reconsume_times)),
            ("Born Timestamp:", time_of(stored.born_timestamp)),
            ("Store Timestamp:", time_of(stored.store_timestamp)),
            ("Born Host:", self.born_address),
            ("Store Host:", self.store_address),
            ("System Flag:", str(self.sys_flag)),
            ("Properties:", map_text(self.properties, PROPERTIES_BUCKETS)),
            ("Message Body Path:", body_path),
        ]

    def java_text(self) -> str:
        """The message as one Java text, which consumeMessage prints."""
        stored = self.stored
        prepared = self.properties.get("TRAN_MSG", "").lower() == "true"
        transaction = self.properties.get(props.UNIQ_KEY) if prepared else None
        message = (
            f"Message{{topic='{stored.topic}', flag={stored.flag}, "
            f"properties={map_text(self.properties, PROPERTIES_BUCKETS)}, "
            f"body={bytes_text(self.body)}, transactionId='{null(transaction)}'}}"
        )
        return (
            f"MessageExt [brokerName={null(self.broker_name)}, queueId={stored.queue_id}, "
            f"storeSize={stored.size}, queueOffset={stored.queue_offset}, sysFlag={self.sys_flag}, "
            f"bornTimestamp={stored.born_timestamp}, bornHost=/{self.born_address}, "
            f"storeTimestamp={stored.store_timestamp}, storeHost=/{self.store_address}, "
            f"msgId={self.offset_message_id}, commitLogOffset={stored.physical_offset}, "
            f"bodyCRC={stored.body_crc}, reconsumeTimes={stored.reconsume_times}, "
            f"preparedTransactionOffset={stored.prepared_transaction_offset}, "
            f"toString()={message}]"
        )


def decode_messages(body: bytes) -> list[StoredMessage]:
    """Read records that stand back to back.

    Raises:
        RemoteProtocolError: one of them is damaged or cut off.
    """
    view, found, position = memoryview(body), [], 0
    inflater = Inflater()
    while position < len(view):
        here = view[position:]
        offset = int.from_bytes(here[_PHYSICAL_OFFSET_AT], signed=True)
        head = record.check_record(view, position, len(view), offset, check_crc=False)
        if head.size <= 0:
            raise RemoteProtocolError(f"a message cannot be read: {head.reason or 'a blank'}")
        stored = record.decode(view, head)
        found.append(_message(stored, inflater))
        position += head.size
    return found


def _message(stored: record.Record, inflater: Inflater) -> StoredMessage:
    body, flag = stored.body, stored.sys_flag
    plain = inflater.plain_body(body, flag)
    if plain is not None:
        body, flag = plain, flag & ~record.COMPRESSED
    return StoredMessage(stored, stored.property_map(), body, flag)


def parse_offset_id(text: str) -> tuple[str, int] | None:
    """The address and physical offset in an offset message id; None for any other text."""
    if len(text) not in {32, 56}:
        return None
    try:
        packed = bytes.fromhex(text)
    except ValueError:
        return None
    if len(packed) * 2 != len(text):
        return None
    host, port = record.unpack_host(packed[:-8])
    offset = int.from_bytes(packed[-8:], signed=True)
    if not 0 < port <= 65_535 or offset < 0:
        return None
    return format_address(host, port), offset
