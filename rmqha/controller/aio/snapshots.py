"""Snapshot files: the newest one, and one that is coming in from the leader."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Generator

from rmqha.base.errors import StoreCorrupted
from rmqha.base.ids import Term
from rmqha.controller.aio.wal import read_durable
from rmqha.controller.raft import wal_layout as layout
from rmqha.controller.raft.events import SnapshotMeta
from rmqha.runtime.aio.turns import in_turns
from rmqha.runtime.ports import Disk

SUFFIX = ".snapshot"


class Snapshots:
    """Holds the newest snapshot in memory, for it is small, and on disk, for it must last.

    Args:
        disk: the Disk port.
        directory: the store.
        cluster: written into each file and checked when it is read.
    """

    def __init__(self, disk: Disk, directory: str, *, cluster: str) -> None:
        self._disk = disk
        self._directory = directory
        self._cluster = cluster
        self._name: str | None = None
        self._incoming = bytearray()
        self.meta = SnapshotMeta()
        self.data = b""

    async def open(self) -> SnapshotMeta:
        """Read the newest snapshot, if there is one.

        Raises:
            StoreCorrupted, StoreMismatch, DiskFailed: it cannot be used; nothing was changed.
        """
        await self._disk.make_dirs(self._directory)
        names = [n for n in await self._disk.list_dir(self._directory) if n.endswith(SUFFIX)]
        if names:
            self._name = names[-1]
            content = await read_durable(self._disk, self._path(self._name))
            index, term, self.data = layout.decode_snapshot(self._name, content, self._cluster)
            self.meta = SnapshotMeta(index, term, len(self.data), layout.digest(self.data))
            for older in names[:-1]:
                await self._disk.remove(self._path(older))
        return self.meta

    async def save(self, index: int, term: Term, data: bytes) -> SnapshotMeta:
        """Make a snapshot durable; the one before is deleted afterwards.

        Raises:
            DiskFailed: the write failed; the snapshot before is still there.
        """
        name = f"{index:020d}{SUFFIX}"
        encoder = layout.SnapshotEncoder(self._cluster, index, term, data)
        for _ in encoder.slices():
            await asyncio.sleep(0)
        await self._disk.write_atomic(self._path(name), encoder.content())
        if index < self.meta.last_index:
            # A newer one was installed from the leader meanwhile.
            await self._disk.remove(self._path(name))
            return self.meta
        before, self._name = self._name, name
        self.meta = SnapshotMeta(index, term, len(data), encoder.digest)
        self.data = data
        if before not in (None, name):
            await self._disk.remove(self._path(str(before)))
        return self.meta

    def forget(self) -> None:
        """The files have been set aside: there is no snapshot."""
        self._name, self.meta, self.data = None, SnapshotMeta(), b""

    def chunk(self, meta: SnapshotMeta, offset: int, length: int) -> bytes | None:
        """Bytes of the newest snapshot; None when ``meta`` is not the newest any more."""
        if meta != self.meta:
            return None
        return self.data[offset : offset + length]

    def receive(self, offset: int, data: bytes) -> None:
        """Keep a chunk of an incoming snapshot; offset 0 starts anew."""
        if offset == 0:
            self._incoming.clear()
        self._incoming += data

    async def install(
        self, meta: SnapshotMeta, check: Callable[[bytes], Generator[None, None, None]]
    ) -> bytes:
        """Make the incoming snapshot the newest one.

        Args:
            meta: what the leader announced.
            check: raises StoreCorrupted or StoreMismatch for a state that cannot be loaded; in parts.

        Raises:
            StoreCorrupted, StoreMismatch: not what was announced, or cannot be loaded; nothing
                was written.
            DiskFailed: the write failed.
        """
        data = bytes(self._incoming)
        self._incoming.clear()
        if len(data) != meta.size:
            raise StoreCorrupted(f"snapshot {meta.last_index} came with {len(data)} bytes")
        if layout.digest(data) != meta.digest:
            raise StoreCorrupted(f"snapshot {meta.last_index} came with other bytes than were sent")
        await in_turns(check(data))
        await self.save(meta.last_index, meta.term, data)
        return data

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)
