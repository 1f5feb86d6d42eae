"""Role changes as plans: effects in the documented order, with a stop at each one that waits.

A plan is a generator. It emits effects, yields the ``seq`` of the one it has to wait for, and is
resumed when that has ended. Epochs change only after the log has, and a role is announced only
when its epoch is durable.

Source: RIP-44, "Master-slave relationship"; AutoSwitchHAService of RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from rmqha.base.ids import MasterEpoch
from rmqha.ha.epochs import EpochEntry
from rmqha.ha.events import (
    ChangedToMaster,
    ChangedToSlave,
    Role,
    RoleChanged,
    RoleRefused,
    WaitDispatched,
)
from rmqha.ha.state import HaState

Plan = Iterator[int]


class RoleHolder(Protocol):
    """What a plan needs of the core."""

    ha: HaState
    role: Role

    def leave_slaves(self, reason: str) -> None:
        """Close the connections that were served; waiting puts end."""

    def leave_master(self, reason: str) -> None:
        """End the slave session."""

    def follow(self, now_ms: int, command: ChangedToSlave) -> None:
        """Begin a slave session."""

    def renew(self, command: ChangedToSlave) -> None:
        """Go on with the slave session, in a later epoch."""

    def reign(self, command: ChangedToMaster) -> None:
        """Take the controller's SyncStateSet."""

    def move_confirm(self) -> None:
        """Recompute where confirmOffset stands."""


def refuses(ha: HaState, epoch: MasterEpoch) -> bool:
    """Whether an election is older than what this log knows."""
    # RIP-44, Master-slave relationship: epochs only grow, so what is older was overtaken.
    if epoch >= ha.epochs.last_epoch:
        return False
    ha.emit(RoleRefused(epoch, ha.epochs.last_epoch))
    ha.note("ha_role_refused", "warning", epoch=epoch, last_epoch=ha.epochs.last_epoch)
    return True


def change_to_master(replica: RoleHolder, command: ChangedToMaster) -> Plan:
    """From slave to master: cut what is incomplete, begin the epoch, catch the queues up."""
    ha, epoch = replica.ha, command.epoch
    if refuses(ha, epoch):
        return
    replica.reign(command)
    replica.leave_slaves("a new master epoch begins")
    replica.leave_master("this replica becomes the master")
    # RIP-44, Epoch file updates: first the log, then the epochs, or a crash between the two would
    # leave bytes of one epoch under the number of another.
    yield ha.cut_invalid_tail()
    replica.role = Role.MASTER
    replica.move_confirm()
    ha.epochs.drop_beyond(ha.log.max_offset)
    # An epoch in which nothing was written keeps its entry, with the same start: slaves may
    # know only that one, and another master may have written under its number. A master
    # that restarted within its epoch goes on in it: Java begins it anew at the end of the log,
    # so that its slaves throw away all that they have of it, acknowledged records included. One
    # whose machine lost power is never told to (ADR 0013).
    ha.epochs.append(EpochEntry(epoch, ha.log.max_offset))
    yield ha.write_epochs()
    # RIP-44, Switching process: queue offsets are given out from where the queues end.
    seq = ha.next_seq()
    ha.emit(WaitDispatched(seq, ha.log.confirm_offset))
    yield seq
    _announce(replica, Role.MASTER, epoch)


def change_to_master_when_last_role_is_master(
    replica: RoleHolder, command: ChangedToMaster
) -> Plan:
    """The same master is elected again: connections stay, nothing is cut (#6344).

    When nothing was written since the last election the old entry stands for both: its bytes
    all come from this replica, and Java slaves refuse a second epoch with the same start, would
    then find the first one ended there, and fetch everything again.
    """
    ha, epoch = replica.ha, command.epoch
    if refuses(ha, epoch):
        return
    replica.reign(command)
    last = ha.epochs.last
    if last is None or (last.epoch < epoch and last.start < ha.log.max_offset):
        ha.epochs.append(EpochEntry(epoch, ha.log.max_offset))
        yield ha.write_epochs()
    replica.move_confirm()
    _announce(replica, Role.MASTER, epoch)


def change_to_slave(replica: RoleHolder, now_ms: int, command: ChangedToSlave) -> Plan:
    """Follow another master; the log is cut when its epochs are known, not here."""
    ha = replica.ha
    if refuses(ha, command.epoch):
        return
    replica.role = Role.SLAVE
    replica.leave_slaves("this replica becomes a slave")
    replica.leave_master("another master reigns")
    _announce(replica, Role.SLAVE, command.epoch)
    replica.follow(now_ms, command)
    yield from ()


def change_to_slave_when_master_not_change(replica: RoleHolder, command: ChangedToSlave) -> Plan:
    """The master that is followed already was elected again: only its epoch is new."""
    if refuses(replica.ha, command.epoch):
        return
    replica.renew(command)
    _announce(replica, Role.SLAVE, command.epoch)
    yield from ()


def _announce(replica: RoleHolder, role: Role, epoch: MasterEpoch) -> None:
    replica.ha.emit(RoleChanged(role, epoch))
    replica.ha.note(
        "ha_role_changed", role=role.value, epoch=epoch, max_offset=replica.ha.log.max_offset
    )
