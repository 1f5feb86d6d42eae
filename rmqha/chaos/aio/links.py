"""What a cell asks of whoever gives it hosts and breaks their links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from rmqha.chaos.scenarios import Fault


class Links(Protocol):
    """Hosts of one cell; ``close`` ends all of them."""

    @property
    def links_by(self) -> str:
        """Tell the report what breaks links."""
        ...

    @property
    def takes_java(self) -> bool:
        """Whether nodes of Java can stand there."""
        ...

    @property
    def addresses(self) -> Mapping[str, str]:
        """Where each host is dialled, by name."""
        ...

    def add(self, name: str, ports: Sequence[int]) -> str:
        """Make a host where a node will listen at these ports; returns where it is dialled.

        Raises:
            HostsUnavailable: this machine has none to give; the message says why.
        """
        ...

    def bind_address(self, name: str) -> str:
        """Where a node listens."""
        ...

    def prefix(self, name: str) -> list[str]:
        """What runs the command behind it at a host."""
        ...

    def apply(self, fault: Fault | None) -> None:
        """Have the links be as a fault wants them; None heals all."""
        ...

    def delay(self, name: str, delay_ms: int, jitter_ms: int, seed: int) -> None:
        """Have whatever a host hears and says take its time."""
        ...

    def restore(self, name: str) -> None:
        """Have a host's link be as quick as before."""
        ...

    def close(self) -> None:
        """End all of it."""
        ...
