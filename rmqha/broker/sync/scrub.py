"""How a replica looks for flipped bits in its log: where next, how fast, and which copy is right.

Every replica reads its own log below the confirmed offset, a range at a time, and asks the other
replicas of its set whether they have the same bytes. Each mends itself only:

* a record that is not whole, by its CRC or its form, is taken from the others: the copy that more of
  them have than any other, if it is whole and of the same epoch;
* one that is whole here and elsewhere, and still differs (a bit outside of what the CRC covers), is
  taken from the others if two of them agree, and more than agree with this one;
* everything else stays as it is, and is told.

A replica that knows no such question (one of Java's) is left out; then the CRC alone speaks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import NamedTuple

from rmqha.store.record import check_record

RANGE_BYTES = 256 << 10
"""Compared at a time."""

RECORDS_A_TURN = 64
"""Checked in one turn of the loop: a range of small ones held up who sends for 5 ms on a slow machine."""

RECORD_BYTES_MAX = 8 << 20
AGREEING_MIN = 2
IDLE_MS = 1_000
"""Between two looks whether there is more to read."""


class Place(NamedTuple):
    """A record in a range: where it begins in it, and its bytes."""

    at: int
    size: int


class Pace:
    """Where to read next, and when.

    Args:
        bytes_per_second: of its own log.
        pass_interval_ms: at least, from the begin of one pass to the begin of the next.

    Attributes:
        position: where to read on; a record begins there.
        passes: that went through the whole log.
    """

    def __init__(self, bytes_per_second: int, pass_interval_ms: int, now_ms: int) -> None:
        self._rate = bytes_per_second
        self._interval_ms = pass_interval_ms
        self._begun_ms = now_ms
        self._due_ms = now_ms + IDLE_MS
        self.position = 0
        self.passes = 0

    def wait_ms(self, now_ms: int) -> int:
        """How long to rest now."""
        return max(0, self._due_ms - now_ms)

    def next(self, now_ms: int, low: int, high: int) -> int | None:
        """Where to read; None when there is nothing to do now.

        Args:
            low, high: what may be read of the log.
        """
        self._due_ms = now_ms + IDLE_MS
        if self.position > high:
            # The log was cut.
            self.position = low
        if self.position >= high and now_ms - self._begun_ms >= self._interval_ms:
            self.passes += high > low
            self.position, self._begun_ms = low, now_ms
        self.position = max(self.position, low)
        return self.position if self.position < high else None

    def cut(self, start: int) -> None:
        """The log was cut, and may have grown again: what lies behind the record at ``start`` is new."""
        self.position = min(self.position, start)

    def read(self, now_ms: int, end: int) -> None:
        """The range that ends at ``end`` was looked at."""
        self._due_ms = now_ms + 1000 * max(1, end - self.position) // self._rate
        self.position = end


def digest(data: memoryview | bytes) -> str:
    """What two replicas compare instead of the bytes."""
    return blake2b(data, digest_size=16).hexdigest()


def is_whole(record: bytes | memoryview, offset: int) -> bool:
    """Whether bytes are one whole record that belongs to an offset."""
    size = len(record)
    head = check_record(record, 0, size, offset, check_crc=True, verify_property_crc=True)
    return head.size == size


def places(data: memoryview, begin: int) -> Iterator[Place]:
    """The records of a range that was found whole; ``begin`` is its offset."""
    at = 0
    while at < len(data):
        head = check_record(data, at, len(data), begin + at, check_crc=False)
        if head.size <= 0:
            return
        yield Place(at, head.size)
        at += head.size


def differing(own: memoryview, others: Sequence[bytes], begin: int) -> list[Place]:
    """The records of this replica that any other has otherwise.

    Args:
        others: the same range elsewhere.
    """
    return [
        place
        for place in places(own, begin)
        if any(
            own[place.at : place.at + place.size] != other[place.at : place.at + place.size]
            for other in others
        )
    ]


def choose(own: bytes | None, copies: Sequence[bytes]) -> bytes | None:
    """What a record has to be; None where that cannot be said, or it is that already.

    Args:
        own: this replica's bytes if they are whole, else None.
        copies: whole ones of other replicas, one each.
    """
    ranked = Counter(copies).most_common(2)
    if not ranked:
        return None
    best, votes = ranked[0]
    if len(ranked) > 1 and ranked[1][1] == votes:
        return None
    if own is None:
        return best
    if best == own or votes < AGREEING_MIN or votes <= 1 + copies.count(own):
        return None
    return best
