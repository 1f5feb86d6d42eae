"""What the leader's answer says to a master that asks whether it still reigns (ADR 0016).

It asks by 1002, which elects nobody while the master lives: a poll (1004) is answered from what is
committed, beside an election of somebody else that is already under way.
"""

from __future__ import annotations

from collections.abc import Mapping

from rmqha.base.ids import MasterEpoch, SyncStateSetEpoch
from rmqha.broker.membership.controller_requests import master_of
from rmqha.broker.membership.events import Told
from rmqha.remoting.bodies import SyncStateSet
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.headers import int_field


def is_told(code: int) -> bool:
    """Whether an answer names a master at all."""
    return code in (ResponseCode.SUCCESS, ResponseCode.CONTROLLER_MASTER_STILL_EXIST)


def other_master(
    fields: Mapping[str, str] | None,
    body: bytes,
    *,
    broker_id: int | None,
    master_epoch: MasterEpoch,
) -> Told | None:
    """Who reigns instead, for the core to look at; None when this master does, in this epoch.

    Args:
        fields, body: of the answer.

    Raises:
        RemoteProtocolError: the body is no SyncStateSet.
    """
    found = SyncStateSet.decode(body)
    if master_of(fields)[:2] == (broker_id, master_epoch):
        return None
    # An election's body has the set without its epoch; that stands in the header.
    epoch = SyncStateSetEpoch(int_field(fields, "syncStateSetEpoch", found.epoch))
    return Told(fields, SyncStateSet(found.broker_ids, epoch).encode())


def namesake(fields: Mapping[str, str] | None, address: str) -> str | None:
    """The address at which the controllers have this master's id, when it is another one's.

    A broker with a copy of its identity has registered there while this one was silent. Promises to one
    id would be promises to both.

    Args:
        address: at which this broker registers.
    """
    named = master_of(fields)[2]
    return named if named and named != address else None
