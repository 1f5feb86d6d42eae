"""``config/*.json`` as bytes: pretty JSON that Java reads, and Java's own with its bare keys.

Source: RocketMQ's protocol as observed.
"""

from __future__ import annotations

import json
from typing import Any

from rmqha.base.errors import RemoteProtocolError, StoreCorrupted
from rmqha.remoting import fastjson

BACKUP_SUFFIX = ".bak"


def encode_config(value: dict[str, Any]) -> bytes:
    """Indented by tabs, keys sorted, as Java's pretty form."""
    return json.dumps(value, indent="\t", sort_keys=True, ensure_ascii=False).encode()


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
