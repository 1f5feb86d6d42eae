"""msgpack as this package uses it: plain lists, integers, strings and None, nothing else.

What does not live here: the meaning of any record. Frames, checksums and files are the log's.
"""

from __future__ import annotations

import msgpack

from rmqha.base.errors import StoreCorrupted


def pack(value: object) -> bytes:
    """Encode plain lists, ints, strings, bytes, booleans and None."""
    packed: bytes = msgpack.packb(value, use_bin_type=True)
    return packed


def unpack(data: bytes, what: str) -> object:
    """Decode what ``pack`` made.

    Args:
        data: the stored bytes.
        what: what they should be, for the error's text.

    Raises:
        StoreCorrupted: when the bytes are not one complete msgpack value.
    """
    try:
        value: object = msgpack.unpackb(data, raw=False, strict_map_key=False)
    except (ValueError, msgpack.UnpackException) as error:
        raise StoreCorrupted(f"{what} is not msgpack") from error
    return value
