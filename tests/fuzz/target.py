"""What a decoder is given and may do: a value, or one of its documented errors, and nothing else."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

CORPUS = Path(__file__).resolve().parent.parent / "corpus"
GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "5.3.3"
INPUT_BYTES_MAX = 4096
"""Of what a fuzzer makes; ``test_decoders.py`` has larger ones."""


class Target(Struct, frozen=True):
    """A decoder.

    Attributes:
        decode: is given any bytes.
        errors: what it may raise.
        seeds: bytes that it reads, from our encoders or from Java.
    """

    name: str
    decode: Callable[[bytes], object]
    errors: tuple[type[Exception], ...]
    seeds: tuple[bytes, ...]

    def run(self, data: bytes) -> bool:
        """Decode; whether that gave a value. Anything but a documented error is raised."""
        try:
            self.decode(data)
        except self.errors:
            return False
        return True

    def corpus(self) -> list[bytes]:
        """The seeds, and what fuzzing has found beside them: inputs that go where no other does."""
        path = CORPUS / f"{self.name}.txt"
        kept = path.read_text().split() if path.exists() else []
        return [*self.seeds, *map(bytes.fromhex, kept)]


def as_json(*values: Any) -> tuple[bytes, ...]:
    """Seeds of JSON."""
    return tuple(json.dumps(value, separators=(",", ":")).encode() for value in values)


@functools.cache
def golden(name: str) -> tuple[Mapping[str, Any], ...]:
    """What was recorded of Java, line by line."""
    lines = (GOLDEN / f"{name}.jsonl").read_text().splitlines()
    return tuple(map(json.loads, lines))


@functools.cache
def frames(name: str) -> tuple[bytes, ...]:
    """Frames of Java, the shortest of each code and direction."""
    found: dict[tuple[int, bool], bytes] = {}
    for line in golden(name):
        frame, key = bytes.fromhex(line["hex"]), (line["request_code"], line["response"])
        if key not in found or len(frame) < len(found[key]):
            found[key] = frame
    return tuple(found.values())


def header_of(frame: bytes) -> bytes:
    """The header of a whole frame."""
    return frame[8 : 8 + int.from_bytes(frame[5:8])]


def body_of(frame: bytes) -> bytes:
    """The body of a whole frame."""
    return frame[8 + int.from_bytes(frame[5:8]) :]
