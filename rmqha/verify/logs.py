"""Replicated logs: equal where they must be, and confirmOffset only where it may be.

Feed it snapshots of replicas, taken whenever nothing is half done; it raises at the first one
that breaks a rule.

Source: RIP-44, "Election Truncation Algorithm" and "ConfirmOffset"; RIP-34.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct, field

from rmqha.base.invariants import invariant

_CHUNK_BYTES = 1 << 20


class LogSnapshot(Struct, frozen=True):
    """One replica's log at one moment.

    Attributes:
        name: the replica.
        min_offset, max_offset: its bytes; equal when it has none.
        confirm_offset: what its consumers may see ends here.
        epochs: epoch and first byte, ascending.
        read: bytes ``[offset, offset + length)``.
    """

    name: str
    min_offset: int
    max_offset: int
    confirm_offset: int
    epochs: Sequence[tuple[int, int]]
    read: Callable[[int, int], bytes]


def check_equal(one: LogSnapshot, other: LogSnapshot, end: int) -> None:
    """Two logs hold the same bytes before ``end``, where both have any.

    Raises:
        InvariantBroken: the first chunk in which they differ.
    """
    at = max(one.min_offset, other.min_offset, 0)
    while at < end:
        size = min(_CHUNK_BYTES, end - at)
        invariant(
            one.read(at, size) == other.read(at, size),
            "two logs differ before the confirmOffset",
            replicas=(one.name, other.name),
            between=(at, at + size),
        )
        at += size


def check_confirmed(snapshots: Sequence[LogSnapshot]) -> None:
    """All logs are equal up to the smaller confirmOffset of each pair.

    True at any moment with ``allAckInSyncStateSet`` and clean elections.

    Raises:
        InvariantBroken: two differ.
    """
    for at, one in enumerate(snapshots):
        invariant(
            one.confirm_offset <= one.max_offset,
            "confirmOffset is not beyond the log",
            replica=one.name,
            confirm_offset=one.confirm_offset,
            max_offset=one.max_offset,
        )
        for other in snapshots[at + 1 :]:
            check_equal(one, other, min(one.confirm_offset, other.confirm_offset))


def check_one_history(snapshots: Sequence[LogSnapshot]) -> None:
    """Of an epoch that two logs have from the same byte on, the shorter is the longer one's beginning.

    True at any moment, whatever acknowledgements wait for: handshakes rely on it when they say where
    two logs part, and a slave that holds another history than its master's would not be cut.

    Raises:
        InvariantBroken: two differ.
    """
    for at, one in enumerate(snapshots):
        for other in snapshots[at + 1 :]:
            theirs = {(epoch, start): end for epoch, start, end in _spans(other)}
            first = max(one.min_offset, other.min_offset, 0)
            for epoch, start, own_end in _spans(one):
                low, end = max(start, first), min(own_end, theirs.get((epoch, start), 0))
                invariant(
                    low >= end or one.read(low, end - low) == other.read(low, end - low),
                    "two histories of one epoch",
                    replicas=(one.name, other.name),
                    epoch=epoch,
                    between=(low, end),
                )


def _spans(log: LogSnapshot) -> list[tuple[int, int, int]]:
    """Epochs with their first byte and the byte after their last."""
    ends = [start for _, start in log.epochs[1:]] + [log.max_offset]
    return [(*entry, end) for entry, end in zip(log.epochs, ends, strict=True)]


def check_epochs(snapshot: LogSnapshot) -> None:
    """Epochs ascend, their starts too, and none begins beyond the log.

    Raises:
        InvariantBroken: they do not.
    """
    for before, after in zip(snapshot.epochs, snapshot.epochs[1:], strict=False):
        invariant(
            before[0] < after[0] and before[1] <= after[1],
            "epochs ascend",
            replica=snapshot.name,
            epochs=list(snapshot.epochs),
        )
    if snapshot.epochs:
        invariant(
            snapshot.epochs[-1][1] <= max(snapshot.max_offset, 0),
            "no epoch begins beyond the log",
            replica=snapshot.name,
            epochs=list(snapshot.epochs),
            max_offset=snapshot.max_offset,
        )


def check_converged(master: LogSnapshot, slave: LogSnapshot) -> None:
    """A slave that has caught up holds the master's bytes, and labels each with its epoch.

    Raises:
        InvariantBroken: it does not.
    """
    invariant(
        slave.max_offset == master.max_offset,
        "a slave that caught up ends where its master does",
        master=(master.name, master.max_offset),
        slave=(slave.name, slave.max_offset),
    )
    check_equal(master, slave, master.max_offset)
    first = max(master.min_offset, slave.min_offset, 0)
    invariant(
        _labels(master, first) == _labels(slave, first),
        "epoch files agree",
        master=(master.name, list(master.epochs)),
        slave=(slave.name, list(slave.epochs)),
    )


def check_begin(log: LogSnapshot, begin: int) -> None:
    """Where nothing has expired, a log has its first bytes. All else looks at what logs still have.

    Args:
        begin: of the set's log.

    Raises:
        InvariantBroken: it begins later.
    """
    invariant(
        log.min_offset == begin,
        "a log lacks its beginning",
        replica=log.name,
        min_offset=log.min_offset,
        begin=begin,
    )


def _labels(log: LogSnapshot, first: int) -> list[tuple[int, int, int]]:
    """Non-empty epochs with the bytes after ``first`` that they cover."""
    spans = [(epoch, max(start, first), end) for epoch, start, end in _spans(log)]
    return [span for span in spans if span[1] < span[2]]


class ConfirmProperty(Struct):
    """A master's confirmOffset never goes back and never passes what its set holds.

    It may go back when the replica becomes a slave, whose log can be cut, or restarts.
    """

    _seen: dict[str, tuple[object, int]] = field(default_factory=dict)

    def observe(
        self,
        name: str,
        reign: object,
        confirm_offset: int,
        max_offset: int,
        acks: Mapping[int, int | None],
    ) -> None:
        """Take one observation.

        Args:
            name: the replica.
            reign: whatever names one uninterrupted time as a master; None for a slave.
            confirm_offset, max_offset: now.
            acks: what each other member of the SyncStateSet has acknowledged, as the master
                counts them; None for a member without a connection. Members of every set that
                the controller may hold. Empty where no set bounds confirmOffset.

        Raises:
            InvariantBroken: a rule does not hold.
        """
        before = self._seen.get(name)
        self._seen[name] = (reign, confirm_offset)
        if reign is None or before is None or before[0] != reign:
            return
        invariant(
            confirm_offset >= before[1],
            "a master's confirmOffset went back",
            replica=name,
            before=before[1],
            now=confirm_offset,
        )
        if confirm_offset > before[1] and acks:
            held = [ack for ack in acks.values() if ack is not None]
            invariant(
                len(held) == len(acks) and confirm_offset <= min(held),
                "confirmOffset passed what a member of the SyncStateSet holds",
                replica=name,
                confirm_offset=confirm_offset,
                max_offset=max_offset,
                acks=dict(acks),
            )
