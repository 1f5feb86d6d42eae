"""A trace on disk: bounded, written beside the work, and never a reason to stop.

What cannot be written is not recorded: the process goes on, the log says so once, and the trace
ends with the reason. Records of the last moments before a crash may be missing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress

from rmqha import __version__
from rmqha.base.errors import DiskFailed
from rmqha.runtime import trace
from rmqha.runtime.logs import Logger
from rmqha.runtime.ports import AppendFile, Clock, Disk

GATHER_MS = 50
"""So long records are gathered for one write."""

WAITING_BYTES_MAX = 16 << 20
"""Records in memory beyond a write under way; a disk that takes no more ends the trace."""

OLD_SUFFIX = ".1"
"""Of the trace of the process before this one."""


class TraceFile:
    """The trace of one process.

    Args:
        disk, clock, log: as everywhere.
        path: absolute; a file of this name is kept as ``path.1``.
        bytes_max: of the file; the trace ends there.
    """

    def __init__(self, disk: Disk, clock: Clock, log: Logger, path: str, bytes_max: int) -> None:
        self._disk = disk
        self._clock = clock
        self._log = log
        self._path = path
        self._bytes_max = bytes_max
        self._bytes = 0
        self._cores = 0
        self._waiting = bytearray()
        self._file: AppendFile | None = None
        self._writing = False
        self._gathering = False
        self._ended = False

    async def open(self) -> None:
        """Begin a new file; without one nothing is recorded."""
        try:
            await self._disk.make_dirs(os.path.dirname(self._path))
            with suppress(FileNotFoundError):
                await self._disk.rename(self._path, self._path + OLD_SUFFIX)
            self._file = await self._disk.open_append(self._path)
        except DiskFailed as error:
            self._give_up(str(error))
            return
        self._put(
            trace.encode(trace.Opened(trace.TRACE_VERSION, __version__, self._clock.wall_ms()))
        )
        self._log.log("info", "trace_begun", path=self._path, bytes_max=self._bytes_max)

    def core(self, kind: trace.Kind, start: object) -> CoreTrace:
        """Begin to record one core; ``start`` is what ``kind.make`` makes it from."""
        self._cores += 1
        self.add(trace.begun(self._cores, kind, start))
        return CoreTrace(self, self._cores, kind)

    @property
    def is_recording(self) -> bool:
        """Whether records are still taken."""
        return self._file is not None and not self._ended

    def add(self, record: trace.Record) -> None:
        """Write a record soon."""
        if not self.is_recording:
            return
        data = trace.encode(record)
        if self._bytes + len(data) > self._bytes_max:
            self.end("traceBytesMax is reached")
            return
        if len(self._waiting) + len(data) > WAITING_BYTES_MAX:
            self.end("the disk did not keep up")
            return
        self._put(data)

    async def close(self) -> None:
        """Write what waits, and close the file."""
        file, self._file = self._file, None
        if file is None:
            return
        try:
            if self._waiting:
                waiting, self._waiting = bytes(self._waiting), bytearray()
                await file.append_sync(waiting)
            await file.close()
        except DiskFailed as error:
            self._give_up(str(error))

    def end(self, reason: str) -> None:
        """Say in the trace itself that it ends; this record may exceed the maximum."""
        self._put(trace.encode(trace.Ended(reason)))
        self._give_up(reason)

    def _give_up(self, reason: str) -> None:
        if not self._ended:
            self._ended = True
            self._log.log("warning", "trace_ended", path=self._path, reason=reason)

    def _put(self, data: bytes) -> None:
        self._bytes += len(data)
        self._waiting += data
        if not self._writing and not self._gathering:
            self._gathering = True
            self._clock.call_later(GATHER_MS, self._write)

    def _write(self) -> None:
        self._gathering = False
        if self._file is None or not self._waiting:
            return
        self._writing = True
        waiting, self._waiting = bytes(self._waiting), bytearray()
        self._file.append(waiting, self._written)

    def _written(self, error: DiskFailed | None) -> None:
        self._writing = False
        if error is not None:
            self._give_up(str(error))
            self._waiting.clear()
        else:
            self._write()


class CoreTrace:
    """The part of a trace that is about one core; a ``driver.Recorder``."""

    def __init__(self, file: TraceFile, number: int, kind: trace.Kind) -> None:
        self._file = file
        self._number = number
        self._kind = kind

    def stepped(self, now_ms: int, event: object, effects: Sequence[object]) -> None:
        """A step has been made."""
        if not self._file.is_recording:
            return
        try:
            record = trace.stepped(self._number, self._kind, now_ms, event, effects)
        except TypeError as error:
            self._file.end(str(error))
        else:
            self._file.add(record)

    def failed(self, now_ms: int, event: object, error: Exception) -> None:
        """A step has raised."""
        self.stepped(now_ms, event, trace.failure_of(error))


def trace_file(
    values: Mapping[str, str], home: str, disk: Disk, clock: Clock, log: Logger
) -> TraceFile | None:
    """The trace that a configuration asks for; None when ``traceFile`` is empty.

    Args:
        values: ``traceFile`` and ``traceBytesMax``, a number.
        home: the directory of the store, from which a relative path is taken.
        disk, clock, log: as everywhere.
    """
    if not values["traceFile"]:
        return None
    path = os.path.abspath(os.path.join(home, values["traceFile"]))
    return TraceFile(disk, clock, log, path, int(values["traceBytesMax"]))
