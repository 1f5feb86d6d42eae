"""The master's half of replication, for one connection: whom it serves, from where, how much.

What it does and Java does not: it waits for all 16 bytes of a handshake and answers once, in one
write; it looks the epoch up for every batch, so that each is labelled with the epoch its
bytes belong to; it believes no acknowledgement of bytes that were never sent; it
starts an empty slave at a file's beginning only.

Source: RIP-44, "Replication solution"; AutoSwitchHAConnection of RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

from rmqha.base.ids import MasterEpoch
from rmqha.ha.events import CloseSlave, SendBatch, SendToSlave
from rmqha.ha.frames import (
    TRANSFER_HEADER_BYTES,
    ConnectionState,
    HandshakeReply,
    HandshakeRequest,
    TransferHeader,
    encode_handshake_reply,
    encode_transfer_header,
)
from rmqha.ha.state import HaState

_METER_MS = 1_000


class MasterSession:
    """One slave's connection.

    Attributes:
        state: ``HANDSHAKE`` until the first acknowledgement, then ``TRANSFER``; ``SHUTDOWN``
            once this side has closed it.
        slave_id: the broker id it presented; None before.
        learner: it must never be in the SyncStateSet.
        ack_offset: what it holds; None before its first acknowledgement.
        next_offset: the next byte to send; None until the start is known.
        caught_up_ms: the last moment of which it has everything the log held then.
    """

    def __init__(self, ha: HaState, now_ms: int, conn: int, address: str) -> None:
        self._ha = ha
        self.conn = conn
        self.address = address
        self.state = ConnectionState.HANDSHAKE
        self.slave_id: int | None = None
        self.learner = False
        self.ack_offset: int | None = None
        self.next_offset: int | None = None
        self.caught_up_ms: int | None = None
        self.last_read_ms = now_ms
        self.last_write_ms = now_ms
        self._from_last_file = False
        self._answered = False
        self._busy = False
        self._is_too_late = False
        self._mark_offset = 0
        self._mark_ms = now_ms
        self._sent_confirm = -1
        self._meter_ms = now_ms
        self._metered = 0

    def close(self, reason: str, level: str = "warning") -> None:
        """End the connection; the first reason counts."""
        if self.state is ConnectionState.SHUTDOWN:
            return
        self.state = ConnectionState.SHUTDOWN
        ha = self._ha
        ha.emit(CloseSlave(self.conn, reason))
        ha.note(
            "ha_slave_closed", level, slave_id=self.slave_id, address=self.address, reason=reason
        )

    # -- handshake ---------------------------------------------------------------------------

    def presented(self, now_ms: int, request: HandshakeRequest) -> bool:
        """Take a handshake; a repeated one does no harm.

        Returns:
            Whether this was the connection's first, so that an older connection of the same
            slave has to go.
        """
        if self.slave_id is not None:
            if request.slave_id != self.slave_id:
                self.close("a second handshake names another broker id")
            return False
        if request.slave_id < 1 or request.slave_id == self._ha.own_id:
            self.close(f"broker id {request.slave_id} cannot be a slave's")
            return False
        self.last_read_ms = now_ms
        self.slave_id = request.slave_id
        self.learner = request.async_learner
        self._from_last_file = request.sync_from_last_file
        return True

    def answer(self, now_ms: int) -> None:
        """Send epochs and the log's end, once, as soon as this replica is the master."""
        if self._answered or self.slave_id is None or self.state is ConnectionState.SHUTDOWN:
            return
        self._answered = True
        ha = self._ha
        entries = ha.epochs.entries
        reply = HandshakeReply(ha.log.max_offset, ha.epochs.last_epoch, entries)
        self.last_write_ms = now_ms
        ha.emit(SendToSlave(self.conn, encode_handshake_reply(reply)))

    # -- acknowledgements ----------------------------------------------------------------------

    def acked(self, now_ms: int, offset: int) -> bool:
        """Take an acknowledgement if it can be true (#3015).

        Returns:
            Whether it was taken; otherwise the connection is closed.
        """
        self.last_read_ms = now_ms
        log = self._ha.log
        if not self._answered:
            self.close("acknowledgement before the handshake")
            return False
        if offset < 0 or offset > log.max_offset:
            self.close(f"acknowledged {offset}, the log ends at {log.max_offset}")
            return False
        if self.ack_offset is not None:
            if offset < self.ack_offset:
                self.close(f"acknowledged {offset} after {self.ack_offset}")
                return False
            if offset > self.ack_offset and offset > (self.next_offset or 0):
                self.close(f"acknowledged {offset}, sent up to {self.next_offset}")
                return False
        else:
            self.state = ConnectionState.TRANSFER
            self._mark_offset, self._mark_ms = log.max_offset, now_ms
            if offset:
                self.next_offset = offset
        self.ack_offset = offset
        self._observe(now_ms)
        return True

    def _observe(self, now_ms: int) -> None:
        """Find the last moment of which the slave has everything that the log held then."""
        if self.ack_offset is None:
            return
        log = self._ha.log
        if self.ack_offset >= log.max_offset:
            self.caught_up_ms = now_ms
        elif self.ack_offset >= self._mark_offset:
            self.caught_up_ms = self._mark_ms
        else:
            return
        self._mark_offset, self._mark_ms = log.max_offset, now_ms

    @property
    def is_answered(self) -> bool:
        """Whether it has been told this replica's epochs."""
        return self._answered

    # -- sending -------------------------------------------------------------------------------

    def writable(self, now_ms: int) -> None:
        """The transport has room again."""
        self._busy = False
        self.pump(now_ms)

    def rested(self) -> None:
        """The transport has room, but this replica serves nobody right now."""
        self._busy = False

    def pump(self, now_ms: int) -> None:
        """Send the next batch if there is one; the one after it waits for the transport."""
        if self._busy or self.state is not ConnectionState.TRANSFER:
            return
        log = self._ha.log
        if self.next_offset is None:
            self._choose_start()
        start = self.next_offset
        if start is None or start >= log.max_offset:
            return
        if start < log.min_offset:
            self._tell_too_late(start, log.min_offset)
            return
        span = self._ha.epochs.find(start)
        if span is None and self._ha.epochs.last is not None:
            self._tell_too_late(start, self._first_offset)
            return
        if span is None:
            self.close(f"no epoch covers {start}", "error")
            return
        end = min(log.max_offset, log.file_end(start), span.end)
        size = min(end - start, self._ha.settings.transfer_body_bytes, self._allowance(now_ms))
        if size > 0:
            self._send(now_ms, size, span.epoch, span.start)

    @property
    def _first_offset(self) -> int:
        """The first byte that can be sent: the log's, or that of its first file with an epoch.

        Files that expire are forgotten here before they go; a crash in between brings them back.
        """
        log, epochs = self._ha.log, self._ha.epochs.entries
        first = max(log.min_offset, 0)
        if epochs and epochs[0].start > first:
            first = -(-epochs[0].start // log.file_size) * log.file_size
        return first

    def _tell_too_late(self, start: int, first: int) -> None:
        """Nothing but heartbeats can be sent, as from a master of Java's; the slave decides."""
        if self._is_too_late:
            return
        self._is_too_late = True
        ha = self._ha
        ha.note(
            "ha_slave_too_late",
            "error",
            slave_id=self.slave_id,
            address=self.address,
            reason=(
                f"asks for {start}, the log begins at {first}: it was away for longer "
                "than fileReservedTime, and copies nothing until it starts over: "
                "slaveStartOverEnable, or by hand, see docs/OPERATIONS.md"
            ),
        )

    def _choose_start(self) -> None:
        """Where an empty slave begins: always at a file's beginning."""
        log = self._ha.log
        if log.is_empty:
            return
        last_file = log.max_offset - log.max_offset % log.file_size
        first = min(self._first_offset, last_file)
        # A log that ends exactly at a file's end has nothing in the file after it.
        self.next_offset = max(last_file, first) if self._from_last_file else first

    def _send(self, now_ms: int, size: int, epoch: MasterEpoch, epoch_start: int) -> None:
        ha, offset = self._ha, self.next_offset or 0
        self._sent_confirm = confirm = ha.log.confirm_offset
        header = TransferHeader(size, offset, epoch, epoch_start, confirm)
        ha.emit(SendBatch(self.conn, encode_transfer_header(header), offset, size))
        if self.next_offset is not None:
            self.next_offset = offset + size
        self.last_write_ms = now_ms
        self._metered += size + TRANSFER_HEADER_BYTES
        self._busy = True

    def _allowance(self, now_ms: int) -> int:
        settings = self._ha.settings
        if now_ms - self._meter_ms >= _METER_MS:
            self._meter_ms, self._metered = now_ms, 0
        if not settings.ha_flow_control_enable:
            return settings.transfer_body_bytes
        return max(0, settings.max_ha_transfer_byte_in_second - self._metered)

    # -- time ----------------------------------------------------------------------------------

    def tick(self, now_ms: int, *, serving: bool) -> None:
        """Give up a silent slave; otherwise send what flow control held back, or a heartbeat."""
        settings = self._ha.settings
        if now_ms - self.last_read_ms > settings.ha_housekeeping_interval_ms:
            self.close("the slave is silent")
            return
        if not serving:
            return
        self._observe(now_ms)
        self.pump(now_ms)
        if self.state is ConnectionState.TRANSFER and now_ms >= self._heartbeat_ms:
            self._heartbeat(now_ms)

    def _heartbeat(self, now_ms: int) -> None:
        if self._busy:
            return
        span = self._ha.epochs.find(self.next_offset or 0)
        entry = self._ha.epochs.last if span is None else span
        if entry is not None:
            self._send(now_ms, 0, entry.epoch, entry.start)

    @property
    def _heartbeat_ms(self) -> int:
        """Soon after confirmOffset moved, so that consumers of the slave see it; else seldom."""
        settings = self._ha.settings
        if self._sent_confirm != self._ha.log.confirm_offset:
            return self.last_write_ms + settings.confirm_delay_ms
        return self.last_write_ms + settings.ha_send_heartbeat_interval_ms

    def next_deadline_ms(self, *, serving: bool) -> int:
        """When :meth:`tick` has something to do."""
        silent = self.last_read_ms + self._ha.settings.ha_housekeeping_interval_ms + 1
        if not serving or self.state is not ConnectionState.TRANSFER or self._busy:
            return silent
        behind = (
            self.next_offset is not None
            and self.next_offset < self._ha.log.max_offset
            and not self._is_too_late
        )
        due = self._meter_ms + _METER_MS if behind else self._heartbeat_ms
        return min(silent, due)
