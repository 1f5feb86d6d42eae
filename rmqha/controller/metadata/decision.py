"""What a request's decision is, and what a decision may look at besides the replicated state."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from msgspec import Struct

from rmqha.base.ids import BrokerId
from rmqha.controller.metadata.election_records import Candidate
from rmqha.controller.metadata.election_stages import ElectionStages
from rmqha.controller.metadata.events import Event

SOMETHING = 1
"""What a replica lacks that came with an empty log, for who does not know what it had: any byte."""


class Decision(Struct, frozen=True):
    """The answer to one request, and what must be committed before it may be sent.

    Attributes:
        code: a response code; 0 is success.
        remark: the text that Java 5.3.3 gives with it, or None.
        ext_fields: response fields; shared with caches, so nobody may change it.
        body: JSON, or empty.
        event: what to append to the log first; None when nothing changes.
        ballot: of an election: who could be elected, and how many more there are.
        decide_again: the event is only a step; the request is decided anew when it is applied.
    """

    code: int
    remark: str | None = None
    ext_fields: dict[str, str] = {}
    body: bytes = b""
    event: Event | None = None
    ballot: tuple[tuple[Candidate, ...], int] | None = None
    decide_again: bool = False


class LiveInfo(Protocol):
    """What a broker's heartbeats said last, as far as elections care."""

    @property
    def epoch(self) -> int:
        """The last epoch of the broker's epoch file, -1 when it has none."""

    @property
    def max_offset(self) -> int:
        """The end of its commit log in bytes, -1 when unknown."""

    @property
    def lacks_to(self) -> int:
        """What it had confirmed before it came back with less; -1 while it has all of that.

        ``SOMETHING`` where it came with nothing.
        """

    @property
    def unsaid(self) -> bool:
        """Whether all of this may be of a process before the one that is heard now."""

    @property
    def priority(self) -> int:
        """Its ``brokerElectionPriority``; smaller is preferred."""

    @property
    def stalled_ms(self) -> int:
        """For how long its disk has not answered; 0 while it does."""

    @property
    def learner(self) -> bool:
        """It copies the log and shall never be master."""

    @property
    def heard_ms(self) -> int:
        """Its last sign of life, by this node's clock."""


class LiveTable(Protocol):
    """The soft state of one controller node: which brokers it hears."""

    def alive(self, now_ms: int, cluster: str, name: str, broker_id: BrokerId) -> bool:
        """Whether the broker counts as alive at ``now_ms``."""

    def info(self, cluster: str, name: str, broker_id: BrokerId) -> LiveInfo | None:
        """What it said last, alive or not; None when never heard."""

    def heard_in(self, cluster: str, name: str) -> Iterable[tuple[BrokerId, LiveInfo]]:
        """Everyone of a set that was heard, registered or not, alive or not."""

    def first_heard_ms(self, cluster: str, name: str) -> int | None:
        """When anybody of the set was first heard; None when nobody was."""


class Context(Struct, frozen=True):
    """Everything a decision may read besides the state and the request.

    Attributes:
        now_ms: the leader's monotonic clock.
        live: the leader's live table.
        enable_elect_unclean_master: a replica outside the SyncStateSet may be elected.
        adopt_unknown_brokers: 1003 takes in ids that the controller does not know (it lost its
            data; brokers with an identity file never apply again).
        broker_sets_max: how many sets the controller keeps.
        replicas_per_set_max: how many replicas one set may have.
        cold_start_grace_ms: how long after a set was first heard its first election waits for a
            broker that is heard, not registered, and newer than all that are.
        arrived_ms: when that which is decided came up; None for now.
        wall_offset_ms: what makes of ``now_ms`` milliseconds since 1970; None when not known.
        elections_per_set, elections_in_all: how many elections are kept; 0 keeps none.
        stages: what followed elections on this node.
    """

    now_ms: int
    live: LiveTable
    enable_elect_unclean_master: bool = False
    adopt_unknown_brokers: bool = False
    broker_sets_max: int = 100_000
    replicas_per_set_max: int = 1_000
    cold_start_grace_ms: int = 10_000
    arrived_ms: int | None = None
    wall_offset_ms: int | None = None
    elections_per_set: int = 0
    elections_in_all: int = 0
    stages: ElectionStages | None = None
