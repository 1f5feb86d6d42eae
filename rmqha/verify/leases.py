"""A master that was replaced acknowledges nothing more, although it has not heard of it.

Two looks at the same promise. From inside: at the moment of an election nobody else holds the
write lease. From outside: a put that was sent after an election and acknowledged by another than
the elected master is on the elected master too (every replica that could be elected has it).

Source: #7017; ADR 0016.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from msgspec import Struct

from rmqha.base.invariants import invariant
from rmqha.verify.logs import LogSnapshot


class Leased(NamedTuple):
    """A master that holds the write lease, and the epoch in which it reigns."""

    name: str
    master_epoch: int


class LeaseProperty(Struct):
    """The elections of one broker set.

    Attributes:
        master: who was elected last; empty before the first election.
        master_epoch: in which epoch.
        elected_s: when, by one clock for the whole run.
        late: acknowledgements of others that were sent after that, and are on the master.
    """

    master: str = ""
    master_epoch: int = 0
    elected_s: float = 0.0
    late: int = 0

    def elected(self, epoch: int, master: str, now_s: float, leased: Iterable[Leased]) -> None:
        """A controller has committed an election; later reports of the same one are passed over.

        Args:
            leased: everybody who holds the lease at this moment.

        Raises:
            InvariantBroken: a master of an earlier epoch, not this one, holds the lease.
        """
        if epoch <= self.master_epoch:
            return
        self.master, self.master_epoch, self.elected_s = master, epoch, now_s
        for one in leased:
            invariant(
                one.name == master or one.master_epoch >= epoch,
                "another master was elected while the write lease was held",
                holder=one.name,
                holder_epoch=one.master_epoch,
                elected=master,
                epoch=epoch,
            )

    def acknowledged(
        self, by: str, sent_s: float, offset: int, body: bytes, master: LogSnapshot | None
    ) -> None:
        """A put was acknowledged.

        Args:
            by: the replica that answered.
            sent_s: when its producer sent it.
            offset: of its body in the log.
            master: the log of the elected master; None while that is down.

        Raises:
            InvariantBroken: an old master took it, and the elected one does not hold it.
        """
        if by == self.master or sent_s <= self.elected_s or master is None:
            return
        self.late += 1
        end = offset + len(body)
        found = master.read(offset, len(body)) if end <= master.max_offset else b""
        invariant(
            found == body,
            "an old master acknowledged a put after another was elected",
            by=by,
            elected=self.master,
            epoch=self.master_epoch,
            offset=offset,
        )
