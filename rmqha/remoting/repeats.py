"""Requests that come again and again, and answers that go out again and again.

A broker's polls are the same bytes but for the opaque. Their headers are parsed once, their answers
encoded once; the opaque alone is read and written anew.

Nothing is guessed: an entry is made from a header that was parsed in full and whose one
``"opaque":`` member holds the opaque that came out; a later header with the same bytes before and
after a plain integer can then only mean the same request with that integer for its opaque.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import orjson

from rmqha.remoting import codec_json
from rmqha.remoting.codes import VERSION_CURRENT
from rmqha.remoting.command import FLAG_RESPONSE, SERIALIZE_JSON, RemotingCommand

ENTRIES_MAX = 4096
HEADER_BYTES_MAX = 1024
OPAQUE_DIGITS_MAX = 10
OPAQUE_MAX = 2**31 - 1
OPAQUE_LENGTH_MAX = len(str(-(2**31)))
ZERO = ord("0")

_MEMBER = b'"opaque":'
_NAME = b'"opaque"'
_FIELD = "opaque"
"""A field of this name, which is none of RocketMQ's, is not the member."""
_CODE_AT, _CODE_END = 8, 12
_NEVER_AGAIN = frozenset({b"310,", b"320,", b'10,"', b'37,"'})
"""Where ``{"code":`` ends: messages and the ends of transactions. Each header is another."""
_TIME = b'"invokeTime"'
"""A request that says when it was sent never comes again."""
_PREFIX = struct.Struct(">II")

_BEAT = b"904,"

Decode = Callable[[bytes, bytes], RemotingCommand]
_Parsed = tuple[int, int, str, int, str | None, dict[str, str] | None]


class HeaderCache:
    """Parsed JSON headers by their bytes without the opaque; shared by a server's connections.

    The ``ext_fields`` of repeated commands are one dict: nobody may change it.

    Args:
        decode_message: makes the commands of headers that never come again, messages first of all.
        decode_beat: makes those of heartbeats, for who wants them otherwise than the rest.
    """

    def __init__(
        self,
        entries_max: int = ENTRIES_MAX,
        decode_message: Decode = codec_json.decode_command,
        decode_beat: Decode | None = None,
    ) -> None:
        self._entries_max = entries_max
        self._decode_message = decode_message
        self._decode_beat = decode_beat
        self._entries: dict[bytes, _Parsed] = {}
        # Hashes of headers that came once: most of a busy broker's never come again, and keeping
        # them all would cost memory for nothing.
        self._once: set[int] = set()
        self.hits = 0

    def decode(self, header: bytes, body: bytes) -> RemotingCommand:
        """Make the command of a JSON header and its body.

        Raises:
            HeaderMalformed: see ``codec_json.decode_command``.
        """
        code_text = header[_CODE_AT:_CODE_END]
        if code_text == _BEAT and self._decode_beat is not None:
            return self._decode_beat(header, body)
        if code_text in _NEVER_AGAIN:
            return self._decode_message(header, body)
        at = header.rfind(_MEMBER)
        start = at + len(_MEMBER)
        end = header.find(b",", start)
        digits = header[start:end]
        if at < 0 or end < 0 or len(digits) > OPAQUE_DIGITS_MAX or not digits.isdigit():
            return codec_json.decode_command(header, body)
        opaque = int(digits)
        if opaque > OPAQUE_MAX or (digits[0] == ZERO and len(digits) > 1):
            return codec_json.decode_command(header, body)
        key = header[:start] + header[end:]
        parsed = self._entries.get(key)
        if parsed is not None:
            code, flag, language, version, remark, ext_fields = parsed
            self.hits += 1
            return RemotingCommand(code, opaque, flag, language, version, remark, ext_fields, body)
        command = codec_json.decode_command(header, body)
        if (
            command.opaque == opaque
            and _TIME not in header
            and len(header) <= HEADER_BYTES_MAX
            and header.count(_NAME) == 1
            and _FIELD not in (command.ext_fields or ())
        ):
            self._remember(key, command)
        return command

    def _remember(self, key: bytes, command: RemotingCommand) -> None:
        """Keep a header that has come for the second time."""
        if self._came_before(key):
            self._entries[key] = (
                command.code,
                command.flag,
                command.language,
                command.version,
                command.remark,
                command.ext_fields,
            )

    def _came_before(self, key: bytes) -> bool:
        """Whether a header is worth keeping; makes room for it."""
        mark = hash(key)
        if mark not in self._once:
            if len(self._once) >= self._entries_max:
                self._once.clear()
            self._once.add(mark)
            return False
        self._once.discard(mark)
        if len(self._entries) >= self._entries_max:
            self._entries.clear()  # those that are needed are soon back
        return True


class ReplyTemplate:
    """A JSON response of which only the opaque is still missing.

    Args:
        code, remark, ext_fields, body: of the response.
    """

    __slots__ = ("_heads", "_tail")

    def __init__(
        self, code: int, remark: str | None, ext_fields: dict[str, str] | None, body: bytes
    ) -> None:
        command = RemotingCommand(
            code, 0, FLAG_RESPONSE, "PYTHON", VERSION_CURRENT, remark, ext_fields, body,
            SERIALIZE_JSON,
        )  # fmt: skip
        header = codec_json.encode_header(command)
        # The opaque stands before the remark and after the fields: find it from the parsed end.
        fields = b"" if ext_fields is None else orjson.dumps(ext_fields)
        start = header.index(_MEMBER, header.find(fields) + len(fields)) + len(_MEMBER)
        self._tail = header[start + 1 :] + body
        # All before the opaque, by how long that is: frames say their length first.
        self._heads = [
            _PREFIX.pack(len(header) + len(body) + 3 + size, len(header) - 1 + size)
            + header[:start]
            for size in range(OPAQUE_LENGTH_MAX + 1)
        ]

    def frame(self, opaque: int) -> bytes:
        """The whole frame of the response to the request with this opaque, an int32."""
        digits = b"%d" % opaque
        return self._heads[len(digits)] + digits + self._tail
