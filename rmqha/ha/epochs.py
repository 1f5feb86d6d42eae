"""Which master wrote which part of the log: the epochs, and their text form on disk.

An entry's end is the next entry's start and is never stored, so it cannot be stale. Two
entries may start at the same offset: an epoch in which nothing was written stays, since slaves
may know only that one.

Source: RIP-44, "Election Truncation Algorithm"; EpochFileCache of RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from rmqha.base.errors import StoreCorrupted
from rmqha.base.ids import MasterEpoch
from rmqha.remoting.headers import INT32_MAX

OFFSET_MAX = 2**63 - 1
"""Java's end of the last epoch, where an end has to be shown."""

NO_EPOCH = MasterEpoch(-1)
"""The last epoch of a log that has none."""

_CRC_MASK = 0x7FFFFFFF


class EpochEntry(NamedTuple):
    """An epoch's number and its first byte."""

    epoch: MasterEpoch
    start: int


class EpochSpan(NamedTuple):
    """An epoch's number, first byte, and the byte after its last."""

    epoch: MasterEpoch
    start: int
    end: int


class EpochCache:
    """The epochs of one log, ascending.

    Args:
        entries: epochs strictly ascending, starts ascending.

    Raises:
        StoreCorrupted: they are not.
    """

    def __init__(self, entries: Iterable[EpochEntry] = ()) -> None:
        self._entries: list[EpochEntry] = []
        for entry in entries:
            if not self.append(entry):
                raise StoreCorrupted(f"epoch {entry} does not follow {self._entries[-1:]}")

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        """All of them, ascending."""
        return tuple(self._entries)

    @property
    def last(self) -> EpochEntry | None:
        """The newest of all epochs."""
        return self._entries[-1] if self._entries else None

    @property
    def last_epoch(self) -> MasterEpoch:
        """The newest epoch's number; -1 when there is none."""
        return self._entries[-1].epoch if self._entries else NO_EPOCH

    def spans(self, log_end: int = OFFSET_MAX) -> list[EpochSpan]:
        """Entries with their ends; the last one's is ``log_end``, or its start if that is later."""
        return spans(self._entries, log_end)

    def append(self, entry: EpochEntry) -> bool:
        """Add a newer epoch.

        Returns:
            False, with nothing changed, when it is not newer or starts before the last one, or is
            negative or starts at a negative offset.
        """
        last = self.last
        if (
            entry.epoch < 0
            or entry.start < 0
            or (last is not None and (entry.epoch <= last.epoch or entry.start < last.start))
        ):
            return False
        self._entries.append(entry)
        return True

    def get(self, epoch: MasterEpoch) -> EpochEntry | None:
        """The entry with this number."""
        return next((entry for entry in self._entries if entry.epoch == epoch), None)

    def next(self, epoch: MasterEpoch) -> EpochEntry | None:
        """The first entry with a larger number."""
        return next((entry for entry in self._entries if entry.epoch > epoch), None)

    def find(self, offset: int) -> EpochSpan | None:
        """The epoch that the byte at ``offset`` belongs to; the last one has no end."""
        at = bisect_right(self._entries, offset, key=lambda entry: entry.start) - 1
        if at < 0:
            return None
        end = self._entries[at + 1].start if at + 1 < len(self._entries) else OFFSET_MAX
        return EpochSpan(*self._entries[at], end)

    def drop_beyond(self, log_end: int) -> bool:
        """Drop epochs that start after the end of the log; whether anything changed."""
        return self._keep([entry for entry in self._entries if entry.start <= log_end])

    def truncate_prefix_by_offset(self, offset: int) -> bool:
        """Drop epochs that end at or before ``offset``, never the last; whether any was.

        An empty epoch that stands at ``offset`` itself stays.
        """
        kept = [span for span in self.spans()[:-1] if span.end > offset or span.start >= offset]
        last = self._entries[-1:]
        return self._keep([EpochEntry(span.epoch, span.start) for span in kept] + last)

    def adopt(self, master: Iterable[EpochEntry], log_end: int) -> bool:
        """Take a master's view of a log that equals its log up to ``log_end``.

        Entries that the master has dropped with its oldest files stay.

        Returns:
            Whether anything changed.
        """
        known = [entry for entry in master if entry.start <= log_end]
        if not known:
            return False
        first = known[0]
        older = [e for e in self._entries if e.epoch < first.epoch and e.start <= first.start]
        return self._keep(list(EpochCache([*older, *known]).entries))

    def _keep(self, entries: list[EpochEntry]) -> bool:
        changed = entries != self._entries
        self._entries = entries
        return changed


def spans(entries: Iterable[EpochEntry], log_end: int) -> list[EpochSpan]:
    """Give entries their ends."""
    listed = list(entries)
    ends = [entry.start for entry in listed[1:]]
    if listed:
        ends.append(max(log_end, listed[-1].start))
    return [EpochSpan(*entry, end) for entry, end in zip(listed, ends, strict=True)]


def find_consistent_point(
    local: Iterable[EpochEntry], local_max: int, remote: Iterable[EpochEntry], remote_max: int
) -> int:
    """Where two logs part: both are equal before it.

    From the newest local epoch down, the first one that the other side also has with the same
    start decides: the smaller of its two ends. Local epochs that start beyond the local log do
    not count, so the result is never greater than ``local_max``.

    Args:
        local, remote: epochs, ascending.
        local_max, remote_max: the ends of the logs, that is of the last epochs.

    Returns:
        A physical offset, or -1 when no epoch is common.
    """
    # RIP-44, "Election Truncation Algorithm". An epoch has one master and so one history: if both
    # logs have it from the same offset on, the shorter of the two is the beginning of the longer.
    # The same number with another start is another history: two masters began at different ends
    # of the log, and one of them was never heard by the other side.
    theirs = {span.epoch: span for span in spans(remote, remote_max)}
    mine = spans((entry for entry in local if entry.start <= local_max), local_max)
    for span in reversed(mine):
        other = theirs.get(span.epoch)
        if other is not None and other.start == span.start:
            # Not the larger end: behind the smaller one the other log is in its next epoch.
            return min(span.end, other.end)
    return -1


def format_epochs(entries: Iterable[EpochEntry]) -> bytes:
    """The text of ``epochFileCheckpoint``: count, CRC-32 of the lines, one line an entry."""
    lines = [f"{entry.epoch}-{entry.start}\n" for entry in entries]
    body = "".join(lines)
    crc = zlib.crc32(body.encode()) & _CRC_MASK
    return f"{len(lines)}\n{crc}\n{body}".encode()


def parse_epochs(text: bytes) -> EpochCache:
    """Read ``epochFileCheckpoint``; a stored CRC of 0 is not checked, as in Java.

    Raises:
        StoreCorrupted: what is wrong, with the line.
    """
    try:
        lines = text.decode().splitlines()
        if not lines:
            raise StoreCorrupted("epoch file is empty")
        count, crc = int(lines[0]), int(lines[1])
        entries = [_parse_line(line) for line in lines[2:]]
    except (UnicodeDecodeError, IndexError, ValueError) as error:
        raise StoreCorrupted(
            f"epoch file is not count, CRC and epoch-offset lines: {error}"
        ) from error
    if count != len(entries):
        raise StoreCorrupted(f"epoch file announces {count} epochs and has {len(entries)}")
    body = "".join(f"{line}\n" for line in lines[2:])
    found = zlib.crc32(body.encode()) & _CRC_MASK
    if crc not in (0, found):
        raise StoreCorrupted(f"epoch file has CRC {crc}, its lines {found}")
    return EpochCache(entries)


def _parse_line(line: str) -> EpochEntry:
    numbers = line.split("-")
    epoch, start = map(int, numbers)
    # A number that no slave could be sent is none of Java's, or ours.
    if epoch > INT32_MAX or start > OFFSET_MAX:
        raise ValueError(f"{line[:80]} has numbers of more than 32 and 64 bits")
    return EpochEntry(MasterEpoch(epoch), start)


class LoadedEpochs(NamedTuple):
    """Epochs read from disk, and why the backup had to serve, if it had to."""

    epochs: EpochCache
    damage: str | None


def load_epochs(main: bytes | None, backup: bytes | None) -> LoadedEpochs:
    """Choose between the file and its ``.bak``; None is a missing file.

    The backup may lack the newest epochs. That is safe: the next handshake finds an earlier
    consistent point.

    Raises:
        StoreCorrupted: the file is damaged and its backup cannot replace it.
    """
    damage = "epoch file is missing"
    if main is not None:
        try:
            return LoadedEpochs(parse_epochs(main), None)
        except StoreCorrupted as error:
            damage = str(error)
    if backup is None:
        if main is None:
            return LoadedEpochs(EpochCache(), None)
        raise StoreCorrupted(f"{damage}; there is no backup")
    try:
        return LoadedEpochs(parse_epochs(backup), damage)
    except StoreCorrupted as error:
        raise StoreCorrupted(f"{damage}; and its backup: {error}") from error
