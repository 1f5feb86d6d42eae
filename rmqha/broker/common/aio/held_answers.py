"""Answers that tell how far a master has delivered, for slaves that believe it at once.

A position says that something was delivered, and the delivery is a record of the log. A slave of ours
takes a position once its own log is as far; one of Java's takes it whatever its log holds and, elected,
never delivers what the dead master alone had delivered. So who does not say that it waits is answered
once every member of the SyncStateSet has those records (ADR 0047).
"""

from __future__ import annotations

from collections.abc import Callable

from rmqha.broker.common.aio.ports import Broker
from rmqha.ha.events import Role
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import text_field

WAITS_FIELD = "rmqhaWaits"
"""Of requests 45 and 60: who asks takes positions when its own log has what they tell of. Request 43 says
so by asking for changes only, and one that does is never held."""

HOLD_MS = 2_000
"""Java's slaves wait for three seconds."""

LOOK_MS = 5

HELD_MAX = 16
"""Answers that are held at a time, each as large as the table of offsets; a set has a few slaves, and
each asks one question at a time."""


def _held(broker: Broker) -> int:
    """Bytes of the log that everybody has who may be elected, as far as this broker knows."""
    if broker.role is Role.MASTER:
        core = broker.ha_core
        return broker.store.max_offset if core is None else core.members.held_by_all
    # A master that came back may alone have what its positions tell of.
    return broker.store.confirm_offset


def tells_at_once(broker: Broker, request: RemotingCommand) -> bool:
    """Whether what is told now may be known to who asks."""
    waits = text_field(request.ext_fields, WAITS_FIELD, "")
    return bool(waits) or _held(broker) >= broker.store.max_offset


async def send_confirmed(
    broker: Broker, connection: Connection, request: RemotingCommand, send: Callable[[], None]
) -> None:
    """Send an answer once it may be known; also of a broker that was a master and does not know yet
    what it is.

    Args:
        send: sends what is said already, so nothing that is written from now on is told of.
    """
    is_safe = tells_at_once(broker, request) or await _is_held(broker)
    if request.is_oneway:
        return
    if is_safe:
        send()
    else:
        remark = "not every replica has the records that this would tell of"
        connection.send(request.reply(ResponseCode.SYSTEM_BUSY, remark))


async def _is_held(broker: Broker) -> bool:
    """Wait until others have all that the log has now; False if that takes long, or it may be cut."""
    if broker.answers.held >= HELD_MAX:
        return False
    clock, store, role, end = broker.clock, broker.store, broker.role, broker.store.max_offset
    until_ms = clock.now_ms() + HOLD_MS
    broker.answers.held += 1
    try:
        while broker.role is role and store.max_offset >= end and clock.now_ms() < until_ms:
            if _held(broker) >= end:
                return True
            await clock.sleep(LOOK_MS)
    finally:
        broker.answers.held -= 1
    return False
