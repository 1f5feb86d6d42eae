"""The one message of the remoting protocol: a request or a response.

Source: RemotingCommand, RocketMQ remoting.
"""

from __future__ import annotations

from msgspec import Struct

from rmqha.remoting.codes import VERSION_CURRENT

FLAG_RESPONSE = 1
FLAG_ONEWAY = 2

SERIALIZE_JSON = 0
SERIALIZE_ROCKETMQ = 1


class RemotingCommand(Struct):
    """A request or a response. Mutable and unchecked, because every frame makes one.

    Attributes:
        code: request code, or the response code when :attr:`is_response`.
        opaque: int32 that the requester chose and the responder repeats.
        flag: bit 0 marks a response, bit 1 a request that wants no answer.
        language: a name of ``codes.LANGUAGE_CODES``.
        version: the sender's release as an ordinal of ``codes.VERSION_ORDINALS``; 0 is unknown.
        remark: text for people, mostly of a refusal.
        ext_fields: the header's fields; all values are text, numbers and booleans too.
        body: the payload; empty stands for none.
        serialize_type: header format, ``SERIALIZE_JSON`` or ``SERIALIZE_ROCKETMQ`` (binary).
    """

    code: int
    opaque: int = 0
    flag: int = 0
    language: str = "PYTHON"
    version: int = VERSION_CURRENT
    remark: str | None = None
    ext_fields: dict[str, str] | None = None
    body: bytes = b""
    serialize_type: int = SERIALIZE_JSON

    @property
    def is_response(self) -> bool:
        """Whether this answers a request."""
        return self.flag & FLAG_RESPONSE != 0

    @property
    def is_oneway(self) -> bool:
        """Whether this is a request that must not be answered."""
        return self.flag & FLAG_ONEWAY != 0

    def reply(
        self,
        code: int,
        remark: str | None = None,
        ext_fields: dict[str, str] | None = None,
        body: bytes = b"",
    ) -> RemotingCommand:
        """Make the response to this request, in the request's header format."""
        return RemotingCommand(
            code, self.opaque, FLAG_RESPONSE, "PYTHON", VERSION_CURRENT, remark, ext_fields, body,
            self.serialize_type,
        )  # fmt: skip
