"""JSON headers: liberal in reading, exactly Java's bytes in writing.

Members are written in Java's (alphabetical) order without blanks, null members are left out, and
``extFields`` keeps the order it is given. Unknown members are ignored, missing ones take Java's
defaults, and values that are not text become the text that Java makes of them.

Source: RemotingSerializable (fastjson 1), RocketMQ remoting.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
import orjson
from msgspec import Meta, Struct

from rmqha.base.errors import HeaderMalformed, LocalProtocolError
from rmqha.remoting.codes import LANGUAGE_CODES, LANGUAGE_UNKNOWN, VERSION_CURRENT
from rmqha.remoting.command import FLAG_RESPONSE, SERIALIZE_JSON, RemotingCommand
from rmqha.remoting.headers import INT32_MAX

INT32_MIN = -0x80000000

_Int32 = Annotated[int, Meta(ge=INT32_MIN, le=INT32_MAX)]


class _Header(Struct, rename={"ext_fields": "extFields"}):
    """What nearly every header is: each member of its own type, so that one call reads it."""

    code: _Int32 = 0
    opaque: _Int32 = 0
    flag: _Int32 = 0
    version: _Int32 = 0
    language: str = "JAVA"
    remark: str | None = None
    ext_fields: dict[str, str] | None = None


_decode_header = msgspec.json.Decoder(_Header).decode


def encode_header(command: RemotingCommand) -> bytes:
    """Write a command's header.

    Raises:
        LocalProtocolError: a field holds what JSON cannot carry.
    """
    header: dict[str, Any] = {"code": command.code}
    if command.ext_fields is not None:
        header["extFields"] = command.ext_fields
    header["flag"] = command.flag
    header["language"] = command.language
    header["opaque"] = command.opaque
    if command.remark is not None:
        header["remark"] = command.remark
    header["serializeTypeCurrentRPC"] = "JSON"
    header["version"] = command.version
    try:
        return orjson.dumps(header)
    except TypeError as error:
        raise LocalProtocolError(f"header of code {command.code}: {error}") from error


def success_format(fields: Mapping[str, str | bytes]) -> bytes:
    """The header of an answer of success, to be filled in with ``%``; the opaque comes last.

    With everything filled in it is what :func:`encode_header` makes of the same answer.

    Args:
        fields: those of ``bytes`` are filled in: ``b"%d"`` by a number, ``b"%b"`` by text that JSON
            need not escape.
    """
    members = [
        _fixed(name) + b":" + (b'"%b"' % value if isinstance(value, bytes) else _fixed(value))
        for name, value in fields.items()
    ]
    return (
        b'{"code":0,"extFields":{' + b",".join(members) + b'},"flag":%d,"language":"PYTHON",'
        b'"opaque":%%d,"serializeTypeCurrentRPC":"JSON","version":%d}'
        % (FLAG_RESPONSE, VERSION_CURRENT)
    )


def _fixed(text: str) -> bytes:
    return orjson.dumps(text).replace(b"%", b"%%")


def decode_command(header: bytes, body: bytes) -> RemotingCommand:
    """Read a header and make the command of it and ``body``.

    Raises:
        HeaderMalformed: not a JSON object, or a member that cannot be what it must.
    """
    try:
        known = _decode_header(header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # What nests too deep for the one is refused by the other, in words.
        return _decode_leniently(header, body)
    language = known.language
    if language not in LANGUAGE_CODES:
        language = LANGUAGE_UNKNOWN
    return RemotingCommand(
        known.code, known.opaque, known.flag, language, known.version, known.remark,
        known.ext_fields, body, SERIALIZE_JSON,
    )  # fmt: skip


def _decode_leniently(header: bytes, body: bytes) -> RemotingCommand:
    """The same for a header with other types, as fastjson coerces them, and for what is none."""
    try:
        fields = orjson.loads(header)
        get = fields.get
    except (orjson.JSONDecodeError, AttributeError) as error:
        raise HeaderMalformed(f"header is not a JSON object: {error}") from error
    code, opaque = get("code", 0), get("opaque", 0)
    flag, version = get("flag", 0), get("version", 0)
    language, remark, ext_fields = get("language", "JAVA"), get("remark"), get("extFields")
    code, opaque = _java_int(code, "code"), _java_int(opaque, "opaque")
    flag, version = _java_int(flag, "flag"), _java_int(version, "version")
    if not all(INT32_MIN <= number <= INT32_MAX for number in (code, opaque, flag, version)):
        raise HeaderMalformed("a header number does not fit 32 bits")
    if type(language) is not str or language not in LANGUAGE_CODES:
        language = LANGUAGE_UNKNOWN
    if remark is not None and type(remark) is not str:
        remark = _java_text(remark)
    if ext_fields is not None:
        if type(ext_fields) is not dict:
            raise HeaderMalformed("extFields is not a JSON object")
        ext_fields = _java_texts(ext_fields)
    return RemotingCommand(
        code, opaque, flag, language, version, remark, ext_fields, body, SERIALIZE_JSON
    )


def _java_int(value: object, name: str) -> int:
    """Fastjson takes a number in quotes for a number, and null for an absent one."""
    if value is None:
        return 0
    if type(value) is int:
        return value
    if type(value) is str and value.lstrip("-").isdecimal() and len(value) <= 11:
        try:
            return int(value)
        except ValueError:
            pass
    raise HeaderMalformed(f"header member {name} is not a number")


def _java_texts(fields: dict[str, Any]) -> dict[str, str]:
    """Text of every value; null ones are left out, as Java leaves them out when writing."""
    return {key: _java_text(value) for key, value in fields.items() if value is not None}


def _java_text(value: object) -> str:
    """What ``toString`` of a fastjson value gives: numbers and booleans bare, the rest as JSON."""
    if isinstance(value, str):
        return value
    try:
        return orjson.dumps(value).decode()
    except TypeError as error:
        raise HeaderMalformed(f"header value nests too deep: {error}") from error
