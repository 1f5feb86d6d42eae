"""JSON bodies as fastjson 1 writes them.

Java emits a map with number keys as ``{1:"a"}``, and one with object keys as ``{{"id":1}:"a"}``;
neither is JSON. :func:`loads` takes these and the legal form; :func:`dumps` writes legal JSON, which
Java reads as well. Where an old client knows the bare form only, :func:`dumps_bare` writes it.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Any

import orjson

from rmqha.base.errors import InvariantBroken, LocalProtocolError, RemoteProtocolError
from rmqha.runtime.parts import at_once

# A string, closed or cut off, is skipped whole; possessive, so that no input makes it slow.
_STRING = rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)'
_BARE_KEY = rb"-?\d++"
# An object key has no objects inside; one that is a value ends in something else than a colon.
_OBJECT_KEY = rb'\{(?:[^{}"]++|"(?:[^"\\]++|\\.)*+")*+\}'


def _up_to(key: bytes) -> re.Pattern[bytes]:
    """All before the next key of a kind, and that key; but not more than some thousand parts."""
    parts = rb'(?:[^"{,]++|' + _STRING + rb"|[{,](?!\s*+" + key + rb"\s*+:)){0,4096}+"
    found = rb"(?:(?P<before>[{,]\s*+)(?P<key>" + key + rb")(?=\s*+:))?"
    return re.compile(parts + found, re.DOTALL)


_UP_TO_BARE_KEY, _UP_TO_OBJECT_KEY = _up_to(_BARE_KEY), _up_to(_OBJECT_KEY)

PART_KEYS = 2_000
PART_BYTES = 128 * 1024
"""So much is quoted between two turns of others, some milliseconds. Strings can make it more, for
none is cut: some thousand of 4 KiB each, or one of 16 MiB, take 80 ms."""

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
        data = at_once(_quoting(_UP_TO_BARE_KEY, data))
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return loads_strict(at_once(_quoting(_UP_TO_OBJECT_KEY, data)))


def loads_strict(data: bytes) -> Any:
    """Read a body that is JSON as it stands.

    Raises:
        RemoteProtocolError: it is not.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise RemoteProtocolError(f"body is not JSON: {error}") from error


def reading(data: bytes) -> Generator[None, None, Any]:
    """Read a body with number keys quoted or bare, part by part where they are bare.

    Raises:
        RemoteProtocolError: the body is not JSON even so.
    """
    try:
        return loads_strict(data)
    except RemoteProtocolError:
        pass  # what is caught would be kept for as long as the reading takes
    return loads_strict((yield from quoting(data)))


def quoting(data: bytes) -> Generator[None, None, bytes]:
    """Quote the bare number keys of a body that may be large, part by part."""
    return _quoting(_UP_TO_BARE_KEY, data)


def _quoting(up_to_key: re.Pattern[bytes], data: bytes) -> Generator[None, None, bytes]:
    done: list[bytes] = []
    parts: list[bytes] = []
    at = done_at = keys = 0
    while at < len(data):
        found = up_to_key.match(data, at)
        if found is None or found.end() == at:
            raise InvariantBroken("fastjson: whatever comes is a part or a key")
        key = found["key"]
        if key is None:
            parts.append(found[0])
        else:
            parts += (data[at : found.start("key")], _quoted(key))
            keys += 1
        at = found.end()
        if keys >= PART_KEYS or at - done_at >= PART_BYTES:
            done.append(b"".join(parts))
            parts.clear()
            keys, done_at = 0, at
            yield
    return b"".join([*done, *parts])


def _quoted(key: bytes) -> bytes:
    if b'"' in key:
        key = key.replace(b"\\", b"\\\\").replace(b'"', b'\\"')
    return b'"%b"' % key


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
