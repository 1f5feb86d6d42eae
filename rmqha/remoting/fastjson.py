"""JSON bodies as fastjson 1 writes them.

Java emits a map with number keys as ``{1:"a"}``, and one with object keys as ``{{"id":1}:"a"}``;
neither is JSON. :func:`loads` takes these and the legal form; :func:`dumps` writes legal JSON, which
Java reads as well. Where an old client knows the bare form only, :func:`dumps_bare` writes it.
"""

from __future__ import annotations

import re
from typing import Any

import orjson

from rmqha.base.errors import LocalProtocolError, RemoteProtocolError

# A string, closed or cut off, is skipped whole; possessive, so that no input makes it slow.
_STRING_OR_BARE_KEY = re.compile(
    rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|(?P<before>[{,]\s*+)(?P<key>-?\d++)(?=\s*+:)', re.DOTALL
)

# An object key has no objects inside; one that is a value ends in something else than a colon.
_STRING_OR_OBJECT_KEY = re.compile(
    rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)'
    rb'|(?P<before>[{,]\s*+)(?P<key>\{(?:[^{}"]++|"(?:[^"\\]++|\\.)*+")*+\})(?=\s*+:)',
    re.DOTALL,
)

_FLAT = (str, int, float, bool, type(None))
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")


def loads(data: bytes) -> Any:
    """Read a JSON body, with number keys quoted or bare, and object keys.

    Returns:
        dicts, lists, str, int, float, bool or None; keys are always str: one that was an object is
        the JSON text of it, as :func:`loads` reads.

    Raises:
        RemoteProtocolError: the body is not JSON even so.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        pass
    quoted = _STRING_OR_BARE_KEY.sub(_quote, data)
    try:
        return orjson.loads(quoted)
    except orjson.JSONDecodeError:
        pass
    try:
        return orjson.loads(_STRING_OR_OBJECT_KEY.sub(_quote_object, quoted))
    except orjson.JSONDecodeError as error:
        raise RemoteProtocolError(f"body is not JSON: {error}") from error


def dumps(value: Any) -> bytes:
    """Write compact JSON; int keys become quoted.

    Raises:
        LocalProtocolError: the value holds what JSON cannot carry.
    """
    try:
        return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)
    except TypeError as error:
        raise LocalProtocolError(f"body cannot be written as JSON: {error}") from error


def dumps_bare(value: Any) -> bytes:
    """Write compact JSON as fastjson does by default: int keys stand bare, which is not JSON.

    Raises:
        LocalProtocolError: the value holds what JSON cannot carry.
    """
    if isinstance(value, dict):
        if all(type(key) is str and type(item) in _FLAT for key, item in value.items()):
            return dumps(value)  # of these there may be thousands
        pairs = (
            (b"%d" % key if isinstance(key, int) else dumps(key)) + b":" + dumps_bare(item)
            for key, item in value.items()
        )
        return b"{" + b",".join(pairs) + b"}"
    if isinstance(value, list | tuple):
        return b"[" + b",".join(map(dumps_bare, value)) + b"]"
    return dumps(value)


def dumps_ascii(value: Any) -> bytes:
    """Write compact JSON as fastjson's browser mode does.

    Int keys are quoted; slashes and all else than ASCII are escaped, in upper case.

    Raises:
        LocalProtocolError: the value holds what JSON cannot carry.
    """
    # Slashes occur in strings only.
    data = dumps(value).replace(b"/", b"\\/")
    return data if data.isascii() else _NOT_ASCII.sub(_escape, data.decode()).encode()


def _escape(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be").hex().upper()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def _quote_object(match: re.Match[bytes]) -> bytes:
    key = match["key"]
    if key is None:
        return match[0]
    text = key.replace(b"\\", b"\\\\").replace(b'"', b'\\"')
    return match["before"] + b'"' + text + b'"'


def _quote(match: re.Match[bytes]) -> bytes:
    key = match["key"]
    return match[0] if key is None else match["before"] + b'"' + key + b'"'
