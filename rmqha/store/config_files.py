"""``config/*.json`` as bytes: pretty JSON that Java reads, and Java's own with its bare keys.

Source: RocketMQ's protocol as observed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from rmqha.base.errors import RemoteProtocolError, StoreCorrupted
from rmqha.remoting import fastjson

BACKUP_SUFFIX = ".bak"


def encode_config(value: dict[str, Any]) -> bytes:
    """Indented, keys sorted, for people to read; Java takes any form."""
    options = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS
    return orjson.dumps(value, option=options)


def decode_config(data: bytes, path: str) -> dict[str, Any]:
    """Read a file's content.

    Raises:
        StoreCorrupted: empty, no JSON even with bare number keys, or no object.
    """
    try:
        value = fastjson.loads(data)
    except RemoteProtocolError as error:
        raise StoreCorrupted(f"{path}: {error}") from error
    if not isinstance(value, dict):
        raise StoreCorrupted(f"{path} holds no JSON object")
    return value


def whole_config(candidates: Iterable[tuple[str, bytes | None]]) -> dict[str, Any] | None:
    """The first content that is whole, as brokers choose between a file and its copy.

    Args:
        candidates: paths, and what is there; None where nothing is.

    Returns:
        None when there is none at all.

    Raises:
        StoreCorrupted: what exists is damaged.
    """
    damage: StoreCorrupted | None = None
    for path, data in candidates:
        if data is None:
            continue
        try:
            return decode_config(data, path)
        except StoreCorrupted as error:
            damage = damage or error
    if damage is not None:
        raise damage
    return None
