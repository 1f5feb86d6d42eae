"""Requests that come again and again, and answers that go out again and again.

A broker's polls and the heartbeats of an idle broker are the same bytes but for the opaque. Their
headers are parsed once, their answers encoded once; the opaque alone is read and written anew.
A busy broker's heartbeats differ in their two offsets, too, which are read from their places.

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
ZERO = ord("0")

_MEMBER = b'"opaque":'
_CODE_AT, _CODE_END = 8, 12
_NEVER_AGAIN = frozenset({b"310,", b"320,", b'10,"', b'37,"'})
"""Where ``{"code":`` ends: messages and the ends of transactions. Each header is another."""
_TIME = b'"invokeTime"'
"""A request that says when it was sent never comes again."""
_PREFIX = struct.Struct(">II")

_BEAT = b"904,"
_HEARTBEAT = 904
_MAX_OFFSET, _CONFIRM_OFFSET = b'"maxOffset":"', b'"confirmOffset":"'

_Parsed = tuple[int, int, str, int, str | None, dict[str, str] | None]
_ParsedBeat = tuple[int, str, int, dict[str, str], bytes, bytes]


class Beat(dict[str, str]):
    """The fields of a heartbeat that differs from an earlier one in its two offsets alone.

    Attributes:
        like: the fields of that earlier one.
    """

    __slots__ = ("like",)

    like: dict[str, str]


class HeaderCache:
    """Parsed JSON headers by their bytes without the opaque; shared by a server's connections.

    The ``ext_fields`` of repeated commands are one dict: nobody may change it.

    Args:
        decode_message: makes the commands of headers that never come again, messages first of all.
    """

    def __init__(
        self,
        entries_max: int = ENTRIES_MAX,
        decode_message: Callable[[bytes, bytes], RemotingCommand] = codec_json.decode_command,
    ) -> None:
        self._entries_max = entries_max
        self._decode_message = decode_message
        self._entries: dict[bytes, _Parsed] = {}
        # Hashes of headers that came once: most of a busy broker's never come again, and keeping
        # them all would cost memory for nothing.
        self._once: set[int] = set()
        self._beats: dict[bytes, _ParsedBeat] = {}
        self.hits = 0

    def decode(self, header: bytes, body: bytes) -> RemotingCommand:
        """Make the command of a JSON header and its body.

        Raises:
            HeaderMalformed: see ``codec_json.decode_command``.
        """
        code_text = header[_CODE_AT:_CODE_END]
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
        if code_text == _BEAT and _CONFIRM_OFFSET in header:
            return self._decode_beat(key, (start, end, opaque), header, body)
        command = codec_json.decode_command(header, body)
        if (
            command.opaque == opaque
            and _TIME not in header
            and len(header) <= HEADER_BYTES_MAX
            and header.count(_MEMBER) == 1
        ):
            self._remember(key, command)
        return command

    def _decode_beat(
        self, whole: bytes, found: tuple[int, int, int], header: bytes, body: bytes
    ) -> RemotingCommand:
        """A heartbeat: from one to the next a busy broker changes its offsets and the opaque.

        The same rule with three holes instead of one.

        Args:
            whole: the header without its opaque.
            found: where the opaque starts and ends, and what it is.
        """
        start, end, opaque = found
        at = header.find(_MAX_OFFSET) + len(_MAX_OFFSET)
        confirm_at = header.find(_CONFIRM_OFFSET) + len(_CONFIRM_OFFSET)
        max_end, confirm_end = header.find(b'"', at), header.find(b'"', confirm_at)
        offset, confirmed = header[at:max_end], header[confirm_at:confirm_end]
        if at < confirm_at < start:
            key = header[:at] + header[max_end:confirm_at] + header[confirm_end:start]
        else:
            key = header[:confirm_at] + header[confirm_end:at] + header[max_end:start]
        key += header[end:]
        known = self._beats.get(key)
        if known is None or not (offset + confirmed).isdigit():
            return self._new_beat(key, header, body)
        self.hits += 1
        flag, language, version, fields, offset_before, confirmed_before = known
        if offset != offset_before or confirmed != confirmed_before:
            beat = Beat(fields)
            beat.like = fields
            beat["maxOffset"] = offset.decode()
            beat["confirmOffset"] = confirmed.decode()
            return RemotingCommand(_HEARTBEAT, opaque, flag, language, version, None, beat, body)
        command = RemotingCommand(_HEARTBEAT, opaque, flag, language, version, None, fields, body)
        self._remember(whole, command)
        return command

    def _new_beat(self, key: bytes, header: bytes, body: bytes) -> RemotingCommand:
        """Parse in full; a beat that came for the second time is kept, if its holes are for sure.

        Without a backslash a member's name stands there as it is written, and once means here.
        """
        command = codec_json.decode_command(header, body)
        fields = command.ext_fields
        if (
            fields is None
            or command.remark is not None
            or command.code != _HEARTBEAT
            or len(header) > HEADER_BYTES_MAX
            or b"\\" in header
            or any(header.count(one) != 1 for one in (_MEMBER, _MAX_OFFSET, _CONFIRM_OFFSET))
        ):
            return command
        offset, confirmed = (
            fields.get("maxOffset", "").encode(),
            fields.get("confirmOffset", "").encode(),
        )
        opaque = b"%d" % command.opaque
        whole = (
            _MAX_OFFSET + offset + b'"',
            _CONFIRM_OFFSET + confirmed + b'"',
            _MEMBER + opaque + b",",
        )
        holes = (offset + confirmed + opaque).isdigit() and all(one in header for one in whole)
        if holes and self._came_before(key):
            self._beats[key] = (
                command.flag, command.language, command.version, fields, offset, confirmed,
            )  # fmt: skip
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
        if len(self._entries) + len(self._beats) >= self._entries_max:
            self._entries.clear()  # those that are needed are soon back
            self._beats.clear()
        return True


class ReplyTemplate:
    """A JSON response of which only the opaque is still missing.

    Args:
        code, remark, ext_fields, body: of the response.
    """

    __slots__ = ("_fixed_bytes", "_head", "_head_bytes", "_tail")

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
        self._head = header[:start]
        self._tail = header[start + 1 :] + body
        self._head_bytes = len(header) - 1
        self._fixed_bytes = self._head_bytes + len(body) + 4

    def frame(self, opaque: int) -> bytes:
        """The whole frame of the response to the request with this opaque."""
        digits = b"%d" % opaque
        size = len(digits)
        return b"%b%b%b%b" % (
            _PREFIX.pack(self._fixed_bytes + size, self._head_bytes + size),
            self._head,
            digits,
            self._tail,
        )
