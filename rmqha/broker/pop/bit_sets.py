"""Which messages of a check point a batch of acknowledgements (200151) names: Java's BitSet.

A bit stands for each offset of the queue from the check point's start on. Where a filter passes most
messages over, the few of one pop are far apart: the set is long, and nearly empty.

Source: BatchAck, MQClientAPIImpl and AckMessageProcessor of RocketMQ 5.1 to 5.5.
"""

from __future__ import annotations

import base64
import binascii

from rmqha.base.errors import RemoteProtocolError
from rmqha.broker.common.json_members import json_array

ACKED_MAX = 1_024
"""Offsets of one acknowledgement; more than a check point has are of no use."""

SET_BYTES_MAX = 8_192
"""Of one set: four times as many offsets as a read looks at for one check point."""

ALL_BYTES_MAX = 320_000
"""Of all sets of one request, which are looked through before anybody else is heard."""


def size_of(value: object) -> int:
    """How many bytes a set has at most, without looking at them; raises RemoteProtocolError."""
    if isinstance(value, str):
        return len(value) * 3 // 4
    return len(json_array(value, "bitSet"))


def check_size(sets: list[object]) -> None:
    """Raise RemoteProtocolError when the sets of one request are too much work together."""
    sizes = (size_of(one) for one in sets)
    # What is passed over costs nothing.
    total = sum(size for size in sizes if not _is_too_large(size))
    if total > ALL_BYTES_MAX:
        raise RemoteProtocolError(f"bitSets of {total} bytes, at most {ALL_BYTES_MAX}")


def bits_of(value: object) -> list[int]:
    """The set bits: the bytes of a BitSet in Base64, or as numbers.

    One that no check point can have made names nothing: its messages come again, and the other
    acknowledgements of the request count.

    Raises:
        RemoteProtocolError: neither of the two.
    """
    if _is_too_large(size_of(value)):
        return []
    try:
        if isinstance(value, str):
            data = base64.b64decode(value, validate=True)
        else:
            data = bytes(one & 0xFF for one in json_array(value, "bitSet"))
    except (binascii.Error, TypeError, ValueError) as error:
        raise RemoteProtocolError("bitSet is neither Base64 nor bytes") from error
    if len(data) > SET_BYTES_MAX or int.from_bytes(data).bit_count() > ACKED_MAX:
        return []
    return [
        8 * at + bit for at, byte in enumerate(data) if byte for bit in range(8) if byte >> bit & 1
    ]


def _is_too_large(size: int) -> bool:
    # The text of Base64 is filled up to a multiple of four letters, three bytes.
    return size >= SET_BYTES_MAX + 3
