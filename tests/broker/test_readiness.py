"""When a broker says that it is ready: the next one of its set may be restarted then."""

from __future__ import annotations

import pytest

from rmqha.base.machine import Ticked
from rmqha.broker.membership.readiness import not_ready
from rmqha.ha import events as ev
from rmqha.ha.epochs import EpochCache, EpochEntry
from rmqha.ha.events import Role
from rmqha.ha.frames import HandshakeReply, TransferHeader
from rmqha.ha.ha_core import HaCore
from rmqha.ha.settings import HaSettings
from rmqha.ha.state import LogFacts

END = 1_000
EPOCH = EpochEntry(1, 0)


def slave() -> tuple[HaCore, int]:
    """A replica that has asked its master for epochs, and the connection."""
    log = LogFacts(2_000, min_offset=0, max_offset=END, flushed_offset=END, confirm_offset=0)
    core = HaCore(own_id=2, settings=HaSettings(), log=log, epochs=EpochCache([EPOCH]), now_ms=0)
    effects = finished(core, core.step(0, ev.ChangedToSlave(1, 1, "m:1")))
    (connect,) = [one for one in effects if isinstance(one, ev.Connect)]
    core.step(0, ev.MasterConnected(connect.conn))
    return core, connect.conn


def finished(core: HaCore, effects: list[ev.Effect]) -> list[ev.Effect]:
    """Let disk effects succeed at once; returns all effects."""
    seen: list[ev.Effect] = []
    while effects:
        effect = effects.pop(0)
        seen.append(effect)
        match effect:
            case ev.CutInvalidTail(seq):
                effects += core.step(0, ev.TailCut(seq, core.ha.log.max_offset))
            case ev.TruncateLog(seq, offset):
                effects += core.step(0, ev.LogTruncated(seq, offset))
            case ev.WriteEpochs(seq):
                effects += core.step(0, ev.EpochsWritten(seq))
            case ev.WaitDispatched(seq):
                effects += core.step(0, ev.DispatchReached(seq))
            case _:
                pass
    return seen


def missing(core: HaCore | None, role: Role | None = Role.SLAVE) -> str | None:
    return not_ready(role, core, is_leased=True)


def test_slave_when_it_has_all_that_is_confirmed_then_it_is_ready() -> None:
    """Not while it connects, not before the master told, not while bytes miss; again from anew."""
    core, conn = slave()
    assert missing(core) == "its master does not send it the log"
    reply = HandshakeReply(END, 1, (EPOCH,))
    finished(core, core.step(0, ev.MasterSent(conn, reply)))
    assert missing(core) == "its master has not told yet what is confirmed"
    core.step(0, ev.MasterSent(conn, TransferHeader(0, END, 1, 0, END + 300)))
    assert missing(core) == "300 bytes that are confirmed are missing"
    core.step(0, ev.MasterSent(conn, TransferHeader(0, END, 1, 0, END)))
    assert missing(core) is None
    core.step(0, ev.MasterClosed(conn, "gone"))
    assert missing(core) == "its master does not send it the log"
    again = finished(core, core.step(60_000, Ticked()))
    (connect,) = [one for one in again if isinstance(one, ev.Connect)]
    core.step(60_000, ev.MasterConnected(connect.conn))
    finished(core, core.step(60_000, ev.MasterSent(connect.conn, reply)))
    assert missing(core) == "its master has not told yet what is confirmed"


@pytest.mark.parametrize(
    ("role", "is_leased", "says"),
    [
        (None, True, "it has no role: no master is known, or a change of roles is under way"),
        (Role.MASTER, True, None),
        (Role.MASTER, False, "its write lease has ended: no controllers confirm it"),
        (Role.SLAVE, True, "its master does not send it the log"),
    ],
)
def test_broker_when_it_has_no_connection_then_its_role_decides(
    role: Role | None, is_leased: bool, says: str | None
) -> None:
    """A broker without controllers is a master with a lease for ever."""
    assert not_ready(role, None, is_leased=is_leased) == says
