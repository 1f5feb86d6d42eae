"""Bodies as their producers had them: zlib, and where pyarrow is installed lz4 and zstd, too.

Source: RocketMQ's protocol as observed (CompressionType and MessageSysFlag, RocketMQ 5.3.3): bit 0 of a record's flags
says that the body is compressed, bits 8 to 10 with what; lz4 and zstd bodies are whole frames.
"""

from __future__ import annotations

import zlib

from rmqha.store.record import COMPRESSED

BODY_MAX = 64 << 20
"""A compressed body that grows beyond this stays as it is stored."""
ANSWER_MAX = 256 << 20
"""What the bodies of one answer may grow to together: an answer of a megabyte can hold a gigabyte."""
KIND_MASK = 0x700
ZLIB_KINDS = (0x000, 0x300)
"""Of old clients and of new ones."""
FRAMES = {0x100: "lz4", 0x200: "zstd"}
"""What pyarrow calls them."""
_PIECE = 1 << 20


def plain_body(body: bytes, sys_flag: int, bytes_max: int | None = None) -> bytes | None:
    """What a stored body was made of.

    Args:
        body: as it is stored.
        sys_flag: the record's flags.
        bytes_max: what it may grow to; None for ``BODY_MAX``.

    Returns:
        None when it is not compressed, or with something unknown, or damaged, or grows beyond
        ``bytes_max``; or when it takes pyarrow, and that is not installed.
    """
    kind = sys_flag & KIND_MASK
    if not sys_flag & COMPRESSED:
        return None
    bytes_max = BODY_MAX if bytes_max is None else bytes_max
    if kind in ZLIB_KINDS:
        return _inflated(body, bytes_max)
    return _unframed(body, FRAMES[kind], bytes_max) if kind in FRAMES and body else None


class Inflater:
    """Undoes the bodies of one answer; those that are too much together stay as they are stored."""

    def __init__(self, bytes_max: int = ANSWER_MAX) -> None:
        self._left = bytes_max

    def plain_body(self, body: bytes, sys_flag: int) -> bytes | None:
        """As the function of this name."""
        if self._left <= 0:
            return None
        found = plain_body(body, sys_flag, min(BODY_MAX, self._left))
        if found is not None:
            self._left -= len(found)
        return found


def _inflated(data: bytes, bytes_max: int) -> bytes | None:
    stream = zlib.decompressobj()
    try:
        body = stream.decompress(data, bytes_max)
    except zlib.error:
        return None
    return body if stream.eof else None


def _unframed(data: bytes, codec: str, bytes_max: int) -> bytes | None:
    try:
        import pyarrow as pa
    except ImportError:
        return None
    pieces, size = [], 0
    try:
        stream = pa.CompressedInputStream(pa.BufferReader(data), codec)
        while piece := stream.read(_PIECE):
            pieces.append(piece)
            size += len(piece)
            if size > bytes_max:
                return None
    except (OSError, NotImplementedError):
        # Damaged; or a pyarrow that was built without this codec.
        return None
    return b"".join(pieces)
