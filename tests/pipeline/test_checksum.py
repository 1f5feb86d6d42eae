"""The audit's checksum: no flipped bit goes unseen, wherever it is."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from rmqha.pipeline.commitlog.checksum import CHUNK_BYTES, checksum
from rmqha.pipeline.commitlog.pages import mapped

SEED = b"seed"


def whole(data: bytes | bytearray, seed: bytes = SEED) -> str:
    """Of all of it."""
    return checksum(memoryview(data), 0, len(data), seed)


@pytest.mark.parametrize("size", [1, 3, 4, 7, 8, 9, 12, 16, 21])
def test_bit_when_flipped_then_another_sum(size: int) -> None:
    """Every bit of small ranges, whose last word is not whole."""
    data = bytearray(random.Random(size).randbytes(size))
    before = whole(data)
    for bit in range(8 * size):
        data[bit // 8] ^= 1 << bit % 8
        assert whole(data) != before
        data[bit // 8] ^= 1 << bit % 8
    assert whole(data) == before


def test_highest_bits_when_two_are_flipped_then_another_sum() -> None:
    """Modulo 2**64 two of these cancel out: the words across tell them apart."""
    data = bytearray(64)
    before = whole(data)
    data[7] ^= 0x80
    data[15] ^= 0x80
    assert whole(data) != before


def test_long_range_when_changed_anywhere_then_another_sum(tmp_path: Path) -> None:
    """Chunks, their edges, a length that differs only in zeros; read from a file's middle."""
    size = 2 * CHUNK_BYTES + 5
    data = bytearray(random.Random(1).randbytes(size))
    before = whole(data)
    path = tmp_path / "file"
    path.write_bytes(b"abc" + data + b"rest")
    with mapped(str(path)) as buffer:
        assert checksum(buffer, 3, 3 + size, SEED) == before
    assert whole(data, b"other") != before
    assert whole(data + b"\0") != before
    for at in (0, CHUNK_BYTES - 1, CHUNK_BYTES, 2 * CHUNK_BYTES, size - 1):
        data[at] ^= 1
        assert whole(data) != before
        data[at] ^= 1
    data[:8], data[CHUNK_BYTES : CHUNK_BYTES + 8] = data[CHUNK_BYTES : CHUNK_BYTES + 8], data[:8]
    assert whole(data) != before
