"""Replication without a controller: no handshake, no epochs, roles from the configuration.

A slave says how much it has in 8 bytes; the master answers with 12-byte headers and bodies.
Frames become the values of ``frames.py``, so the same shells serve both protocols.

Source: DefaultHAService, DefaultHAConnection and DefaultHAClient of RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

import struct

from rmqha.base.errors import FrameTooLarge
from rmqha.ha import events as ev
from rmqha.ha.epochs import EpochCache
from rmqha.ha.events import Effect, Event, PutStatus, Role
from rmqha.ha.frames import Ack, MasterFrame, SlaveFrame, TransferHeader
from rmqha.ha.put_waits import PutWaits
from rmqha.ha.settings import RECEIVED_BODY_BYTES_MAX, SLAVES_MAX, HaSettings
from rmqha.ha.state import HaState, LogFacts

_REPORT = struct.Struct(">q")
_TRANSFER = struct.Struct(">qi")
HEADER_BYTES = _TRANSFER.size
_NONE = -1


def encode_report(offset: int) -> bytes:
    """A slave's 8 bytes."""
    return _REPORT.pack(offset)


def encode_classic_header(offset: int, body_size: int) -> bytes:
    """A master's 12 bytes before a body."""
    return _TRANSFER.pack(offset, body_size)


class ClassicReportParser:
    """Reads what slaves send: one offset after the other, from the stream's start."""

    def __init__(self) -> None:
        self._pending = b""

    def feed(self, data: bytes) -> list[SlaveFrame]:
        """Take the stream's next bytes and return every offset that they complete."""
        data = self._pending + data
        whole = len(data) - len(data) % _REPORT.size
        self._pending = data[whole:]
        return [Ack(offset) for (offset,) in _REPORT.iter_unpack(data[:whole])]


class ClassicFrameParser:
    """Reads what masters send; epochs and confirmOffset of its headers are -1.

    Attributes:
        body_pending: as of ``MasterFrameParser``.
    """

    def __init__(self) -> None:
        self._buffer = b""
        self.body_pending = 0

    @property
    def wanted(self) -> int:
        """Header bytes to read next."""
        return HEADER_BYTES - len(self._buffer)

    def body_received(self, size: int) -> None:
        """So many bytes of the body have arrived."""
        self.body_pending -= size

    def feed(self, data: bytes) -> MasterFrame | None:
        """Take at most :attr:`wanted` header bytes.

        Raises:
            FrameTooLarge: a body over the limit, or of negative size.
        """
        self._buffer += data
        if len(self._buffer) < HEADER_BYTES:
            return None
        offset, size = _TRANSFER.unpack(self._buffer)
        self._buffer = b""
        if not 0 <= size <= RECEIVED_BODY_BYTES_MAX:
            raise FrameTooLarge(f"body of {size} is outside 0..{RECEIVED_BODY_BYTES_MAX}")
        self.body_pending = size
        return TransferHeader(size, offset, _NONE, _NONE, _NONE)


class ClassicMasterSession:
    """One slave's connection: it is served from its first report on.

    Attributes:
        ack_offset: what the slave has; None before its first report.
        next_offset: the next byte to send.
    """

    def __init__(self, ha: HaState, now_ms: int, conn: int) -> None:
        self._ha = ha
        self.conn = conn
        self.ack_offset: int | None = None
        self.next_offset = 0
        self.last_read_ms = now_ms
        self.last_write_ms = now_ms
        self._busy = False

    def reported(self, now_ms: int, offset: int) -> str | None:
        """Take a report; the reason to close the connection if it cannot be true (#3015)."""
        self.last_read_ms = now_ms
        log = self._ha.log
        if not 0 <= offset <= log.max_offset:
            return f"reported {offset}, the log ends at {log.max_offset}"
        if self.ack_offset is None:
            # An empty slave begins with the newest file.
            newest = max(log.max_offset - log.max_offset % log.file_size, log.min_offset, 0)
            self.next_offset = offset or newest
        elif offset < self.ack_offset or offset > max(self.next_offset, self.ack_offset):
            return f"reported {offset} after {self.ack_offset}, sent up to {self.next_offset}"
        self.ack_offset = offset
        return None

    def pump(self, now_ms: int) -> None:
        """Send the next batch, which never crosses a file."""
        log, offset = self._ha.log, self.next_offset
        if self._busy or self.ack_offset is None or offset >= log.max_offset:
            return
        end = min(log.max_offset, log.file_end(offset))
        self._send(now_ms, min(end - offset, self._ha.settings.transfer_body_bytes))

    def writable(self, now_ms: int) -> None:
        """The transport has room again."""
        self._busy = False
        self.pump(now_ms)

    def tick(self, now_ms: int) -> bool:
        """Heartbeat; False when the slave is silent and must go."""
        settings = self._ha.settings
        if now_ms - self.last_read_ms > settings.ha_housekeeping_interval_ms:
            return False
        due = now_ms - self.last_write_ms >= settings.ha_send_heartbeat_interval_ms
        if self.ack_offset is not None and due and not self._busy:
            self._send(now_ms, 0)
        return True

    def _send(self, now_ms: int, size: int) -> None:
        header = encode_classic_header(self.next_offset, size)
        self._ha.emit(ev.SendBatch(self.conn, header, self.next_offset, size))
        self.next_offset += size
        self.last_write_ms = now_ms
        self._busy = True

    @property
    def next_deadline_ms(self) -> int:
        """When :meth:`tick` has something to do."""
        settings = self._ha.settings
        silent = self.last_read_ms + settings.ha_housekeeping_interval_ms + 1
        if self.ack_offset is None or self._busy:
            return silent
        return min(silent, self.last_write_ms + settings.ha_send_heartbeat_interval_ms)


class ClassicSlaveSession:
    """Follows a master; logs that differ are an operator's matter (#3388), as in Java.

    Attributes:
        conn: the connection's number; -1 without one.
    """

    def __init__(self, ha: HaState, address: str | None) -> None:
        self._ha = ha
        self.address = address
        self.conn = _NONE
        self._connected = False
        self._retry_at_ms: int | None = None
        self._expected: TransferHeader | None = None
        self.last_read_ms = 0
        self.last_write_ms = 0

    def connect(self) -> None:
        """Open a connection if the address is known."""
        self._retry_at_ms = None
        if self.address is not None and self.conn == _NONE:
            self.conn = self._ha.next_seq()
            timeout_ms = self._ha.settings.connect_timeout_ms
            self._ha.emit(ev.Connect(self.conn, self.address, timeout_ms))

    def connected(self, now_ms: int) -> None:
        """Say how much this log has; 0 asks for the master's newest file."""
        self._connected = True
        self.last_read_ms = now_ms
        self._report(now_ms)

    def closed(self, now_ms: int, reason: str) -> None:
        """Try again later."""
        self._ha.note("ha_master_lost", "warning", address=self.address, reason=reason)
        self.conn, self._connected = _NONE, False
        self._retry_at_ms = now_ms + self._ha.settings.reconnect_delay_max_ms

    def leave(self, now_ms: int, reason: str) -> None:
        """Close from this side."""
        if self.conn != _NONE:
            self._ha.emit(ev.CloseMaster(self.conn, reason))
            self.closed(now_ms, reason)

    def received(self, now_ms: int, header: TransferHeader) -> None:
        """Check a header before its body comes."""
        self.last_read_ms = now_ms
        log, offset = self._ha.log, header.offset
        if not log.is_empty and offset != log.max_offset:
            self.leave(now_ms, f"frame at {offset}, log ends at {log.max_offset}")
        elif header.body_size and (
            offset < 0 or offset % log.file_size + header.body_size > log.file_size
        ):
            self.leave(now_ms, f"frame at {offset} of {header.body_size} bytes crosses a file")
        elif header.body_size:
            self._expected = header

    def body_received(self, now_ms: int, event: ev.BodyReceived) -> None:
        """Bytes are in the log; report them when the body is whole."""
        log, header = self._ha.log, self._expected
        if header is None:
            return
        self._expected = None
        if log.is_empty:
            log.min_offset = event.offset - event.offset % log.file_size
        log.max_offset = event.offset + event.length
        self._ha.set_confirm(log.max_offset)
        self.last_read_ms = now_ms
        if self.conn == event.conn and event.length == header.body_size:
            self._report(now_ms)

    def tick(self, now_ms: int) -> None:
        """Heartbeat, give up a silent master, or try again."""
        settings = self._ha.settings
        if self._retry_at_ms is not None and now_ms >= self._retry_at_ms:
            self.connect()
        if not self._connected:
            return
        if now_ms - self.last_read_ms > settings.ha_housekeeping_interval_ms:
            self.leave(now_ms, "the master is silent")
        elif now_ms - self.last_write_ms >= settings.ha_send_heartbeat_interval_ms:
            self._report(now_ms)

    def _report(self, now_ms: int) -> None:
        self.last_write_ms = now_ms
        self._ha.emit(ev.SendAck(self.conn, self._ha.log.max_offset))

    @property
    def next_deadline_ms(self) -> int | None:
        """When :meth:`tick` has something to do."""
        if self._retry_at_ms is not None:
            return self._retry_at_ms
        if not self._connected:
            return None
        settings = self._ha.settings
        silent = self.last_read_ms + settings.ha_housekeeping_interval_ms + 1
        return min(silent, self.last_write_ms + settings.ha_send_heartbeat_interval_ms)


class ClassicCore:
    """A replica whose role its configuration fixes.

    Args:
        role: master or slave, for good.
        settings: of this replica.
        log: what the store recovered.
        master_address: a slave's ``haMasterAddress``; may come later as ``MasterFound``.
    """

    def __init__(
        self, *, role: Role, settings: HaSettings, log: LogFacts, master_address: str | None = None
    ) -> None:
        self.role = role
        self.ha = HaState(0, settings, log, EpochCache())
        self.sessions: dict[int, ClassicMasterSession] = {}
        self.waits = PutWaits()
        self.client = ClassicSlaveSession(self.ha, master_address) if role is Role.SLAVE else None
        self._started = False

    @property
    def next_deadline_ms(self) -> int | None:
        """When to send ``Ticked`` next; at once until the first."""
        if not self._started:
            return 0
        due = [session.next_deadline_ms for session in self.sessions.values()]
        client = None if self.client is None else self.client.next_deadline_ms
        due += [one for one in (self.waits.next_deadline_ms, client) if one is not None]
        return min(due, default=None)

    @property
    def in_sync_slaves(self) -> int:
        """Slaves whose gap is below ``haMaxGapNotInSync``."""
        gap, end = self.ha.settings.ha_max_gap_not_in_sync, self.ha.log.max_offset
        acks = [one.ack_offset for one in self.sessions.values()]
        return sum(1 for ack in acks if ack is not None and end - ack < gap)

    def is_leased(self, now_ms: int) -> bool:
        """Nobody is elected in the classic mode."""
        return True

    def check_put(self, *, wait_store_ok: bool = True, now_ms: int | None = None) -> PutStatus:
        """What a put would meet before anything is written."""
        settings = self.ha.settings
        if self.role is not Role.MASTER:
            return PutStatus.SERVICE_NOT_AVAILABLE
        if wait_store_ok and self._needed() > 1 and not settings.duplication_enable:
            if 1 + self.in_sync_slaves < settings.min_in_sync_replicas:
                return PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH
            if self.waits.is_full:
                return PutStatus.OS_PAGE_CACHE_BUSY
        return PutStatus.PUT_OK

    def _needed(self) -> int:
        """Replicas that a put waits for; with ``enableAutoInSyncReplicas`` no more than are there."""
        settings = self.ha.settings
        needed = settings.in_sync_replicas
        if settings.enable_auto_in_sync_replicas:
            needed = max(min(needed, 1 + self.in_sync_slaves), settings.min_in_sync_replicas)
        return needed

    def step(self, now_ms: int, event: Event) -> list[Effect]:
        """Take one event; those of controller mode mean nothing here.

        Raises:
            InvariantBroken: when a safety rule would be violated; the process must stop.
        """
        match event:
            case ev.Appended(max_offset):
                self.ha.log.max_offset = max_offset
                self.ha.log.min_offset = max(self.ha.log.min_offset, 0)
                self.ha.set_confirm(max_offset)
                for session in self.sessions.values():
                    session.pump(now_ms)
            case ev.PutWaited(token, end_offset):
                if end_offset <= self._level():
                    self.ha.emit(ev.PutCompleted(token, PutStatus.PUT_OK))
                else:
                    self.waits.add(token, end_offset, now_ms + self.ha.settings.slave_timeout_ms)
            case ev.Trimmed(min_offset):
                self.ha.log.min_offset = min_offset
            case ev.SlaveConnected() | ev.SlaveSent() | ev.SlaveWritable() | ev.SlaveClosed():
                self._from_slave(now_ms, event)
            case ev.Ticked():
                self._tick(now_ms)
            case _:
                if self.client is not None:
                    self._from_master(now_ms, self.client, event)
        return self.ha.take_effects()

    def _from_slave(
        self,
        now_ms: int,
        event: ev.SlaveConnected | ev.SlaveSent | ev.SlaveWritable | ev.SlaveClosed,
    ) -> None:
        conn = event.conn
        session = self.sessions.get(conn)
        if isinstance(event, ev.SlaveConnected):
            if self.role is Role.MASTER and len(self.sessions) < SLAVES_MAX:
                self.sessions[conn] = ClassicMasterSession(self.ha, now_ms, conn)
            else:
                self._drop(conn, "no slave is served here, or too many are")
        elif session is None:
            return
        elif isinstance(event, ev.SlaveClosed):
            del self.sessions[conn]
        elif isinstance(event, ev.SlaveWritable):
            session.writable(now_ms)
        elif isinstance(event.frame, Ack):
            wrong = session.reported(now_ms, event.frame.offset)
            if wrong is not None:
                self._drop(conn, wrong)
                return
            for token in self.waits.reached(self._level()) if len(self.waits) else ():
                self.ha.emit(ev.PutCompleted(token, PutStatus.PUT_OK))
            session.pump(now_ms)

    def _drop(self, conn: int, reason: str) -> None:
        self.sessions.pop(conn, None)
        self.ha.emit(ev.CloseSlave(conn, reason))
        self.ha.note("ha_slave_closed", "warning", reason=reason)

    def _level(self) -> int:
        """Up to which offset enough replicas hold the log; connections count, ids are unknown."""
        needed = self._needed() - 1
        if needed <= 0 or self.ha.settings.duplication_enable:
            return self.ha.log.max_offset
        known = [one.ack_offset for one in self.sessions.values() if one.ack_offset is not None]
        return sorted(known, reverse=True)[needed - 1] if len(known) >= needed else _NONE

    def _from_master(self, now_ms: int, client: ClassicSlaveSession, event: Event) -> None:
        match event:
            case ev.MasterFound(address):
                if address != client.address:
                    client.address = address
                    client.leave(now_ms, "the master has another address")
                    client.connect()
            case ev.MasterConnected(conn) if conn == client.conn:
                client.connected(now_ms)
            case ev.MasterSent(conn, frame) if conn == client.conn:
                if isinstance(frame, TransferHeader):
                    client.received(now_ms, frame)
            case ev.BodyReceived():
                client.body_received(now_ms, event)
            case ev.MasterClosed(conn, reason) if conn == client.conn:
                client.closed(now_ms, reason)
            case _:
                pass

    def _tick(self, now_ms: int) -> None:
        if not self._started:
            self._started = True
            if self.client is not None:
                self.client.connect()
        for token in self.waits.expired(now_ms):
            self.ha.emit(ev.PutCompleted(token, PutStatus.FLUSH_SLAVE_TIMEOUT))
        if self.client is not None:
            self.client.tick(now_ms)
        for session in list(self.sessions.values()):
            if not session.tick(now_ms):
                self._drop(session.conn, "the slave is silent")
