"""904, the request that a controller gets most: its header read straight into numbers.

A busy broker's heartbeats differ in their offsets from beat to beat, so nothing of them can be
kept. One call reads header, ids and offsets; a header that is written in an odd way is read as
leniently as any other.

Source: BrokerHeartbeatRequestHeader, RocketMQ remoting.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from rmqha.remoting import codec_json
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import bool_field, int_field, long_field

PRIORITY_LAST = 2**31 - 1
HEARTBEAT = int(RequestCode.BROKER_HEARTBEAT)
NOBODY = -1

_Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
_Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class Heartbeat(Struct, rename="camel", gc=False):
    """What a broker says of itself.

    Attributes:
        broker_id: its controller id; below 1 it names no broker.
        epoch: of its epoch file, -1 when none or not said.
        max_offset: end of its commit log in bytes, -1 when not said.
        confirm_offset: in bytes, -1 when not said.
        heartbeat_timeout_mills: how long this sign of life lasts; below 1 when not said.
        election_priority: smaller is preferred.
        stalled_ms: for how long it has stood still, or waited for its disk; only brokers of this
            kind say it.
        async_learner: it copies the log and shall never be master; as above.
        write_lease: as master it acknowledges nothing alone for longer than it was promised; as above.
        no_room_ms: for how long its disk has been too full for what a master must do; as above.
        broker_addr: its address, which is all that brokers of 5.0.0 and 5.1.0 say of who they are.
    """

    broker_id: _Int64 = NOBODY
    cluster_name: str = ""
    broker_name: str = ""
    epoch: _Int32 = -1
    max_offset: _Int64 = -1
    confirm_offset: _Int64 = -1
    heartbeat_timeout_mills: _Int64 = 0
    election_priority: _Int32 = PRIORITY_LAST
    stalled_ms: _Int64 = 0
    async_learner: bool = False
    write_lease: bool = False
    broker_addr: str = ""
    no_room_ms: _Int64 = 0

    @classmethod
    def of(cls, ext_fields: Mapping[str, str] | None) -> Heartbeat:
        """Read fields that were parsed before; what is absent or malformed counts as not said."""
        fields = ext_fields or {}
        broker_id = long_field(fields, "brokerId", NOBODY)
        return cls(
            broker_id,
            fields.get("clusterName", ""),
            fields.get("brokerName", ""),
            int_field(fields, "epoch", -1),
            long_field(fields, "maxOffset", -1),
            long_field(fields, "confirmOffset", -1),
            long_field(fields, "heartbeatTimeoutMills", 0),
            int_field(fields, "electionPriority", PRIORITY_LAST),
            long_field(fields, "stalledMs", 0),
            bool_field(fields, "asyncLearner"),
            bool_field(fields, "writeLease"),
            fields.get("brokerAddr", ""),
            long_field(fields, "noRoomMs", 0),
        )


class HeartbeatCommand(
    RemotingCommand,
    rename={"beat": "extFields", "ext_fields": "-", "body": "--", "serialize_type": "---"},
    kw_only=True,
):
    """A 904 whose fields are in ``beat`` instead of ``ext_fields``, which is None."""

    code: _Int32 = 0
    opaque: _Int32 = 0
    flag: _Int32 = 0
    version: _Int32 = 0
    beat: Heartbeat


# Not strict: the fields are numbers in quotes.
_decode = msgspec.json.Decoder(HeartbeatCommand, strict=False).decode


def decode_heartbeat(header: bytes, body: bytes) -> RemotingCommand:
    """Make the command of a header that begins with the code of a heartbeat.

    Numbers in quotes with a fraction or an exponent (``"1e2"``) are taken for numbers, which Java
    passes over; no broker writes such.

    Returns:
        A :class:`HeartbeatCommand`, or, when the header is written in another way than brokers
        write it, what ``codec_json.decode_command`` makes of it. Its body is left out.

    Raises:
        HeaderMalformed: see ``codec_json.decode_command``.
    """
    try:
        command = _decode(header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return codec_json.decode_command(header, body)
    if command.code != HEARTBEAT or command.serialize_type or command.ext_fields is not None:
        return codec_json.decode_command(header, body)
    if command.beat.broker_id < 1:
        # Its address tells who it is.
        return codec_json.decode_command(header, body)
    return command


def beat_of(command: RemotingCommand) -> Heartbeat:
    """What a 904 says, in whatever form it came."""
    return command.beat if type(command) is HeartbeatCommand else Heartbeat.of(command.ext_fields)
