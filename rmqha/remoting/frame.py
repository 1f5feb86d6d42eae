"""Frames: commands to bytes, and bytes in any chunks back to commands.

``layout.FRAME`` draws the frame: total length, header format, header length, header, body.

Source: RemotingCommand and NettyDecoder, RocketMQ remoting.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from rmqha.base.errors import (
    FrameTooLarge,
    HeaderMalformed,
    LocalProtocolError,
    RemoteProtocolError,
)
from rmqha.remoting import codec_binary, codec_json
from rmqha.remoting.command import SERIALIZE_JSON, SERIALIZE_ROCKETMQ, RemotingCommand
from rmqha.remoting.settings import FRAME_BYTES_MAX, HEADER_BYTES_MAX

_PREFIX = struct.Struct(">iI")  # total length, header format and header length in one word
_PREFIX_BYTES = _PREFIX.size
_LENGTH_BYTES = 4
_HEADER_LENGTH_MASK = 0xFFFFFF
_TLS_HANDSHAKE = 0x16
_HTTP_ANSWER = b"HTTP"
_HTTP_STARTS = frozenset({b"GET ", b"POST", b"PUT ", b"HEAD", b"PRI ", b"OPTI", b"DELE", b"CONN"})


def encode(command: RemotingCommand, frame_bytes_max: int = FRAME_BYTES_MAX) -> bytes:
    """Write one whole frame in the header format that the command names.

    Args:
        command: what to send.
        frame_bytes_max: what peers accept; a longer frame would cost the connection.

    Raises:
        LocalProtocolError: the command cannot be written, or makes a frame over the limit.
    """
    body = command.body
    head = encode_head(command, len(body), frame_bytes_max)
    return head + body if body else head


def encode_head(
    command: RemotingCommand, body_size: int, frame_bytes_max: int = FRAME_BYTES_MAX
) -> bytes:
    """Write a frame up to its body, which the caller sends behind it; raises as :func:`encode`."""
    if command.serialize_type == SERIALIZE_JSON:
        header = codec_json.encode_header(command)
    elif command.serialize_type == SERIALIZE_ROCKETMQ:
        header = codec_binary.encode_header(command)
    else:
        raise LocalProtocolError(f"unknown serialize type {command.serialize_type}")
    length = len(header)
    total = _LENGTH_BYTES + length + body_size
    if total + _LENGTH_BYTES > frame_bytes_max or length > _HEADER_LENGTH_MASK:
        raise LocalProtocolError(f"frame of {total + _LENGTH_BYTES} bytes is over the limit")
    return _PREFIX.pack(total, command.serialize_type << 24 | length) + header


class FrameDecoder:
    """Turns a stream's bytes into commands, in any chunks, for one connection.

    Every byte is copied at most a fixed number of times, whatever the chunks. After the first
    malformed frame the decoder stays broken: the stream has no mark to start again from.

    Attributes:
        error: what was malformed; None while all is well.
    """

    __slots__ = (
        "_decode_json",
        "_frame_bytes_max",
        "_header_bytes_max",
        "_need",
        "_pending",
        "error",
    )

    def __init__(
        self,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        header_bytes_max: int = HEADER_BYTES_MAX,
        decode_json: Callable[[bytes, bytes], RemotingCommand] = codec_json.decode_command,
    ) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._header_bytes_max = header_bytes_max
        self._decode_json = decode_json
        self._pending = bytearray()
        self._need = 0
        self.error: RemoteProtocolError | None = None

    @property
    def pending_bytes(self) -> int:
        """What is kept of a frame that is not whole yet."""
        return len(self._pending)

    def feed(self, data: bytes) -> list[RemotingCommand]:
        """Take the stream's next bytes and return the commands that they complete.

        Commands before a malformed frame are still returned; :attr:`error` is set then, and the
        next call raises it. With no command to return, the error is raised at once.

        Raises:
            FrameTooLarge: a length over the limit or below the smallest, or another protocol.
            HeaderMalformed: a header that cannot be read.
        """
        if self.error is not None:
            raise self.error
        if self._pending:
            self._pending += data
            if len(self._pending) < self._need:
                return []
            data = bytes(self._pending)
            self._pending.clear()
        commands: list[RemotingCommand] = []
        try:
            consumed = self._decode_all(data, commands)
        except RemoteProtocolError as error:
            self.error = error
            if not commands:
                raise
            return commands
        if consumed < len(data):
            self._pending += data[consumed:] if consumed else data
        return commands

    def _decode_all(self, data: bytes, commands: list[RemotingCommand]) -> int:
        """Append every whole frame's command; returns where the first incomplete one starts."""
        position, size = 0, len(data)
        unpack_prefix = _PREFIX.unpack_from
        header_bytes_max = self._header_bytes_max
        total_max = self._frame_bytes_max - _LENGTH_BYTES
        while size - position >= _PREFIX_BYTES:
            total, word = unpack_prefix(data, position)
            if not _LENGTH_BYTES <= total <= total_max:
                self._check_total(total, data, position)
            header_length = word & _HEADER_LENGTH_MASK
            if header_length > total - _LENGTH_BYTES or header_length > header_bytes_max:
                raise HeaderMalformed(
                    f"header length {header_length} in a frame of {total} (limit {header_bytes_max})"
                )
            serialize_type = word >> 24
            if serialize_type > SERIALIZE_ROCKETMQ:
                raise HeaderMalformed(f"unknown serialize type {serialize_type}")
            end = position + _LENGTH_BYTES + total
            if end > size:
                self._need = end - position
                return position
            body_at = position + _PREFIX_BYTES + header_length
            header, body = data[position + _PREFIX_BYTES : body_at], data[body_at:end]
            if serialize_type == SERIALIZE_JSON:
                commands.append(self._decode_json(header, body))
            else:
                commands.append(codec_binary.decode_command(header, body))
            position = end
        self._need = _PREFIX_BYTES
        if size - position >= _LENGTH_BYTES:
            # Another protocol may send less than a prefix and then wait; name it right away.
            total = int.from_bytes(data[position : position + _LENGTH_BYTES], "big", signed=True)
            self._check_total(total, data, position)
        elif position < size:
            self._need = _LENGTH_BYTES
        return position

    def _check_total(self, total: int, data: bytes, position: int) -> None:
        if _LENGTH_BYTES <= total <= self._frame_bytes_max - _LENGTH_BYTES:
            return
        start = data[position : position + _LENGTH_BYTES]
        if start[0] == _TLS_HANDSHAKE:
            raise FrameTooLarge("the peer speaks TLS to a plain-text port")
        if start == _HTTP_ANSWER:
            raise FrameTooLarge("it is an HTTP port, of a status page or of metrics")
        if start in _HTTP_STARTS:
            raise FrameTooLarge(f"the peer speaks HTTP ({start.decode().strip()!r} request)")
        raise FrameTooLarge(f"frame length {total} is outside 4..{self._frame_bytes_max - 4}")
