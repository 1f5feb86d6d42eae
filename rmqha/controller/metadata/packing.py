"""msgpack as this package uses it: plain lists, integers, strings and None, nothing else.

What does not live here: the meaning of any record. Frames, checksums and files are the log's.
"""

from __future__ import annotations

import msgpack


def pack(value: object) -> bytes:
    """Encode plain lists, ints, strings, bytes, booleans and None."""
    packed: bytes = msgpack.packb(value, use_bin_type=True)
    return packed


def list_header(count: int) -> bytes:
    """What stands in front of a list's items, each packed by itself."""
    header: bytes = msgpack.Packer(use_bin_type=True).pack_array_header(count)
    return header
