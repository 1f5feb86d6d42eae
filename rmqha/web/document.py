"""What the status page shows: one document, made by a node of what it knows itself.

Absent knowledge is None, never a guess: the page shows a dash. Times are milliseconds since 1970,
positions bytes, rates messages per second.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct, field


class Sentence(Struct, frozen=True):
    """One thing that is so.

    Attributes:
        level: ``good``, ``warn`` or ``bad``.
        text: whole; the page writes since when behind it.
        key: the same for the same trouble, in every document; empty where nothing is wrong.
        since_ms: when this node saw it first; None if it was so from the beginning.
    """

    level: str
    text: str
    key: str = ""
    since_ms: int | None = None


class NodeView(Struct, frozen=True):
    """The node that serves the page.

    Attributes:
        kind: ``controller``, ``name server`` or ``broker``.
        role: for people, such as ``leader``.
        facts: what else it tells of itself, in the order to show.
        troubles: what it lacks itself, which nobody else can see.
    """

    kind: str
    address: str
    version: str
    started_ms: int
    role: str = ""
    facts: dict[str, str | int | float] = field(default_factory=dict)
    troubles: tuple[Sentence, ...] = ()


class ControllerView(Struct, frozen=True):
    """One member of the controller group; ``leads`` as far as this node knows.

    Attributes:
        page: the link to its status page; None where none is known, here and below.
    """

    id: str
    address: str
    leads: bool
    here: bool
    page: str | None = None


class OtherView(Struct, frozen=True):
    """A server that this node works with, and knows nothing more of."""

    kind: str
    address: str
    page: str | None = None


class ReplicaView(Struct, frozen=True):
    """One replica of a broker set.

    Attributes:
        role: ``master`` or ``slave``.
        gap_bytes: how far its log ends behind the furthest one of its set.
    """

    broker_id: int
    address: str
    role: str
    alive: bool | None = None
    in_sync: bool | None = None
    epoch: int | None = None
    max_offset: int | None = None
    confirm_offset: int | None = None
    gap_bytes: int | None = None
    put_tps: float | None = None
    pull_tps: float | None = None
    heard_ms_ago: int | None = None
    page: str | None = None


class BrokerSetView(Struct, frozen=True):
    """One broker set; epochs and SyncStateSet are None where the node does not know them."""

    cluster: str
    broker_name: str
    replicas: tuple[ReplicaView, ...]
    master_epoch: int | None = None
    sync_state_set_epoch: int | None = None
    sync_state_set: tuple[int, ...] | None = None


class ElectionView(Struct, frozen=True):
    """One election that was decided.

    Attributes:
        time_ms: when this node applied it; None for one of before it started.
        commit_ms: from the decision to a majority's disks; None on other nodes than the leader.
        result: ``elected``, ``elected unclean`` or ``no master``.
        passed_over: who else was there, and why not: ``2 (not alive), 3 (shorter log)``.
    """

    time_ms: int | None
    broker_name: str
    old_master: int | None
    new_master: int | None
    master_epoch: int
    reason: str
    result: str
    commit_ms: int | None = None
    passed_over: str = ""


class SegmentView(Struct, frozen=True):
    """One part of a logical queue: a physical queue of a broker set.

    Attributes:
        state: ``Normal``, ``ReadOnly`` or ``Expired``, as mqadmin has it; None where only the
            segment's set can say.
        min_offset, max_offset: the first logical offset and the one behind the last; None while
            it is undecided where the segment begins, or where only its set can say.
        messages: how many can be read.
    """

    broker_name: str
    queue_id: int
    state: str | None
    min_offset: int | None = None
    max_offset: int | None = None
    messages: int | None = None


class LogicalQueueView(Struct, frozen=True):
    """A logical queue of a static topic.

    Attributes:
        broker_name, queue_id: the set that leads it, and its physical queue there; None where
            nobody is known to.
        segments: its parts, oldest first; empty where the node does not know them.
        older: how many before these are not shown.
    """

    id: int
    broker_name: str | None
    queue_id: int | None
    segments: tuple[SegmentView, ...] = ()
    older: int = 0


class StaticTopicView(Struct, frozen=True):
    """A static topic.

    Attributes:
        epoch: the newest one that a set has named.
        queues: those that are shown; ``total_queues`` may be more. A broker shows those that it
            leads, or has a part of.
    """

    topic: str
    epoch: int
    total_queues: int
    queues: tuple[LogicalQueueView, ...]


class Verdict(Struct, frozen=True):
    """What it all means; ``level`` is that of the first, worst, sentence."""

    level: str
    sentences: tuple[Sentence, ...]


class StatusDocument(Struct, frozen=True):
    """The whole page; parts that a node knows nothing of are empty.

    Attributes:
        time_ms: when it was made.
        elections: newest first.
        open_doors: what strangers may do, a sentence each.
        others: a broker's controllers and name servers.
        verdict: what it means; added by the server of the page, which knows since when.
    """

    time_ms: int
    node: NodeView
    controllers: tuple[ControllerView, ...] = ()
    broker_sets: tuple[BrokerSetView, ...] = ()
    elections: tuple[ElectionView, ...] = ()
    static_topics: tuple[StaticTopicView, ...] = ()
    open_doors: tuple[str, ...] = ()
    verdict: Verdict | None = None
    others: tuple[OtherView, ...] = ()

    def encode(self) -> bytes:
        """JSON, member names as above."""
        return msgspec.json.encode(self)


def gaps(max_offsets: list[int | None]) -> list[int | None]:
    """How far each log ends behind the furthest; None where the end is not known."""
    known = [one for one in max_offsets if one is not None and one >= 0]
    furthest = max(known, default=0)
    return [None if one is None or one < 0 else furthest - one for one in max_offsets]
