"""The slave's half of replication: follow one master, cut what it does not have, acknowledge.

What it does and Java does not: the first acknowledgement leaves right after the handshake,
a duplicate handshake reply does no harm, an epoch is recorded only when the log has
reached its start, and the master's epochs are taken anew at each connection.

Source: RIP-44, "Replication solution" and "Epoch file updates and corrections"; AutoSwitchHAClient
of RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

from typing import assert_never

from rmqha.base.errors import StoreCorrupted
from rmqha.base.ids import MasterEpoch
from rmqha.ha import events as ev
from rmqha.ha.epochs import EpochCache, EpochEntry, find_consistent_point
from rmqha.ha.events import CloseMaster, Connect, Flush, SendAck, SendToMaster, TruncateLog
from rmqha.ha.frames import (
    ConnectionState,
    HandshakeReply,
    HandshakeRequest,
    MasterFrame,
    TransferHeader,
    encode_handshake_request,
)
from rmqha.ha.settings import EPOCH_ENTRIES_MAX
from rmqha.ha.start_over import Refused, StartOver, Verdict
from rmqha.ha.state import HaState

_NO_CONNECTION = -1


class SlaveSession:
    """One reign of one master, over as many connections as it takes.

    ``READY``: no connection. ``HANDSHAKE``: epochs asked for. ``SUSPEND``: the log is being cut,
    or the epoch file written. ``TRANSFER``: data flows. ``SHUTDOWN``: another role has begun.

    Attributes:
        state: as above.
        address: the master's HA address; None until somebody knows it.
        epoch: in which the controllers named this master last.
        reported_offset: the last acknowledgement of this connection.
        last_read_ms, last_write_ms: times of the current connection.
        master_confirm_offset: what the master told last on this connection; None before it did.
    """

    def __init__(self, ha: HaState, now_ms: int, address: str | None, epoch: MasterEpoch) -> None:
        self._ha = ha
        self.epoch = epoch
        self.state = ConnectionState.READY
        self.address = address
        self.conn = _NO_CONNECTION
        self.reported_offset = 0
        self.master_confirm_offset: int | None = None
        self.last_read_ms = now_ms
        self.last_write_ms = now_ms
        self._connected_ms = now_ms
        self._waiting_seq: int | None = None
        self._connecting = False
        self._retry_at_ms: int | None = None
        self._delay_ms = ha.settings.reconnect_delay_ms
        self._header: TransferHeader | None = None
        self._body_conn = _NO_CONNECTION
        self._pending_epochs: list[EpochEntry] = []
        self._reply: HandshakeReply | None = None
        self._flush_asked = 0
        self._is_begun = False
        self._start_over = StartOver(ha.own_id, ha.settings)
        self._is_starting_over = False
        self._told_expired: Verdict = None
        self._prepare()

    # -- connecting ------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Before each connection: a log that ends at a whole record."""
        self._retry_at_ms = None
        self._waiting_seq = self._ha.cut_invalid_tail()

    def tail_cut(self, now_ms: int, seq: int) -> None:
        """The log ends at a whole record; epochs beyond its end are no longer true."""
        if seq != self._waiting_seq:
            return
        self._waiting_seq = None
        # Of the last connection, which may have ended further on: that says nothing of what will be there.
        self._flush_asked = 0
        ha = self._ha
        if ha.epochs.drop_beyond(ha.log.max_offset):
            ha.write_epochs()
        self._connect(now_ms)

    def master_found(self, now_ms: int, address: str) -> None:
        """Connect, or leave an address that is no longer the master's."""
        if address == self.address:
            return
        known, self.address = self.address, address
        self._delay_ms = self._ha.settings.reconnect_delay_ms
        if known is not None and (self.conn != _NO_CONNECTION):
            self._fail(now_ms, "the master has another address", delay_ms=0)
        elif self._retry_at_ms is not None:
            self._prepare()
        else:
            self._connect(now_ms)

    def renewed(self, epoch: MasterEpoch) -> None:
        """The controllers have named this master once more; one that was left for it is asked at once."""
        self.epoch = epoch
        if self._retry_at_ms is not None:
            self._retry_at_ms = 0

    def _connect(self, now_ms: int) -> None:
        ready = self.state is ConnectionState.READY and self.conn == _NO_CONNECTION
        if not ready or self.address is None or self._waiting_seq is not None:
            return
        self.conn = self._ha.next_seq()
        self._connecting = True
        self.last_read_ms = now_ms
        self._ha.emit(Connect(self.conn, self.address, self._ha.settings.connect_timeout_ms))

    def connected(self, now_ms: int) -> None:
        """Present this slave: 16 bytes in one write."""
        ha, settings = self._ha, self._ha.settings
        self._connecting = False
        self.state = ConnectionState.HANDSHAKE
        self.last_read_ms = self.last_write_ms = self._connected_ms = now_ms
        self.reported_offset = 0
        self.master_confirm_offset = None
        self._is_begun = False
        self._pending_epochs = []
        self._reply = None
        request = HandshakeRequest(ha.own_id, settings.sync_from_last_file, settings.async_learner)
        ha.emit(SendToMaster(self.conn, encode_handshake_request(request)))

    def closed(self, now_ms: int, reason: str) -> None:
        """Try again after a delay; what arrived of a body has been counted already."""
        ha = self._ha
        ha.note("ha_master_lost", "warning", address=self.address, reason=reason)
        self.conn = _NO_CONNECTION
        self._connecting = False
        if self.state is ConnectionState.SUSPEND:
            return  # the cut that is under way ends first
        self._retry_after(now_ms, self._delay_ms)

    def _retry_after(self, now_ms: int, delay_ms: int) -> None:
        self.state = ConnectionState.READY
        self._waiting_seq = None
        self._retry_at_ms = now_ms + delay_ms
        self._delay_ms = min(max(self._delay_ms * 2, 1), self._ha.settings.reconnect_delay_max_ms)

    def _fail(self, now_ms: int, reason: str, *, delay_ms: int | None = None) -> None:
        ha = self._ha
        ha.emit(CloseMaster(self.conn, reason))
        self.conn = _NO_CONNECTION
        self._connecting = False
        ha.note("ha_master_left", "warning", address=self.address, reason=reason)
        if self.state is not ConnectionState.SUSPEND:
            self._retry_after(now_ms, self._delay_ms if delay_ms is None else delay_ms)

    def shutdown(self, reason: str) -> None:
        """Another role begins; nothing is sent any more."""
        if self.conn != _NO_CONNECTION:
            self._ha.emit(CloseMaster(self.conn, reason))
        self.conn = _NO_CONNECTION
        self.state = ConnectionState.SHUTDOWN
        self._waiting_seq = self._retry_at_ms = None

    # -- frames ----------------------------------------------------------------------------

    def received(self, now_ms: int, frame: MasterFrame) -> None:
        """Take a handshake reply or the header of a batch."""
        self.last_read_ms = now_ms
        match frame:
            case HandshakeReply():
                if self.state is ConnectionState.HANDSHAKE:
                    self._handshake(now_ms, frame)
                # else a duplicate: Java repeats it when it is asked twice
            case TransferHeader():
                if self.state is ConnectionState.TRANSFER:
                    self._transfer(now_ms, frame)
                elif frame.body_size or self.state is not ConnectionState.SUSPEND:
                    self._fail(now_ms, f"transfer frame in {self.state.name}")
            case _:
                assert_never(frame)

    def heard(self, now_ms: int) -> None:
        """A part of a body has come: who sends is not silent, however slow the link is."""
        self.last_read_ms = now_ms

    def _handshake(self, now_ms: int, reply: HandshakeReply) -> None:
        ha, log = self._ha, self._ha.log
        try:
            EpochCache(reply.entries)
        except StoreCorrupted as error:
            self._fail(now_ms, str(error))
            return
        if reply.entries and self._is_unheard_of(now_ms, reply.entries[-1].epoch):
            return
        point = self._consistent_point(reply)
        if point < 0 or point < log.min_offset:
            # Nothing in common, or it has expired here: a cut would throw away what may be the
            # only copy of something, so a person decides.
            ha.note(
                "ha_no_consistent_point",
                "error",
                address=self.address,
                local=ha.epochs.entries,
                local_max=log.max_offset,
                master=reply.entries,
                master_max=reply.max_offset,
            )
            self._delay_ms = ha.settings.reconnect_delay_max_ms
            self._fail(now_ms, "no consistent point: manual handling is needed")
            return
        # Kept until the cut is durable: epochs must not name bytes that are still to go.
        self._reply = reply
        self._start_over.is_proven = log.is_empty or len(ha.epochs) > 0
        self.state = ConnectionState.SUSPEND
        if point < log.max_offset:
            ha.note("ha_log_truncated", "warning", offset=point, max_offset=log.max_offset)
            self._waiting_seq = ha.next_seq()
            ha.emit(TruncateLog(self._waiting_seq, point))
        else:
            self._adopt_epochs(now_ms)

    def _is_unheard_of(self, now_ms: int, epoch: int) -> bool:
        """Whether no controller has told of this epoch yet; it ends the connection.

        Epochs only grow, so one that is believed is believed for ever: a number that a broken peer makes
        up would have every later role refused, here and at whoever copies it. A master that was elected
        again is followed on as soon as the controllers have told its slaves; to ask it before is no use.
        """
        if epoch <= self.epoch:
            return False
        why = f"epoch {epoch} of a master that was named in epoch {self.epoch}"
        self._fail(now_ms, why, delay_ms=self._ha.settings.ha_housekeeping_interval_ms)
        return True

    def _consistent_point(self, reply: HandshakeReply) -> int:
        ha, log = self._ha, self._ha.log
        if log.is_empty:
            return log.max_offset
        if len(ha.epochs) == 0:
            # A replica that was run without a controller: its log is taken on trust, as Java
            # does, unless it is longer than the master's.
            return log.max_offset if log.max_offset <= reply.max_offset else -1
        return find_consistent_point(
            ha.epochs.entries, log.max_offset, reply.entries, reply.max_offset
        )

    def truncated(self, now_ms: int, seq: int) -> None:
        """The cut is durable: epochs may follow."""
        if seq != self._waiting_seq:
            return
        if self._is_starting_over:
            self._emptied(now_ms)
        else:
            self._adopt_epochs(now_ms)

    def _adopt_epochs(self, now_ms: int) -> None:
        """Up to its end this log equals the master's, so the master's epochs describe it."""
        ha, log, reply = self._ha, self._ha.log, self._reply
        if reply is None:
            return
        self._reply = None
        before = ha.epochs.entries
        # RIP-44, "Epoch file updates and corrections": the master's view is taken anew at each
        # connection, since an epoch in which nothing was written never came with a batch.
        if log.is_empty:
            ha.epochs = EpochCache()
        ha.epochs.drop_beyond(log.max_offset)
        ha.epochs.adopt(reply.entries, log.max_offset)
        ha.epochs.truncate_prefix_by_offset(max(log.min_offset, 0))
        last = ha.epochs.last_epoch
        self._pending_epochs = [entry for entry in reply.entries if entry.epoch > last]
        if ha.epochs.entries != before:
            ha.write_epochs()
        self._waiting_seq = None
        if self.conn == _NO_CONNECTION:
            self._retry_after(now_ms, self._delay_ms)
        elif ha.epochs_durable:
            self._begin_transfer(now_ms)

    def epochs_written(self, now_ms: int) -> None:
        """Acknowledge what waited for a durable epoch file."""
        if not self._ha.epochs_durable or self._waiting_seq is not None:
            return
        if self.state is ConnectionState.SUSPEND:
            if self.conn == _NO_CONNECTION:
                self._retry_after(now_ms, self._delay_ms)
            else:
                self._begin_transfer(now_ms)
        elif self.state is ConnectionState.TRANSFER:
            self._follow_confirm()
            self._report(now_ms)

    def _begin_transfer(self, now_ms: int) -> None:
        ha = self._ha
        self.state = ConnectionState.TRANSFER
        self._start_over.waits_since(now_ms)
        ha.note("ha_transfer_started", address=self.address, offset=ha.log.max_offset)
        # The first acknowledgement leaves at once. Java's comes with its heartbeat, 5 s later, and
        # so long the master does not know how far this slave is and sends nothing.
        offset = 0 if ha.log.is_empty else ha.log.max_offset
        if ha.settings.ack_flushed_data and offset > ha.log.flushed_offset:
            self._report(now_ms)
        else:
            self._ack(now_ms, offset)

    def _transfer(self, now_ms: int, header: TransferHeader) -> None:
        log, settings = self._ha.log, self._ha.settings
        size, offset = header.body_size, header.offset
        if not log.is_empty and offset != log.max_offset:
            # A gap would be read as damage, an overlap would change bytes that were acknowledged.
            self._fail(now_ms, f"frame at {offset}, log ends at {log.max_offset}")
            return
        if size and (offset < 0 or offset % log.file_size + size > log.file_size):
            self._fail(now_ms, f"frame at {offset} of {size} bytes crosses a file")
            return
        if size and log.is_empty and offset % log.file_size:
            self._fail(now_ms, f"an empty log cannot start inside a file, at {offset}")
            return
        if self._is_unheard_of(now_ms, header.epoch):
            return
        self._learn(header)
        if size:
            self._header = header
            self._body_conn = self.conn
            return
        if now_ms - self._connected_ms >= self._delay_ms:
            # Not sooner: where there is no room for a body, each connection begins well.
            self._delay_ms = settings.reconnect_delay_ms
        self._record_epochs()
        self._hear_confirm(header)
        self._look_at_silence(now_ms, header)

    def body_received(self, now_ms: int, body: ev.BodyReceived) -> None:
        """Bytes are in the log: epochs first, then confirmOffset, then the acknowledgement.

        The connection may be gone, or left: then these are the bytes that a cut-short body
        left behind. They count, so that nothing of them lies behind the end of the log.
        """
        log, header, offset = self._ha.log, self._header, body.offset
        if header is None or body.conn != self._body_conn:
            return
        self.last_read_ms = now_ms
        self._start_over.waits_since(now_ms)
        self._header = None
        first = log.is_empty
        if first:
            log.min_offset = offset
        log.max_offset = offset + body.length
        # Epochs that ended before this log begins do not describe it.
        self._record_epochs(prefix_end=offset if first else 0)
        if body.damaged_at is not None:
            # Of a connection that has ended it is cut before the next one, or by the new role.
            self._ha.damaged(body.damaged_at, self.reported_offset, self.address)
            if body.conn == self.conn:
                self._fail(now_ms, f"what it sent is damaged at {body.damaged_at}")
                self._ha.cut_invalid_tail()
            return
        self._delay_ms = self._ha.settings.reconnect_delay_ms
        if body.conn == self.conn and body.length == header.body_size:
            self._hear_confirm(header)
            self._report(now_ms)

    def _learn(self, header: TransferHeader) -> None:
        """Remember an epoch until the log reaches its start; the cache never runs ahead."""
        entry = EpochEntry(header.epoch, header.epoch_start)
        known = self._pending_epochs[-1] if self._pending_epochs else self._ha.epochs.last
        newer = known is None or (entry.epoch > known.epoch and entry.start >= known.start)
        valid = entry.epoch >= 0 and entry.start >= 0
        if newer and valid and len(self._pending_epochs) < EPOCH_ENTRIES_MAX:
            self._pending_epochs.append(entry)

    def _record_epochs(self, prefix_end: int = 0) -> None:
        ha, pending = self._ha, self._pending_epochs
        if not pending or pending[0].start > ha.log.max_offset:
            return
        reached = [entry for entry in pending if entry.start <= ha.log.max_offset]
        self._pending_epochs = pending[len(reached) :]
        changed = [entry for entry in reached if ha.epochs.append(entry)]
        if ha.epochs.truncate_prefix_by_offset(prefix_end) or changed:
            ha.write_epochs()

    def _hear_confirm(self, header: TransferHeader) -> None:
        if header.confirm_offset >= 0:
            self.master_confirm_offset = header.confirm_offset
            self._follow_confirm()

    def _follow_confirm(self) -> None:
        # RIP-44, "ConfirmOffset": the smaller of the master's and of what is here. Bytes whose epoch a
        # crash forgets would be cut at the next handshake, though consumers had read them here.
        if self.master_confirm_offset is not None and self._ha.epochs_durable:
            self._ha.set_confirm(min(self.master_confirm_offset, self._ha.log.max_offset))

    # -- starting over ---------------------------------------------------------------------

    def set_heard(self, now_ms: int, ids: frozenset[int]) -> None:
        """Remember whether the controllers could elect this slave."""
        self._start_over.set_heard(now_ms, ids)

    def _look_at_silence(self, now_ms: int, header: TransferHeader) -> None:
        """Heartbeats only, though the master has more: what comes next has expired there."""
        ha = self._ha
        verdict = self._start_over.judge(now_ms, header, ha.log)
        if verdict is None:
            return
        if verdict is not Refused.NO and verdict == self._told_expired:
            return
        self._told_expired = verdict
        facts = {"address": self.address, "max_offset": ha.log.max_offset}
        if verdict is not Refused.NO:
            ha.note("ha_expired_at_master", "error", **facts, reason=verdict.value)
            return
        ha.note("ha_starting_over", "warning", **facts, confirm_offset=header.confirm_offset)
        self._is_starting_over = True
        self._pending_epochs = []
        self.state = ConnectionState.SUSPEND
        self._fail(now_ms, "it has expired what comes next; this slave starts over")
        self._waiting_seq = ha.next_seq()
        ha.emit(TruncateLog(self._waiting_seq, 0))

    def _emptied(self, now_ms: int) -> None:
        """Nothing is left of the log: go on as a new replica, which no epoch describes."""
        ha = self._ha
        self._is_starting_over = False
        ha.epochs = EpochCache()
        ha.write_epochs()
        self._retry_after(now_ms, 0)

    # -- acknowledging ---------------------------------------------------------------------

    def flushed(self, now_ms: int) -> None:
        """More of the log is durable."""
        if self.state is ConnectionState.TRANSFER:
            self._report(now_ms)

    def _report(self, now_ms: int) -> None:
        """Acknowledge if the log has advanced, its epochs are durable, and so is it if asked."""
        ha, log = self._ha, self._ha.log
        if not ha.epochs_durable or log.is_empty:
            # Acknowledged bytes whose epoch a crash forgets would be cut at the next handshake.
            return
        offset = log.max_offset
        if ha.settings.ack_flushed_data:
            offset = min(offset, log.flushed_offset)
            if log.flushed_offset < log.max_offset and self._flush_asked <= log.flushed_offset:
                self._flush_asked = log.max_offset
                ha.emit(Flush(log.max_offset))
        # The first one says where the master goes on, so it must be this log's end.
        if offset > self.reported_offset and (self._is_begun or offset == log.max_offset):
            self._ack(now_ms, offset)

    def _ack(self, now_ms: int, offset: int) -> None:
        self.reported_offset = offset
        self._is_begun = True
        self.last_write_ms = now_ms
        self._ha.emit(SendAck(self.conn, offset))

    # -- time ------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """Heartbeat, give up a silent master, or try again."""
        settings = self._ha.settings
        if self._retry_at_ms is not None:
            if now_ms >= self._retry_at_ms:
                self._prepare()
            return
        if self.conn == _NO_CONNECTION or self._connecting:
            return
        if now_ms - self.last_read_ms > settings.ha_housekeeping_interval_ms:
            self._fail(now_ms, "the master is silent", delay_ms=0)
        elif (
            self.state is ConnectionState.TRANSFER
            and self._may_heartbeat
            and now_ms - self.last_write_ms >= settings.ha_send_heartbeat_interval_ms
        ):
            self._ack(now_ms, self.reported_offset)

    @property
    def _may_heartbeat(self) -> bool:
        """A slave that has data never says 0, which means "I am empty"."""
        return self.reported_offset > 0 or self._ha.log.is_empty

    @property
    def next_deadline_ms(self) -> int | None:
        """When :meth:`tick` has something to do."""
        if self._retry_at_ms is not None:
            return self._retry_at_ms
        if self.conn == _NO_CONNECTION or self._connecting:
            return None
        settings = self._ha.settings
        silent = self.last_read_ms + settings.ha_housekeeping_interval_ms + 1
        if self.state is not ConnectionState.TRANSFER or not self._may_heartbeat:
            return silent
        return min(silent, self.last_write_ms + settings.ha_send_heartbeat_interval_ms)
