"""Linearizable reads, for a value that only grows: no answer is older than one already given.

The master epoch of a broker set never goes back, so a history is linearizable in it exactly when
each read returns at least what any answer that ended before the read began has shown. Source:
Herlihy and Wing 1990, applied to a monotone register.
"""

from __future__ import annotations

from rmqha.base.invariants import invariant


class EpochHistory:
    """Collects what clients are told, with the order in which they asked and heard."""

    def __init__(self) -> None:
        self._shown: dict[str, int] = {}
        self.reads = 0

    def invoked(self, broker_name: str) -> int:
        """A client asks: the epoch that it must be told at least."""
        return self._shown.get(broker_name, 0)

    def returned(self, broker_name: str, floor: int, epoch: int) -> None:
        """A client was told ``epoch``.

        Raises:
            InvariantBroken: somebody had been told a later one before this client asked.
        """
        self.reads += 1
        invariant(
            epoch >= floor,
            "a stale master epoch was read",
            broker_name=broker_name,
            epoch=epoch,
            already_shown=floor,
        )
        self._shown[broker_name] = max(self._shown.get(broker_name, 0), epoch)
