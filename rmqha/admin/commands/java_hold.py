"""A master of Java takes no sends for a moment, so that its slaves hold all of its log.

``startAcceptSendRequestTimeStamp`` is a setting of Java's brokers that may change while they run:
until that moment of their own clock they refuse sends with SYSTEM_ERROR, which producers try again.
A moment ends by itself, so a command that dies leaves nothing behind but Java's habit of writing its
configuration file whenever a setting changes.

Why it is worth it: what an old master had taken and the new one lacks has to be cut on every slave.
Since 5.3.2 the thread of a Java slave that builds its queues cannot be stopped then; the slave waits
95 s for it, and goes on beside it (docs/PARITY.md).
"""

from __future__ import annotations

from msgspec import Struct

from rmqha.admin.bodies import decode_table
from rmqha.base.errors import RmqhaError
from rmqha.client.exchange import Exchange, Refused, Unreachable, ask
from rmqha.client.ha_status import HaStatus, ask_ha_status
from rmqha.client.runtime_info import broker_clock_ms
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.command import RemotingCommand
from rmqha.runtime.properties import format_properties

KEY = "startAcceptSendRequestTimeStamp"
CLOCK_STEP_MS = 1_000
"""The broker's clock is told in whole seconds."""
LOOK_MS = 5
NEAR_LOOK_MS = 100
CLOSE_BYTES = 1 << 18
"""A slave that copies fetches so much in the milliseconds of a hold."""


class BehindMaster(RmqhaError):
    """Slaves did not catch up with their master in time."""


class Hold(Struct, frozen=True):
    """A master that refuses sends.

    Attributes:
        address: the master's.
        before: what the setting was.
    """

    address: str
    before: int


def wait_near(address: str, slaves: int, wait_ms: int) -> Exchange[None]:
    """Wait until so many slaves lack at most ``CLOSE_BYTES``; the master takes sends meanwhile.

    Raises:
        BehindMaster: they do not come near in ``wait_ms``.
    """
    yield from _wait(address, slaves, CLOSE_BYTES, NEAR_LOOK_MS, wait_ms)


def hold(address: str, hold_ms: int) -> Exchange[Hold]:
    """Have a master of Java refuse sends for ``hold_ms``, and up to a second longer.

    Raises:
        Refused: it does not let its settings be changed.
    """
    answer = yield from ask(address, RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO))
    runtime = decode_table(answer.body)
    now_ms = broker_clock_ms(runtime)
    if now_ms is None:
        raise BehindMaster(f"{address}: the broker does not tell its clock")
    before = runtime.get(KEY, "")
    held = Hold(address, int(before) if before.isdigit() else 0)
    yield from _set(address, now_ms + CLOCK_STEP_MS + hold_ms)
    return held


def wait_equal(address: str, slaves: int, hold_ms: int) -> Exchange[None]:
    """Wait until so many slaves hold the whole log of a master that takes no sends.

    Raises:
        BehindMaster: they do not in ``hold_ms``.
    """
    yield from _wait(address, slaves, 0, LOOK_MS, hold_ms)


def wait_demoted(address: str, wait_ms: int) -> Exchange[None]:
    """Wait until the old master is a slave, or says nothing more, or ``wait_ms`` are over.

    If it were let go before it knows of the election, it would take sends that have to be cut.
    """
    for look in range(max(1, wait_ms // LOOK_MS)):
        try:
            status = yield from ask_ha_status(address, LOOK_MS if look else 0)
        except (Refused, Unreachable):
            return
        if not status.is_master:
            return


def release(held: Hold) -> Exchange[None]:
    """Put the setting back; where that cannot be told, its moment passes by itself."""
    try:
        yield from _set(held.address, held.before)
    except (Refused, Unreachable):
        return


def _set(address: str, moment_ms: int) -> Exchange[None]:
    body = format_properties({KEY: str(moment_ms)}).encode()
    yield from ask(address, RemotingCommand(RequestCode.UPDATE_BROKER_CONFIG, body=body))


def _wait(address: str, slaves: int, gap: int, look_ms: int, wait_ms: int) -> Exchange[None]:
    gaps: list[int] = []
    for _ in range(max(1, wait_ms // look_ms)):
        status = yield from ask_ha_status(address, look_ms if gaps else 0)
        gaps = _gaps(status)
        if sum(one <= gap for one in gaps) >= slaves:
            return
    raise BehindMaster(
        f"{address}: of {slaves} slaves in sync, {sum(one <= gap for one in gaps)} have come within"
        f" {gap} bytes of the master's log in {wait_ms} ms; the furthest lacks {max(gaps, default=0)}"
    )


def _gaps(status: HaStatus) -> list[int]:
    """What each connected slave lacks, in bytes, by its own last word."""
    return [status.log_end - one.ack_offset for one in status.slaves]
