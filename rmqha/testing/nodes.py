"""What every node of a test cluster can be told, whatever it runs in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path

from rmqha.testing.settings import Place


class NodeFailed(AssertionError):
    """A node did not start, or ended by itself."""


class Node(ABC):
    """One controller, name server or broker. Verbs are called in the cluster's event loop.

    Attributes:
        place: where it lives.
        is_stopped: it hangs: its connections are open, and it does nothing.
        failure: why it ended by itself; empty while it has not.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.is_stopped = False
        self.failure = ""

    def __repr__(self) -> str:
        state = "stopped" if self.is_stopped else "alive" if self.is_alive else "dead"
        return f"<{self.name} {self.address} {state}>"

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
