"""Binary ("ROCKETMQ") headers with struct; ``layout.BINARY_HEADER`` draws them.

A length of zero stands for null: an empty remark, key, value or field block comes back as absent,
and empty keys and values are not written.

Source: RocketMQSerializable, RocketMQ remoting.
"""

from __future__ import annotations

import struct

from rmqha.base.errors import HeaderMalformed, LocalProtocolError
from rmqha.remoting.codes import LANGUAGE_CODES, LANGUAGE_NAMES, LANGUAGE_UNKNOWN
from rmqha.remoting.command import SERIALIZE_ROCKETMQ, RemotingCommand

_FIXED = struct.Struct(">HBhiii")  # code, language, version, opaque, flag, remark length
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_HEADER_BYTES_MIN = _FIXED.size + _INT32.size


def encode_header(command: RemotingCommand) -> bytes:
    """Write a command's header.

    Raises:
        LocalProtocolError: a number or a length does not fit its field.
    """
    try:
        remark = command.remark.encode() if command.remark is not None else b""
        ext_fields = _encode_fields(command.ext_fields) if command.ext_fields is not None else b""
        language = LANGUAGE_CODES.get(command.language, LANGUAGE_CODES[LANGUAGE_UNKNOWN])
        fixed = _FIXED.pack(
            command.code, language, command.version, command.opaque, command.flag, len(remark)
        )
        return fixed + remark + _INT32.pack(len(ext_fields)) + ext_fields
    except (struct.error, UnicodeEncodeError) as error:
        raise LocalProtocolError(f"header of code {command.code}: {error}") from error


def _encode_fields(fields: dict[str, str]) -> bytes:
    parts: list[bytes] = []
    for key, value in fields.items():
        if key and value:
            key_bytes, value_bytes = key.encode(), value.encode()
            parts += (
                _INT16.pack(len(key_bytes)), key_bytes,
                _INT32.pack(len(value_bytes)), value_bytes,
            )  # fmt: skip
    return b"".join(parts)


def decode_command(header: bytes, body: bytes) -> RemotingCommand:
    """Read a header and make the command of it and ``body``.

    Raises:
        HeaderMalformed: a length points outside of what is there, or text is not UTF-8.
    """
    if len(header) < _HEADER_BYTES_MIN:
        raise HeaderMalformed(f"binary header of {len(header)} bytes is too short")
    code, language, version, opaque, flag, remark_length = _FIXED.unpack_from(header)
    position = _FIXED.size
    if not 0 <= remark_length <= len(header) - _HEADER_BYTES_MIN:
        raise HeaderMalformed(f"remark length {remark_length} is outside the header")
    remark_end = position + remark_length
    (fields_length,) = _INT32.unpack_from(header, remark_end)
    start = remark_end + _INT32.size
    if not 0 <= fields_length <= len(header) - start:
        raise HeaderMalformed(f"field block length {fields_length} is outside the header")
    try:
        remark = header[position:remark_end].decode() if remark_length else None
        fields = _decode_fields(header, start, start + fields_length) if fields_length else None
    except UnicodeDecodeError as error:
        raise HeaderMalformed(f"header text is not UTF-8: {error}") from error
    name = LANGUAGE_NAMES.get(language, LANGUAGE_UNKNOWN)
    return RemotingCommand(
        code, opaque, flag, name, version, remark, fields, body, SERIALIZE_ROCKETMQ
    )


def _decode_fields(header: bytes, position: int, end: int) -> dict[str, str]:
    fields: dict[str, str] = {}
    while position < end:
        key_at = position + _INT16.size
        if key_at > end:
            raise HeaderMalformed("field block ends within a key length")
        (key_length,) = _INT16.unpack_from(header, position)
        value_at = key_at + key_length + _INT32.size
        if key_length < 0 or value_at > end:
            raise HeaderMalformed(f"key length {key_length} is outside the field block")
        (value_length,) = _INT32.unpack_from(header, value_at - _INT32.size)
        position = value_at + value_length
        if value_length < 0 or position > end:
            raise HeaderMalformed(f"value length {value_length} is outside the field block")
        if key_length and value_length:
            key = header[key_at : key_at + key_length].decode()
            fields[key] = header[value_at:position].decode()
    return fields
