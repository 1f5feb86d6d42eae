"""Inputs made of others, without looking at what they cover."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from tests.fuzz.target import INPUT_BYTES_MAX

EDGES = (
    b"\x00", b"\xff", b"\x7f", b"\x80", b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff" * 4,
    b"\x7f" + b"\xff" * 7, b"\x80" + b"\x00" * 7, b"[", b"{", b'"', b"-1", b"9" * 20, b"1e999",
    b"null", b"true", b"\\u0000", b"\\ud800", b"\xed\xa0\x80", b"\xc3", b"(", b"'", b"\x01", b"\x02",
    b"0", b"1.5", b"{}", b"[]", b'""',
)  # fmt: skip
"""Numbers at the ends of their ranges, and signs and texts that formats give a meaning."""
NESTS = (b"[", b'{"a":', b"{1:", b"(", b"NOT ", b"\x91", b"\x81\x01", b"\xdc\x00\x01", b"-", b"\\")


def mutated(rng: random.Random, corpus: Sequence[bytes]) -> bytes:
    """One to four changes of an input."""
    data = bytearray(rng.choice(corpus))
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data) + 1)
        end = min(len(data), at + rng.choice((1, 1, 2, 4, 8, 40)))
        match rng.randrange(6):
            case 0:
                data[at:end] = rng.choice(EDGES)
            case 1:
                data[at:at] = rng.choice(EDGES)
            case 2:
                del data[at:end]
            case 3 if at < len(data):
                data[at] ^= 1 << rng.randrange(8)
            case 4:
                other = rng.choice(corpus)
                start = rng.randrange(len(other) + 1)
                data[at:at] = other[start : start + rng.choice((4, 16, 64))]
            case _:
                data[at:at] = data[at:end] * rng.choice((1, 2, 20))
    return bytes(data[:INPUT_BYTES_MAX])


def inflated(rng: random.Random, corpus: Sequence[bytes], size: int) -> Iterator[bytes]:
    """Inputs of about ``size`` bytes: a part of one repeated in its place, and what nests."""
    for data in corpus[:8]:
        for _ in range(4):
            start = rng.randrange(len(data) or 1)
            end = min(len(data), start + rng.choice((1, 2, 5, 20, 80)))
            part = data[start:end] or b"\0"
            yield data[:start] + part * (size // len(part)) + data[end:]
    for data in corpus[:3]:
        for part in NESTS:
            at = rng.randrange(len(data) + 1)
            yield data[:at] + part * (size // len(part)) + data[at:]
            yield part * (size // len(part))
    for part in (b'{"x":', b'{"code":1,"x":', b'{"code":904,"extFields":{"x":'):
        yield part + b"[" * size
        yield part + b"[" * (size // 2) + b"]" * (size // 2) + b"}"
