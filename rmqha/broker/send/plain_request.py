"""The request that nearly every message comes with, read in one go.

Request 310 with all members of the types that clients give them: msgspec reads its header into
:class:`SendFields` without a dictionary between. Any other header is read as all are.

Source: SendMessageRequestHeaderV2 of RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from rmqha.broker.logical.place import FORWARDED_FIELD
from rmqha.remoting import codec_json
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.command import RemotingCommand

START = b'{"code":310,'
"""How the header of a Java or Go client's message begins."""

_Int32 = Annotated[int, Meta(ge=codec_json.INT32_MIN, le=codec_json.INT32_MAX)]
_SEND_MESSAGE_V2 = int(RequestCode.SEND_MESSAGE_V2)


class SendFields(Struct, gc=False):
    """The fields under their names on the wire; see ``send.SendRequest`` for what they mean."""

    b: str
    c: str
    d: str
    e: str
    f: str
    g: str
    h: str
    i: str = ""
    a: str = ""
    j: str = "0"
    k: str = "false"
    l: str | None = None  # noqa: E741 - the name on the wire
    m: str = "false"
    lo: str | None = None
    rmqhaForwarded: str | None = None  # noqa: N815 - the name on the wire

    def members(self) -> dict[str, str]:
        """As the header had them; what was absent has its default, which means the same."""
        named: dict[str, str] = msgspec.structs.asdict(self)
        for name in ("l", "lo", FORWARDED_FIELD):
            if named[name] is None:
                del named[name]
        return named


class PlainSend(RemotingCommand):
    """Such a request. Its ``ext_fields`` are in ``sent`` until somebody calls :meth:`general`.

    Attributes:
        sent: the fields.
    """

    sent: SendFields | None = None

    def general(self) -> None:
        """Become like any other request."""
        if self.sent is not None:
            self.ext_fields = self.sent.members()


Decode = Callable[[bytes, bytes], RemotingCommand]


def message_decoder(fields: type[SendFields]) -> Decode:
    """What makes the command of a JSON header and of the body of a message.

    Args:
        fields: what the quick way reads; a header with others is read as all are.

    Returns:
        A function that raises HeaderMalformed as ``codec_json.decode_command``.
    """
    header_type = msgspec.defstruct(
        "Header",
        [
            ("code", _Int32), ("sent", fields), ("opaque", _Int32, 0), ("flag", _Int32, 0),
            ("version", _Int32, 0),
        ],
        rename={"sent": "extFields"},
        gc=False,
    )  # fmt: skip
    decode: Callable[[bytes], Any] = msgspec.json.Decoder(header_type).decode

    def decode_quickly(header: bytes, body: bytes) -> RemotingCommand:
        if header.startswith(START):
            try:
                known = decode(header)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                return codec_json.decode_command(header, body)
            if known.code == _SEND_MESSAGE_V2:
                # The language says nothing that a broker would want to know of a message.
                return PlainSend(
                    known.code, known.opaque, known.flag, "JAVA", known.version, None, None, body,
                    0, known.sent,
                )  # fmt: skip
        return codec_json.decode_command(header, body)

    return decode_quickly


decode_message = message_decoder(SendFields)
