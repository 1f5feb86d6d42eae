"""What a walk over a broker set is about: its bounds, its controller, and what is known of a replica.

``replicas.py`` walks; the properties of one moment stand at the end of this file.
"""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

from msgspec import Struct

from rmqha.base.ids import NEVER_ALTERED, NEVER_ELECTED, MasterEpoch, SyncStateSetEpoch
from rmqha.base.invariants import invariant
from rmqha.ha import events as ev
from rmqha.ha.epochs import EpochEntry
from rmqha.sim.explore.replica import Input, Log, ReplicaDisk, RunningReplica, played

BUDGETS = ("put", "elect", "crash", "reset", "lost", "poll", "pass")
FREE = ("up", "down", "disk", "due", "tell", "connect", "alter", "answered", "restart")


class Scene(Struct, frozen=True):
    """What may happen; every number is a total over the set.

    Attributes:
        puts: records that producers send to whoever takes them.
        elections: of another or the same master, by the controller's rule.
        crashes: power failures; of what a slave has not flushed any part survives.
        resets: connections that are reset.
        losses: alterations of which the master never hears, applied or not.
        polls: a master that asks for the controller's set.
        passes: steps of time.
        start: ``in step`` (the first is master, all are in its set and hold its first record),
            ``diverged`` (the second has been elected since, and both have written another record
            that nobody else holds) or ``asked`` (the last has left, and the master's request for
            a set without it is on its way).
    """

    replicas: int = 3
    puts: int = 1
    elections: int = 1
    crashes: int = 0
    resets: int = 0
    losses: int = 0
    polls: int = 0
    passes: int = 0
    start: str = "in step"

    @property
    def budgets(self) -> tuple[int, ...]:
        """How often each of ``BUDGETS`` may happen."""
        return (
            self.puts, self.elections, self.crashes, self.resets, self.losses, self.polls,
            self.passes,
        )  # fmt: skip

    def missing(self, occurred: Container[str]) -> list[str]:
        """Kinds that are allowed and never occurred: nothing is shown of them."""
        wanted = {kind for kind, most in zip(BUDGETS, self.budgets, strict=True) if most}
        wanted |= set(FREE) - ({"restart"} if not self.crashes else set())
        return sorted(kind for kind in wanted if kind not in occurred)


class Move(NamedTuple):
    """One thing that happens.

    Attributes:
        replica: to whom; 0 for the time of all.
        number: who sent what arrives, the master of a connection that is reset, or how many
            records a crash leaves.
    """

    kind: str
    replica: int = 0
    number: int = 0


class Controller(NamedTuple):
    """What the controller holds."""

    epoch: MasterEpoch = NEVER_ELECTED
    set_epoch: SyncStateSetEpoch = NEVER_ALTERED
    master: int = 0
    ids: tuple[int, ...] = ()


class Seen(NamedTuple):
    """What was promised so far.

    Attributes:
        acked: (offset, record) of which a producer was told, ascending.
        shown: the longest log that consumers of a master were shown.
    """

    acked: tuple[tuple[int, int], ...] = ()
    shown: Log = ()


class Life(NamedTuple):
    """A replica as it is played, or a disk without a process."""

    id: int
    up: bool
    disk: ReplicaDisk
    began_ms: int = 0
    inputs: tuple[Input, ...] = ()

    def played(self) -> RunningReplica:
        """The replica after its inputs."""
        return played(self.id, self.disk, self.began_ms, self.inputs)


class Facts(NamedTuple):
    """What moves and checks need to know of a life.

    Attributes:
        epochs, labels: on its disk, and as it knows them: (epoch, first record).
        moves: what it may do by itself.
        due_ms: when time means something to it.
    """

    up: bool
    log: Log
    flushed: int
    epochs: tuple[EpochEntry, ...]
    labels: tuple[tuple[int, int], ...] = ()
    confirm: int = 0
    reigns: bool = False
    may_put: bool = False
    follows: bool = False
    told: int = 0
    target: int = 0
    asked: ev.AlterSyncStateSet | None = None
    may_lose: bool = False
    moves: tuple[str, ...] = ()
    due_ms: int | None = None


def facts_of(replica: RunningReplica) -> Facts:
    """What is known of a running replica."""
    moves = [kind for kind, may in (("disk", replica.lane), ("alter", replica.asked),
             ("answered", replica.answers)) if may]  # fmt: skip
    return Facts(
        up=True,
        log=replica.log,
        flushed=replica.flushed,
        epochs=replica.epochs,
        labels=tuple((one.epoch, one.start) for one in replica.core.ha.epochs.entries),
        confirm=replica.confirm,
        reigns=replica.core.is_serving,
        may_put=replica.may_put,
        follows=replica.follows,
        told=replica.told,
        target=replica.target or 0,
        asked=replica.asked[0][1] if replica.asked else None,
        may_lose=bool(replica.asked or replica.answers),
        moves=tuple(moves),
        due_ms=replica.core.next_deadline_ms,
    )


def altered(
    held: Controller, sender: int, asked: ev.AlterSyncStateSet
) -> tuple[Controller, ev.SyncStateSetConfirmed | ev.AlterRefused]:
    """The controller's rule: only its master, and only from the set that it holds."""
    if asked.epoch != held.set_epoch or sender != held.master:
        return held, ev.AlterRefused()
    set_epoch = SyncStateSetEpoch(held.set_epoch + 1)
    after = held._replace(set_epoch=set_epoch, ids=tuple(sorted(asked.ids)))
    return after, ev.SyncStateSetConfirmed(asked.ids, set_epoch)


# -- one property each ----------------------------------------------------------------------------


def check_shown(log: Log, shown: Log) -> Log:
    """Consumers of a master are shown this much.

    Returns:
        The longest log that was shown so far.

    Raises:
        InvariantBroken: something else was shown before.
    """
    size = min(len(log), len(shown))
    invariant(log[:size] == shown[:size], "consumers were shown two logs", before=shown, now=log)
    return max(log, shown, key=len)


def check_electable(facts: Facts, seen: Seen, one: int) -> None:
    """The controller may elect this replica, also after a power failure.

    Raises:
        InvariantBroken: it lacks what a producer or a consumer was promised.
    """
    safe = facts.log[: facts.flushed]
    for offset, record in seen.acked:
        invariant(
            safe[offset : offset + 1] == (record,),
            "a replica that may be elected lacks what was acknowledged",
            replica=one,
            offset=offset,
            record=record,
            holds=safe,
        )
    invariant(
        safe[: len(seen.shown)] == seen.shown,
        "a replica that may be elected lacks what consumers were shown",
        replica=one,
        shown=seen.shown,
        holds=safe,
    )


def check_follows(slave: Facts, master: Facts, one: int, of: int) -> None:
    """A slave takes what its master sends.

    Raises:
        InvariantBroken: its log is no beginning of the master's, or has other epochs.
    """
    size = len(slave.log)
    invariant(
        slave.log == master.log[:size],
        "a slave that follows holds another log than its master",
        slave=(one, slave.log),
        master=(of, master.log),
    )
    invariant(
        spans(slave.labels, size) == spans(master.labels, size),
        "a slave that follows has other epochs than its master",
        slave=(one, slave.labels),
        master=(of, master.labels),
    )


def spans(labels: tuple[tuple[int, int], ...], size: int) -> list[tuple[int, int, int]]:
    """The epochs in which something was written, with their ends, of the first ``size`` records."""
    ends = [start for _, start in labels[1:]] + [size] * bool(labels)
    found = [(e, start, min(end, size)) for (e, start), end in zip(labels, ends, strict=True)]
    return [one for one in found if one[1] < one[2]]
