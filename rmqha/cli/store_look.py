"""The files of a stopped store's log, and a look through them for ``mqadmin convertStore``."""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.progress import Progress

from rmqha.base.errors import ConfigInvalid, StoreDamaged
from rmqha.doctor.aio.queue_files import log_end
from rmqha.store.aio.checkpoint_file import CHECKPOINT
from rmqha.store.aio.consume_queues import PLAIN as PLAIN_QUEUES
from rmqha.store.checkpoint import ABORT
from rmqha.store.checkpoint import read as read_checkpoint
from rmqha.store.dledger import Entry, EntryWalk
from rmqha.store.recovery import Segment, Stop, Walk, check_stop, search_later
from rmqha.store.scan import Run
from rmqha.store.segments import file_name, floor, joined, starts_of


class FileRow(NamedTuple):
    """A file of the log as it is now.

    Attributes:
        end: physical offset behind its last message.
        sha256: of its bytes up to there; equal for replicas whose logs are equal so far.
    """

    name: str
    end: int
    messages: int
    sha256: str


class Log:
    """The files of a log below a folder, which follow each other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        starts = starts_of(one.name for one in folder.iterdir())
        sizes = [(folder / file_name(start)).stat().st_size for start in starts]
        if sizes and not sizes[-1]:
            # One that was made and not filled up yet; Java's brokers remove it when they start.
            del starts[-1], sizes[-1]
        if not starts:
            raise ConfigInvalid(f"{folder}: there is no log")
        self.size = sizes[0]
        for start, size in zip(starts, sizes, strict=True):
            if size == 0 or size != self.size:
                name = folder / file_name(start)
                raise StoreDamaged(f"{name} has {size} bytes, the first file {self.size}")
        if joined(starts, self.size) != len(starts):
            raise StoreDamaged(f"{folder}: files are missing between the first and the last one")
        self.starts = starts
        self._mapped: tuple[int, memoryview] | None = None

    def view(self, start: int) -> memoryview:
        """The bytes of a file."""
        if self._mapped is None or self._mapped[0] != start:
            self._mapped = (start, self.map(start))
        return self._mapped[1]

    def map(self, start: int) -> memoryview:
        """The same, for who keeps it."""
        with (self.folder / file_name(start)).open("rb") as file:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))

    def body(self, entry: Entry) -> memoryview:
        """The record in an entry of DLedger."""
        start = floor(entry.position, self.size)
        return self.view(start)[entry.body - start : entry.body - start + entry.size]

    def walk(self, walk: EntryWalk, position: int) -> Iterator[Entry]:
        """Entries of DLedger from a position on, over all files."""
        for start in self.starts:
            if start + self.size > position and not walk.end:
                yield from walk.entries(self.view(start), start, max(0, position - start))


def content(path: Path) -> bytes | None:
    """Of a small file; None where there is none."""
    return path.read_bytes() if path.is_file() else None


def looked_through(store: Path, log: Log) -> list[FileRow]:
    """Check every message, in the way in which a store does that opens.

    Raises:
        StoreDamaged: a whole message stands behind one that is none; or the log ends before what the
            checkpoint, or after a stop in order a consume queue, says of it.
    """
    segments = [
        Segment(start, log.map(start), str(log.folder / file_name(start))) for start in log.starts
    ]
    walk = Walk(segments, 0, check_crc=True, property_crc=False)
    ends = {log.starts[0]: (log.starts[0], 0)}
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("Reading", total=len(log.starts) * log.size)
        for part in walk:
            if isinstance(part, Run):
                end, count = part.end, part.records
            else:
                end, count = part.offset + part.size, 1
            start = floor(end - 1, log.size)
            ends[start] = end, ends.get(start, (end, 0))[1] + count
            bar.update(task, completed=end - log.starts[0])
    stop = walk.stop
    later = next((one for one in search_later(segments, stop.offset) if one is not None), None)
    if later is not None:
        raise StoreDamaged(
            f"{log.folder}, offset {stop.offset}: {stop.reason}, and a whole message follows at"
            f" {later.offset}. If the broker was not stopped but killed, start it once more as it"
            " was and stop it; else take another replica's store"
        )
    _need_end(store, segments, stop)
    views = {one.start: one.buffer for one in segments}
    return [
        FileRow(
            file_name(start), end, count, hashlib.sha256(views[start][: end - start]).hexdigest()
        )
        for start, (end, count) in ends.items()
    ]


def _need_end(store: Path, segments: list[Segment], stop: Stop) -> None:
    """Refuse a log that has lost its end, as a store does that opens.

    A checkpoint of Java's knows when the newest message was stored that was durable. That is looked
    at as well, less the time by which it may be ahead: nobody else misses a file that no queue names.
    """
    checkpoint = read_checkpoint(content(store / CHECKPOINT) or b"")
    indexed = log_end(store / PLAIN_QUEUES)
    is_clean = not (store / ABORT).exists()
    check_stop(segments, stop, checkpoint, None, clean=is_clean, indexed=indexed)
    durable_ms = checkpoint.durable_timestamp
    if checkpoint.flushed_offset is None and stop.last_timestamp < durable_ms:
        raise StoreDamaged(
            f"{segments[-1].path}: the log ends at {stop.offset} with a message stored at"
            f" {stop.last_timestamp} ms, but the checkpoint says that one stored at"
            f" {checkpoint.physic_msg_timestamp} ms was durable. If its end was not lost but the"
            " clock was put back, let the broker as it was take one more message"
        )
