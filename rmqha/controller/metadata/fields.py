"""Reading ext fields and bodies as leniently as Java's header decoder does.

A missing field, or a number that cannot be parsed, keeps the header's default; unknown fields
are ignored. Source: Java RemotingCommand#decodeCommandCustomHeader 5.3.3, which only logs.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import orjson
from msgspec import Struct

from rmqha.base.ids import BrokerId
from rmqha.remoting.headers import INT32_MAX, INT64_MAX, bool_field, parse_number


class _SyncStateSet(Struct, rename={"ids": "syncStateSet", "epoch": "syncStateSetEpoch"}):
    """The body as brokers write it."""

    ids: list[BrokerId]
    epoch: int = 0


_decode_sync_state_set = msgspec.json.Decoder(_SyncStateSet).decode


def long_field(ext_fields: Mapping[str, str], name: str) -> int | None:
    """A Java Long, or None when absent or malformed."""
    text = ext_fields.get(name)
    return None if text is None else parse_number(text, INT64_MAX)


def int_field(ext_fields: Mapping[str, str], name: str) -> int | None:
    """A Java Integer, or None when absent or malformed."""
    text = ext_fields.get(name)
    return None if text is None else parse_number(text, INT32_MAX)


def broker_id_field(ext_fields: Mapping[str, str], name: str) -> BrokerId | None:
    """A broker's controller id; 0, -1 and the rest below 1 name no broker and give None."""
    value = long_field(ext_fields, name)
    return None if value is None or value < 1 else BrokerId(value)


def flag_field(ext_fields: Mapping[str, str], name: str) -> bool:
    """A Java boolean: ``true`` in any case is true, all else false."""
    return bool_field(ext_fields, name)


def parse_sync_state_set(body: bytes) -> tuple[tuple[BrokerId, ...], int] | None:
    """Read ``{"syncStateSet":[1,2],"syncStateSetEpoch":3}``.

    Returns:
        The ids, ascending and each once, and the epoch (0 when absent); None when the body is
        no such object.
    """
    try:
        known = _decode_sync_state_set(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _parse_leniently(body)
    return tuple(sorted(set(known.ids))), known.epoch


def _parse_leniently(body: bytes) -> tuple[tuple[BrokerId, ...], int] | None:
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(parsed, dict):
        return None
    ids = parsed.get("syncStateSet")
    epoch = _json_integer(parsed.get("syncStateSetEpoch", 0))
    if type(ids) is not list or epoch is None:
        return None
    numbers = [_json_integer(value) for value in ids]
    known = {BrokerId(number) for number in numbers if number is not None}
    return (tuple(sorted(known)), epoch) if None not in numbers else None


def _json_integer(value: object) -> int | None:
    # fastjson coerces "1" to 1 and refuses to read a fraction as a Long.
    if isinstance(value, str):
        return parse_number(value, INT64_MAX)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
