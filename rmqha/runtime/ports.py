"""What a shell may touch: clock, random numbers, disk and network, as Protocols.

Shells take these as arguments, so the same shell runs on the real machine (``runtime/aio``)
and unchanged in the simulator (``sim``). All durations are milliseconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple, Protocol

from rmqha.base.errors import DiskFailed


class TimerHandle(Protocol):
    """A timer that has not fired yet."""

    def cancel(self) -> None:
        """Forget the callback; harmless when it has already run."""


class Clock(Protocol):
    """Time that only grows, timers, and the wall clock for stamps that people read."""

    def now_ms(self) -> int:
        """Milliseconds of a clock that never goes back; its origin means nothing."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970; may jump. Never decides anything."""

    def call_later(
        self, delay_ms: float, callback: Callable[..., object], *args: object
    ) -> TimerHandle:
        """Run ``callback(*args)`` once in the event loop after ``delay_ms``."""

    async def sleep(self, delay_ms: float) -> None:
        """Wait for ``delay_ms``."""


class DiskUse(Protocol):
    """How full the disks of a store are; calling it gives the share in use of the commit log's."""

    def __call__(self) -> float:
        """The share in use, 0.0 to 1.0, of the commit log's disk."""

    def of_queues(self) -> float:
        """That of the disk of all the rest; often the same one."""

    def space(self) -> tuple[int, int]:
        """All bytes of the commit log's disk, and the free ones."""


class Rng(Protocol):
    """Random numbers; seeded in the simulator."""

    def randint(self, low: int, high: int) -> int:
        """An integer with ``low <= n <= high``."""


class Listener(Protocol):
    """A listening socket."""

    @property
    def port(self) -> int:
        """The port in use, also when 0 was asked for."""

    def close(self) -> None:
        """Stop accepting; connections that exist go on."""

    async def wait_closed(self) -> None:
        """Wait until the socket is gone."""


class Network(Protocol):
    """Byte streams with asyncio's Transport and Protocol at their ends."""

    async def listen(
        self, host: str, port: int, factory: Callable[[], asyncio.Protocol]
    ) -> Listener:
        """Accept connections on ``host:port``; one protocol of ``factory`` each.

        Raises:
            OSError: when the address cannot be used.
        """

    async def connect(
        self, host: str, port: int, factory: Callable[[], asyncio.Protocol], *, timeout_ms: int
    ) -> asyncio.Transport:
        """Open a connection.

        Raises:
            ConnectFailed: when nobody answers within ``timeout_ms``.
        """


class Names(Protocol):
    """Where addresses are looked up that others may change at any moment."""

    async def resolve(self, host: str, *, timeout_ms: int) -> list[str]:
        """All IP addresses of a name, in any order.

        Raises:
            LookupFailed: it has none, or the resolver did not say within ``timeout_ms``.
        """

    async def get(self, url: str, *, timeout_ms: int) -> str:
        """What an HTTP server answers.

        Raises:
            LookupFailed: no success (200), too much, or nothing within ``timeout_ms``.
        """


class AppendFile(Protocol):
    """A file that only grows."""

    @property
    def size(self) -> int:
        """Bytes written so far, durable or under way."""

    def append(
        self,
        data: bytes,
        on_done: Callable[[DiskFailed | None], object],
        *,
        may_block: bool = False,
    ) -> None:
        """Write at the end; ``on_done(None)`` is called once it is durable (fdatasync).

        With ``may_block`` the event loop may wait for a disk that has been quick lately. Calls end
        in their order. After the first error every call ends with it, and what the file holds
        past the last success is unknown; but for DiskFull, after which the file is as it was
        before this call, and the same or something else may be appended.
        """

    async def append_sync(self, data: bytes) -> None:
        """Write at the end and return when it is durable (fdatasync).

        Raises:
            DiskFailed: what the file holds past the last success is unknown.
        """

    async def close(self) -> None:
        """Release the file."""


class MappedFile(Protocol):
    """A file of fixed length in memory: what is written to ``buffer`` is in the page cache at
    once, and durable after a ``sync`` that began later."""

    @property
    def path(self) -> str:
        """The absolute path."""

    @property
    def size(self) -> int:
        """Bytes; never changes."""

    @property
    def buffer(self) -> memoryview:
        """The whole file, writable; slices of it are never copies."""

    def write(self, position: int, data: memoryview) -> None:
        """Copy bytes to ``position``: as through ``buffer``, but no page is mapped for it.

        Raises:
            DiskFailed: the file can no longer be written.
        """

    def reserve(self, end: int) -> None:
        """Get blocks for everything before ``end``; to be called before ``buffer`` is written there.

        Nothing happens to a file that is not sparse: it has all its blocks.

        Raises:
            DiskFull: there are none. Without blocks a write through ``buffer`` ends the process.
            DiskFailed: another error.
        """

    async def sync(self) -> None:
        """Make everything written before this call durable (fdatasync).

        Raises:
            DiskFailed: what the file holds on disk is unknown from now on.
        """

    def is_cached(self, low: int, high: int) -> bool:
        """Whether bytes [low, high) are in memory; who looks at others waits for the disk."""

    async def fetch(self, low: int, high: int) -> None:
        """Bring them into memory, without holding up the loop.

        Raises:
            DiskFailed: they cannot be read.
        """

    async def make_writable(self, *ranges: tuple[int, int]) -> None:
        """Have bytes [low, high) of each range take writes without waiting, for a moment.

        They do not change. Nothing happens where the system knows no way.

        Raises:
            DiskFailed: the file is closed.
        """

    async def erase(self, low: int, high: int) -> int:
        """Make bytes [low, high) zeros, and then everything durable, without holding up the loop.

        A crash in the middle leaves old bytes in any part of the range.

        Returns:
            Bytes of the pieces in which there was anything but zeros.

        Raises:
            DiskFailed: as :meth:`sync`.
        """

    def close(self) -> None:
        """Release the mapping once the last slice of ``buffer`` is gone. Syncs nothing."""


class Surveyed(NamedTuple):
    """A file as a look from outside finds it.

    Attributes:
        name: within its directory.
        size: bytes.
        head: everything up to the last byte that was ever written; None when that is more than was
            asked for.
        inode, has_blocks: as the system tells them: which file it is, and that it is not sparse.
    """

    name: str
    size: int
    head: bytes | None
    inode: int = 0
    has_blocks: bool = False


class Disk(Protocol):
    """Files by absolute path. Each call returns when its effect is durable."""

    async def make_dirs(self, path: str, *, later: bool = False) -> None:
        """Create a directory and its parents; it may exist.

        With ``later`` it is durable only with the first sync of a new sparse file in it.
        """

    async def list_dir(self, path: str) -> list[str]:
        """Names in a directory, sorted; empty when there is no such directory."""

    async def survey(self, path: str, head_bytes: int) -> dict[str, list[Surveyed]]:
        """The files of each directory in ``path``, sorted, without mapping any.

        Args:
            path: a directory of directories; nothing is in one that is missing, or in a file.
            head_bytes: what is read of a file at most.

        Raises:
            DiskFailed: it cannot be read.
        """

    async def read(self, path: str) -> bytes:
        """The whole file.

        Raises:
            FileNotFoundError: when there is none.
            DiskFailed: when it cannot be read.
        """

    async def open_append(self, path: str, reserve_bytes: int = 0) -> AppendFile:
        """Open for appending, creating the file (and its directory entry) durably.

        Args:
            path: of the file.
            reserve_bytes: zeros may be written ahead of the end, up to this length of the file, so
                that a sync need not record a new length. They are there after a crash; ``close``
                takes them back.
        """

    async def write_again(self, path: str, data: bytes) -> None:
        """Write a file's first bytes anew, in their places, cut what is behind, and sync it.

        For who starts: of pages of which a sync has failed Linux says later that all is well, and
        shows them as long as it has them. What an earlier process wrote may be on no disk.

        Args:
            data: what was read there.
        """

    async def write_atomic(self, path: str, data: bytes) -> None:
        """Replace a whole file: either the old or the new content survives a crash.

        Raises:
            DiskFull: the old content is there.
            DiskFailed: likewise, and nobody knows what else.
        """

    async def remove(self, path: str) -> None:
        """Delete a file; it may be missing."""

    async def rename(self, path: str, new_path: str) -> None:
        """Give a file another name, in place of what has that name.

        Raises:
            FileNotFoundError: there is none.
        """

    def map_file(self, path: str, size: int, *, create: bool, sparse: bool = False) -> MappedFile:
        """Map a file, without waiting; a new one is zero-filled, with its blocks reserved.

        One that is ``sparse`` gets blocks by ``reserve``, and its ``buffer`` may raise DiskFailed:
        it is mapped while somebody uses it.

        Its directory entry is durable after the first ``sync``. Directories must exist.

        Raises:
            FileNotFoundError: there is none and ``create`` is false.
            DiskFailed: it cannot be mapped, has another size, or the disk is full.
        """

    def map_surveyed(self, path: str, found: Surveyed) -> MappedFile:
        """The same for a sparse file that :meth:`survey` has just found; nothing is opened yet."""

    async def prepare_file(self, directory: str, size: int) -> None:
        """Get the blocks of one new file ready, for a later ``map_file`` in this directory.

        A hint: it may do nothing, never fails, and leaves no name behind, also after a crash.
        """

    def drop_prepared(self, directory: str) -> None:
        """Give back what was prepared for a directory and not used."""

    async def file_size(self, path: str) -> int:
        """Length in bytes.

        Raises:
            FileNotFoundError: when there is none.
        """
