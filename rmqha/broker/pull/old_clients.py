"""Pulls of clients that know no static topics: they take queue and offset from each record.

Clients of 5.x add the answer's ``offsetDelta`` and know from their question which queue it is about.
For the others both are written into the records: their places in the layout are fixed, and no check
sum of a client covers them.

Source: MessageDecoder and PullAPIWrapper of RocketMQ 4.9 and 5; the layout is ``store.layout.RECORD``.
"""

from __future__ import annotations

import struct

from rmqha.base.errors import RemoteProtocolError
from rmqha.base.ids import MASTER_ID
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import long_field
from rmqha.store.record import MIN_SIZE

_SIZE = struct.Struct(">i")
_QUEUE_ID = struct.Struct(">i")
_QUEUE_OFFSET = struct.Struct(">q")
_QUEUE_ID_AT, _QUEUE_OFFSET_AT = 12, 20


def logical_records(records: bytes | bytearray, queue_id: int, delta: int) -> bytes:
    """Records of a physical queue as those of a logical one.

    Args:
        delta: what is added to their offsets.

    Raises:
        RemoteProtocolError: these are no whole records.
    """
    found, at, end = bytearray(records), 0, len(records)
    while at < end:
        size = _SIZE.unpack_from(found, at)[0] if at + MIN_SIZE <= end else 0
        if size < MIN_SIZE or at + size > end:
            raise RemoteProtocolError(f"no whole record at {at} of {end} bytes")
        _QUEUE_ID.pack_into(found, at + _QUEUE_ID_AT, queue_id)
        offset_at = at + _QUEUE_OFFSET_AT
        _QUEUE_OFFSET.pack_into(
            found, offset_at, _QUEUE_OFFSET.unpack_from(found, offset_at)[0] + delta
        )
        at += size
    return bytes(found)


def answer_of_leader(answer: RemotingCommand, queue_id: int) -> RemotingCommand:
    """Another set's answer to a pull from a logical queue, for a client that knows none.

    It goes on asking this set: the replica that the other one suggests is not one of this set's.

    Raises:
        RemoteProtocolError: messages came without ``offsetDelta``: the other set does not know the
            topic as a static one, and its offsets are those of a physical queue.
    """
    fields = dict(answer.ext_fields or {})
    if "suggestWhichBrokerId" in fields:
        fields["suggestWhichBrokerId"] = str(MASTER_ID)
    if answer.code != ResponseCode.SUCCESS:
        return answer.reply(answer.code, answer.remark, fields, answer.body)
    delta = long_field(fields, "offsetDelta", None)
    if delta is None:
        raise RemoteProtocolError("the leader of a logical queue has answered physical offsets")
    body = logical_records(answer.body, queue_id, delta)
    return answer.reply(answer.code, answer.remark, fields, body)
