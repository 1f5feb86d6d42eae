"""What a controller would know if it lost power now: its real recovery, on a copy of its platter.

Nothing here knows a file format: whatever ``RaftNode.open`` makes of the files is the answer.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from types import SimpleNamespace
from typing import Any, cast

from rmqha.base.errors import DiskFailed, StoreCorrupted, StoreMismatch
from rmqha.base.invariants import invariant
from rmqha.controller.aio.raft_node import RaftNode
from rmqha.controller.raft.core import RaftCore
from rmqha.controller.settings import ControllerConfig
from rmqha.remoting.settings import RemotingSettings
from rmqha.runtime.logs import Logger
from rmqha.sim.disk import SimDisk, SimFile


class Remains:
    """A node as it would start from its disk (``verify.raft.OnDisk``).

    Args:
        core: as recovery made it.
    """

    def __init__(self, core: RaftCore) -> None:
        self._node = core.node
        self.term = core.node.term
        self.vote = core.node.vote

    @property
    def last(self) -> tuple[int, int]:
        """Term and index of the last entry."""
        return self._node.log.last_term, self._node.log.last_index

    def holds(self, index: int, term: int) -> bool:
        """Whether the entry, or a snapshot that covers it, is there."""
        log = self._node.log
        if max(log.base_index, self._node.snapshot.last_index) >= index:
            return True
        return log.term_at(index) == term


class _Bench(SimDisk):
    """A copy of a disk on which nothing takes time."""

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(random.Random(0))
        for path, data in files.items():
            file = self.files[path] = SimFile()
            file.durable = data

    async def sync(self) -> None:
        """Every sync is done at once."""

    async def open_append(self, path: str, reserve_bytes: int = 0) -> Any:
        """A file that takes everything at once."""
        return _BenchFile()


class _BenchFile:
    """AppendFile port, for a node that will never write more than its opening."""

    size = 0

    def append(
        self,
        data: bytes,
        on_done: Callable[[DiskFailed | None], object],
        *,
        may_block: bool = False,
    ) -> None:
        """Done at once."""
        on_done(None)

    async def append_sync(self, data: bytes) -> None:
        """Done at once."""

    async def close(self) -> None:
        """Nothing is held."""


class _Findings(Logger):
    """Keeps what recovery has to say against a store."""

    def __init__(self) -> None:
        """There is no stream to write to."""
        self.damage = ""

    def log(self, level: str, event: str, **facts: object) -> None:
        """Only one line matters."""
        if event == "store_damaged":
            self.damage = str(facts.get("reason"))


class _NoMachine:
    """A state machine that takes any call and keeps nothing."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args: None

    def check_snapshot(self, data: bytes) -> Generator[None, None, None]:
        """No part: whoever opens the store waits for nothing."""
        yield from ()


class Autopsy:
    """Opens one host's store as often as its disk has changed.

    Args:
        config: the node's.
        disk: looked at, never touched.
    """

    def __init__(self, config: ControllerConfig, disk: SimDisk) -> None:
        self._config = config
        self._disk = disk
        self._version = -1
        self._found: Remains | None = None

    def remains(self) -> Remains:
        """What is durable now.

        Raises:
            InvariantBroken: recovery would refuse it.
        """
        if self._found is None or self._version != self._disk.version:
            self._found = Remains(self._open())
            self._version = self._disk.version
        return self._found

    def _open(self) -> RaftCore:
        config = self._config
        findings = _Findings()
        clock = SimpleNamespace(now_ms=lambda: 0)
        node = RaftNode(
            group=config.group,
            node_id=config.self_id,
            members=config.peers,
            store_path=config.store_path,
            settings=config.raft_settings(),
            remoting=RemotingSettings(),
            machine=cast(Any, _NoMachine()),
            snapshot_every=config.integer("snapshotEveryEntries"),
            segment_bytes=config.integer("walSegmentBytes"),
            clock=cast(Any, clock),
            rng=cast(Any, SimpleNamespace(randint=lambda low, high: low)),
            disk=_Bench(self._disk.survivors()),
            network=cast(Any, None),
            log=findings,
        )
        opening = node.open()
        try:
            opening.send(None)
        except StopIteration:
            if not findings.damage and node.core is not None:
                return node.core
        except (StoreCorrupted, StoreMismatch) as error:
            findings.damage = str(error)
        finally:
            opening.close()
        invariant(
            False,
            "a store that nothing damaged would be refused",
            node=config.self_id,
            reason=findings.damage or "opening it waited for something",
        )
        raise RuntimeError("unreachable")
