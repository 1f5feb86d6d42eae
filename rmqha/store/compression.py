"""Bodies as their producers had them: zlib, and where pyarrow is installed lz4 and zstd, too.

Source: RocketMQ's protocol as observed (CompressionType and MessageSysFlag, RocketMQ 5.3.3): bit 0 of a record's flags
says that the body is compressed, bits 8 to 10 with what; lz4 and zstd bodies are whole frames.
"""

from __future__ import annotations

import zlib

from rmqha.store.record import COMPRESSED

BODY_MAX = 64 << 20
"""A compressed body that grows beyond this stays as it is stored."""
KIND_MASK = 0x700
ZLIB_KINDS = (0x000, 0x300)
"""Of old clients and of new ones."""
FRAMES = {0x100: "lz4", 0x200: "zstd"}
"""What pyarrow calls them."""
_PIECE = 1 << 20


def plain_body(body: bytes, sys_flag: int) -> bytes | None:
    """What a stored body was made of.

    Args:
        body: as it is stored.
        sys_flag: the record's flags.

    Returns:
        None when it is not compressed, or with something unknown, or damaged, or grows beyond
        ``BODY_MAX``; or when it takes pyarrow, and that is not installed.
    """
    kind = sys_flag & KIND_MASK
    if not sys_flag & COMPRESSED:
        return None
    if kind in ZLIB_KINDS:
        return _inflated(body)
    return _unframed(body, FRAMES[kind]) if kind in FRAMES and body else None


def _inflated(data: bytes) -> bytes | None:
    stream = zlib.decompressobj()
    try:
        body = stream.decompress(data, BODY_MAX)
    except zlib.error:
        return None
    return body if stream.eof else None


def _unframed(data: bytes, codec: str) -> bytes | None:
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
            if size > BODY_MAX:
                return None
    except (OSError, NotImplementedError):
        # Damaged; or a pyarrow that was built without this codec.
        return None
    return b"".join(pieces)
