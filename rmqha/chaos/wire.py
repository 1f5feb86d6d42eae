"""What happens to bytes on their way from one node to another, where no packet can be dropped.

A proxy sees a stream. A link that is cut holds its bytes back until it is healed, as the sender's kernel
would; a lossy one makes them late by as long as the kernel takes to send again what was lost.

Source: RFC 6298, a retransmission timeout that doubles; Linux begins at 200 ms.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from rmqha.chaos.scenarios import Fault
from rmqha.runtime.ports import Rng

RTO_MS = 200
DOUBLINGS_MAX = 6
"""So that what was lost again and again comes within a quarter of a minute."""

Slow = Mapping[str, tuple[int, int]]
"""Nodes whose links are slow: the delay, and at most how much more."""


class Wire(Struct, frozen=True):
    """One direction of a link.

    Attributes:
        is_cut: nothing passes.
        loss_percent: of what passes has to be sent again.
        delays: each of them is added, with a part of its jitter.
    """

    is_cut: bool = False
    loss_percent: int = 0
    delays: tuple[tuple[int, int], ...] = ()

    def late_ms(self, rng: Rng) -> int:
        """By how much the next bytes are late."""
        late_ms = sum(delay_ms + rng.randint(0, jitter_ms) for delay_ms, jitter_ms in self.delays)
        timeout_ms = RTO_MS
        for _ in range(DOUBLINGS_MAX):
            if rng.randint(0, 99) >= self.loss_percent:
                break
            late_ms += timeout_ms
            timeout_ms *= 2
        return late_ms


WHOLE = Wire()


def wire(fault: Fault | None, slow: Slow, source: str, target: str) -> Wire:
    """How a fault, and slow nodes, leave the way from one node to another."""
    delays = tuple(slow[name] for name in (source, target) if name in slow)
    if fault is None or (source, target) not in fault.links:
        return Wire(delays=delays) if delays else WHOLE
    if fault.loss_percent >= 100:
        return Wire(is_cut=True)
    return Wire(loss_percent=fault.loss_percent, delays=delays)
