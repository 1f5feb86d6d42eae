"""What can happen to one member, and the member after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from rmqha.base.machine import Ticked
from rmqha.controller.raft import events as ev
from rmqha.controller.raft.node import NEW, RECOVERING, Role
from rmqha.sim.explore.member import Member

LATE_MS = 10_000
"""A time at which a leader's oldest unanswered round, and its oldest write, are too old."""

OFF = {"crash", "wipe", "damage"}
"""A node that is running stops; it comes back by ``restart``."""

LIFE = {*OFF, "restart"}
"""A life of a node ends or begins."""

Lost = tuple[str]
"""In place of a message: the connection from this node has ended."""


class Move(NamedTuple):
    """One thing that happens.

    Attributes:
        kind: of ``BOUNDED`` or ``FREE``.
        node: to whom, by number.
        peer: the sender of a message, or the target of a transfer.
        number: a message's place in its link; the writes that a crash leaves on the disk; whether
            it was a leader's snapshot that had no space.
    """

    kind: str
    node: int
    peer: int = -1
    number: int = 0


def moves_of(member: Member, node: int, count: int) -> Iterator[Move]:
    """What a member, number ``node`` of ``count``, may do by itself, whatever the budgets are."""
    if count > 1:
        yield Move("wipe", node)
        yield Move("damage", node)
    if member.core is None:
        yield Move("restart", node)
        return
    if member.writing:
        yield Move("persist", node)
    if member.full:
        yield Move("space", node)
    elif member.writing:
        yield Move("full", node)
    if member.core.is_leader:
        yield from _moves_of_leader(member, node, count)
    elif member.core.node.role is not Role.STOPPED:
        yield Move("ask" if member.core.node.standing.kind == NEW else "timeout", node)
    yield from _moves_of_snapshots(member, node)
    for kept in range(len(member.writing) + 1):
        yield Move("crash", node, number=kept)


def _moves_of_leader(member: Member, node: int, count: int) -> Iterator[Move]:
    assert member.core is not None
    inside = member.core.node
    for kind in ("heartbeat", "propose", "read"):
        yield Move(kind, node)
    if inside.round_started_ms and inside.peers:
        yield Move("quorum_lost", node)
    if member.writing and inside.peers:
        yield Move("hung", node)
    if inside.transfer_target is None:
        for peer in range(count):
            if peer != node:
                yield Move("transfer", node, peer)


def _moves_of_snapshots(member: Member, node: int) -> Iterator[Move]:
    if member.saving is not None:
        yield Move("snapshot_saved", node)
    elif member.applied_index > member.disk.snapshot.last_index:
        yield Move("snapshot", node)
    if member.installing is None:
        return
    if not member.installing[1]:
        yield Move("install_saved", node)
        yield Move("full", node, number=1)
    elif not member.writing:  # the restart of the log waits in the disk's queue
        yield Move("installed", node)


def moved(member: Member, kind: str, what: Any) -> Member:
    """A member after one move; ``what`` is the message, number or name that goes with it.

    Raises:
        RmqhaError: a safety rule of the core, or of a member, does not hold.
    """
    after = member.copy()
    _HAPPEN[kind](after, what)
    after.finish(None if kind in LIFE else member)
    return after


def _deliver(member: Member, message: Any) -> None:
    lost = isinstance(message, tuple)
    member.give(ev.PeerLost(message[0]) if lost else ev.Received(message))


def _full(member: Member, of_install: int) -> None:
    if of_install:
        member.refuse_install()
    else:
        member.change_space(enough=False)


_HAPPEN: dict[str, Callable[[Member, Any], None]] = {
    "deliver": _deliver,
    "timeout": lambda member, _: member.give(Ticked()),
    "ask": lambda member, _: member.give(Ticked()),
    "heartbeat": lambda member, _: member.give(Ticked()),
    "quorum_lost": lambda member, _: member.give(Ticked(), LATE_MS),
    "hung": lambda member, _: member.give(ev.DiskWaited(LATE_MS), LATE_MS),
    "full": _full,
    "space": lambda member, _: member.change_space(enough=True),
    "propose": lambda member, number: member.give(ev.Proposed((b"record %d" % number,))),
    "read": lambda member, index: member.give(ev.ReadRequested(index)),
    "transfer": lambda member, name: member.give(ev.TransferRequested(name)),
    "persist": lambda member, _: member.persist(),
    "crash": lambda member, kept: member.crash(kept),
    "restart": lambda member, _: member.restart(),
    "wipe": lambda member, _: member.lose(NEW),
    "damage": lambda member, _: member.lose(RECOVERING),
    "snapshot": lambda member, _: member.begin_snapshot(),
    "snapshot_saved": lambda member, _: member.save_snapshot(),
    "install_saved": lambda member, _: member.save_install(),
    "installed": lambda member, _: member.install(),
}
