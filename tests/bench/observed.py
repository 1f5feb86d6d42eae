"""What processes under attack take of the machine, sampled beside them.

Memory is what belongs to a process alone: pages of mapped files come and go with the log. Files are
counted without the log's own, which grow with what is stored and not with who knocks.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

import psutil
from msgspec import Struct, field

MIB = 1 << 20
MEMORY_S, FILES_S, RULERS_S = 1.0, 5.0, 1.0
LOG_FOLDERS = frozenset({"commitlog", "consumequeue", "index"})
MEMORY, DESCRIPTORS, FILES, FILE_MIB, CPU_S = "memory", "descriptors", "files", "file_mib", "cpu_s"


class Series(Struct):
    """One figure of one process over time."""

    at: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def add(self, value: float) -> None:
        """One more sample, of now."""
        self.at.append(time.monotonic())
        self.values.append(value)

    def between(self, begin: float, end: float) -> list[float]:
        """The samples of an interval."""
        return [value for at, value in zip(self.at, self.values, strict=False) if begin <= at < end]

    def most(self, begin: float, end: float) -> float:
        """The largest sample of an interval; 0 without one."""
        return max(self.between(begin, end), default=0.0)


def grows(values: Sequence[float], spare: float) -> bool:
    """Whether a figure still rises in the end: the last fifth against the middle one.

    Args:
        spare: a tenth more, and this, is no growth.
    """
    fifth = len(values) // 5
    if fifth < 1:
        return False
    middle = statistics.median(values[2 * fifth : 3 * fifth])
    return statistics.median(values[-fifth:]) > middle * 1.1 + spare


class Observer:
    """Samples processes, their folders and who rules, in a thread of its own.

    Args:
        pids: of the processes, by name.
        folders: of their files, by name.
        rulers: who leads and who is master just now, as one text; None when nobody says.
    """

    def __init__(
        self,
        pids: Mapping[str, int],
        folders: Mapping[str, Path],
        rulers: Callable[[], str | None],
    ) -> None:
        self.series: dict[tuple[str, str], Series] = {}
        self.rulers: list[tuple[float, str]] = []
        self.ended: dict[str, float] = {}
        self._processes = {name: psutil.Process(pid) for name, pid in pids.items()}
        self._folders = dict(folders)
        self._rulers = rulers
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._repeat, args=one, daemon=True)
            for one in (
                (MEMORY_S, self._look_at_processes), (FILES_S, self._look_at_files),
                (RULERS_S, self._look_at_rulers),
            )
        ]  # fmt: skip

    def __enter__(self) -> Self:
        for one in self._threads:
            one.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for one in self._threads:
            one.join(30)

    def of(self, name: str, what: str) -> Series:
        """One figure of one process."""
        return self.series.setdefault((name, what), Series())

    def forget(self, name: str) -> None:
        """The process is about to be ended on purpose."""
        self._processes.pop(name, None)

    def follow(self, name: str, pid: int) -> None:
        """It is back, as another process: its figures go on in the same series."""
        self._processes[name] = psutil.Process(pid)

    def changes(self, begin: float, end: float) -> list[str]:
        """Who came to rule in an interval, each time that it changed; a silence is no change."""
        known = [said for at, said in self.rulers if at < begin][-1:]
        before = known[0] if known else None
        found = []
        for at, said in self.rulers:
            if begin <= at < end:
                if before is not None and said != before:
                    found.append(f"{before} -> {said}")
                before = said
        return found

    def _repeat(self, period_s: float, look: Callable[[], None]) -> None:
        while not self._stopping.is_set():
            look()
            self._stopping.wait(period_s)

    def _look_at_processes(self) -> None:
        for name, process in [*self._processes.items()]:
            if name in self.ended or self._processes.get(name) is not process:
                continue
            try:
                memory, cpu = process.memory_info(), process.cpu_times()
                if process.status() == psutil.STATUS_ZOMBIE:
                    raise psutil.NoSuchProcess(process.pid)
                self.of(name, MEMORY).add((memory.rss - memory.shared) / MIB)
                self.of(name, DESCRIPTORS).add(process.num_fds())
                self.of(name, CPU_S).add(cpu.user + cpu.system)
            except psutil.Error:
                if self._processes.get(name) is process:
                    self.ended[name] = time.monotonic()

    def _look_at_files(self) -> None:
        for name, folder in self._folders.items():
            count, size = files_of(folder)
            self.of(name, FILES).add(count)
            self.of(name, FILE_MIB).add(size / MIB)

    def _look_at_rulers(self) -> None:
        said = None
        with contextlib.suppress(OSError, ValueError, KeyError):
            said = self._rulers()
        if said is not None:
            self.rulers.append((time.monotonic(), said))


def files_of(folder: Path) -> tuple[int, int]:
    """How many files there are but the log's, and the bytes that they take on the disk."""
    count = size = 0
    for place, folders, names in os.walk(folder):
        folders[:] = [one for one in folders if one not in LOG_FOLDERS]
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                size += os.stat(os.path.join(place, name)).st_blocks * 512
                count += 1
    return count, size
