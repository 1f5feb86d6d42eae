"""What every node of a test cluster can be told, whatever it runs in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path

from rmqha.remoting.bodies import ReplicasInfo
from rmqha.testing.settings import Place


class NodeFailed(AssertionError):
    """A node did not start, or ended by itself."""


class Node(ABC):
    """One controller, name server or broker. Verbs are called in the cluster's event loop.

    Attributes:
        place: where it lives.
        is_stopped: it hangs: its connections are open, and it does nothing.
        failure: why it ended by itself; empty while it has not.
        broker_id: what the controllers call it, once they were asked; None for others.
        role: ``master``, ``slave`` or ``leader`` when they were last asked; else empty.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.is_stopped = False
        self.failure = ""
        self.broker_id: int | None = None
        self.role = ""

    def __repr__(self) -> str:
        state = "stopped" if self.is_stopped else "alive" if self.is_alive else "dead"
        number = "" if self.broker_id is None else f"id {self.broker_id}"
        role = self.role if self.is_alive else ""
        return f"<{' '.join(filter(None, (self.name, self.address, number, role, state)))}>"

    @property
    def name(self) -> str:
        """``broker-0`` and so on."""
        return self.place.name

    @property
    def address(self) -> str:
        """Where clients find it."""
        return self.place.address

    @property
    def log(self) -> Path:
        """Its log, of all its runs."""
        return self.place.folder / "log.json"

    @property
    def store(self) -> Path:
        """The directory of its store."""
        return self.place.folder / "store"

    @property
    @abstractmethod
    def is_alive(self) -> bool:
        """It was started and has not ended; a stopped node is alive."""

    @abstractmethod
    async def start(self) -> None:
        """Start it on what its directory holds; returns when it listens.

        Raises:
            NodeFailed: it ended instead.
        """

    @abstractmethod
    async def kill(self) -> None:
        """End it at once; its files stay as they are."""

    @abstractmethod
    async def shut_down(self) -> None:
        """End it in order, as SIGTERM does."""

    @abstractmethod
    async def stop(self) -> None:
        """Let it hang."""

    @abstractmethod
    async def cont(self) -> None:
        """Let it go on."""

    @abstractmethod
    async def slow_disk(self, delay_ms: float) -> None:
        """Let everything that must reach its disk take so much longer; 0 ends that."""

    @abstractmethod
    async def cut(self, ports: Iterable[int]) -> None:
        """Cut it off from these ports of others, and from no others."""


def tell_roles(nodes: Iterable[Node], leader: str | None, replicas: ReplicasInfo | None) -> None:
    """Write down at every node what the controllers say that it is."""
    known = [] if replicas is None else [*replicas.in_sync_replicas, *replicas.not_in_sync_replicas]
    ids = {one.broker_address: one.broker_id for one in known}
    master = None if replicas is None else replicas.master_address
    for node in nodes:
        if node.place.kind == "controller":
            node.role = "leader" if node.address == leader else ""
        elif node.place.kind == "broker":
            node.broker_id = ids.get(node.address, node.broker_id)
            is_known = node.address in ids
            node.role = "master" if node.address == master else "slave" if is_known else ""
