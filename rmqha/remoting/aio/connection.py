"""One connection, of a server or a client: bytes in, batches of commands out, gathered writes.

Sends made while a chunk is handled leave in one write when the handler returns; sends made at other
times are gathered until the loop's next turn. A peer that does not read is cut off before its
unsent bytes pass ``write_buffer_bytes_max``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import cast

from rmqha.base.errors import ConnectionLost, LocalProtocolError, RemoteProtocolError
from rmqha.base.ids import ConnectionId
from rmqha.remoting.address import format_address
from rmqha.remoting.aio.room import FLOORS_BYTES, Room
from rmqha.remoting.aio.turns import Turns
from rmqha.remoting.codec_json import decode_command
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.frame import FrameDecoder, encode, encode_head
from rmqha.remoting.repeats import HeaderCache
from rmqha.remoting.settings import RemotingSettings
from rmqha.runtime.aio.pieces import write_pieces
from rmqha.runtime.late import LATE_MS, READ_MS
from rmqha.runtime.ports import Clock, TimerHandle

OnCommands = Callable[["Connection", list[RemotingCommand]], None]
OnClosed = Callable[["Connection", Exception | None], None]
OnProtocolError = Callable[["Connection", RemoteProtocolError], None]

JOINED_MAX = 8 * 1024
"""Frames of more bytes than this are not copied once more to leave together."""

COMMANDS_A_LOOK = 64
HANDLING_MS_MAX = 5
"""A chunk can hold a thousand commands, and some take half a millisecond each: after so long the
others of a server's port are heard before the rest of the chunk is."""


class Connection(asyncio.Protocol):
    """The asyncio protocol at one end of a TCP connection.

    Attributes:
        id: unique among the connections of one process.
        peer: the peer's ``host:port``; empty before the connection is made.
        host: the same without the port.
        frames_in: commands decoded so far.
        frames_out: commands handed over for sending so far.
        bytes_in: bytes received.
        bytes_out: bytes handed to the transport.
    """

    def __init__(
        self,
        connection_id: ConnectionId,
        clock: Clock,
        settings: RemotingSettings,
        *,
        on_commands: OnCommands,
        on_closed: OnClosed,
        on_opened: Callable[[Connection], None] | None = None,
        on_protocol_error: OnProtocolError | None = None,
        read_only_while_writable: bool = False,
        headers: HeaderCache | None = None,
        turns: Turns | None = None,
        room: Room | None = None,
    ) -> None:
        """Prepare a connection; nothing happens before the transport arrives.

        Args:
            connection_id: from one counter for the whole process.
            clock: for the idle timer.
            settings: the limits.
            on_commands: gets all commands of one chunk, in order, never an empty list.
            on_closed: called once after ``on_opened``; the error is None when either side closed
                in order.
            on_opened: called when the transport is there.
            on_protocol_error: told what was malformed, just before the connection is closed.
            read_only_while_writable: stop reading while the peer does not read. For servers only:
                two ends that both wait for the other to read would wait for ever.
            headers: parsed headers of requests that repeat; commands then share ``ext_fields``.
            turns: when those that bring much are read; None for who is always read.
            room: what all connections of a server may keep together; None for no such bound.
        """
        self.id = connection_id
        self.peer = self.host = ""
        self.frames_in = self.frames_out = self.bytes_in = self.bytes_out = 0
        self._clock = clock
        self._settings = settings
        self._on_commands = on_commands
        self._on_closed = on_closed
        self._on_opened = on_opened
        self._on_protocol_error = on_protocol_error
        self._read_only_while_writable = read_only_while_writable
        decode_json = decode_command if headers is None else headers.decode
        self._decoder = FrameDecoder(
            settings.frame_bytes_max, settings.header_bytes_max, decode_json
        )
        self._transport: asyncio.Transport | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._corked = False
        self._flush_scheduled = False
        self._paused = False
        self._when_writable: list[Callable[[Connection], None]] = []
        self._turns = turns
        self._room = room
        self._held_bytes = 0
        self._is_held = self._is_waiting = False
        self._left: list[RemotingCommand] = []
        self._last_activity_ms = 0
        self._idle_timer: TimerHandle | None = None
        self._idle_was_late = False
        self._close_error: Exception | None = None

    @property
    def active_ms(self) -> int:
        """When something last came or went, by the connection's clock."""
        return self._last_activity_ms

    @property
    def is_closing(self) -> bool:
        """Whether nothing can be sent: not open yet, closing or closed."""
        return self._transport is None or self._transport.is_closing()

    @property
    def is_write_paused(self) -> bool:
        """Whether the peer reads more slowly than this side writes; a hint for producers."""
        return self._paused

    @property
    def unsent_bytes(self) -> int:
        """Bytes that wait here for the peer to read; never over ``write_buffer_bytes_max``."""
        if self._transport is None:
            return 0
        return self._out_bytes + self._transport.get_write_buffer_size()

    def send(self, command: RemotingCommand) -> None:
        """Send a command; dropped when the connection is closing.

        Raises:
            LocalProtocolError: the command cannot be written as a frame.
        """
        self.frames_out += 1
        self.send_bytes(encode(command, self._settings.frame_bytes_max))

    def answer(self, request: RemotingCommand, answer: RemotingCommand) -> None:
        """Send an answer; one that makes no frame is replaced by 1 and the reason."""
        try:
            self.send(answer)
        except LocalProtocolError as error:
            self.send(request.reply(ResponseCode.SYSTEM_ERROR, str(error)))

    def send_frame(self, frame: bytes) -> None:
        """Send one frame that is encoded already; dropped when the connection is closing."""
        self.frames_out += 1
        self.send_bytes(frame)

    def send_parts(self, command: RemotingCommand, parts: Sequence[memoryview]) -> None:
        """Send a command whose body is in parts, now: they are copied once, and not kept.

        Raises:
            LocalProtocolError: the command cannot be written as a frame.
        """
        size = sum(map(len, parts))
        head = encode_head(command, size, self._settings.frame_bytes_max)
        if self._makes_room(len(head) + size):
            self.frames_out += 1
            self.send_bytes(b"".join((head, *parts)))

    def send_pieces(self, command: RemotingCommand, pieces: Sequence[bytes]) -> None:
        """Send a command whose large body is in pieces, which are kept and not joined.

        Raises:
            LocalProtocolError: the command cannot be written as a frame.
        """
        size = sum(map(len, pieces))
        head = encode_head(command, size, self._settings.frame_bytes_max)
        if self._makes_room(len(head) + size):
            self.frames_out += 1
            for piece in (head, *pieces):
                self.send_bytes(piece)

    def send_bytes(self, data: bytes) -> None:
        """Send whole frames that are encoded already; dropped when the connection is closing."""
        if not self._makes_room(len(data)):
            return
        self._out.append(data)
        self._out_bytes += len(data)
        if not self._corked and not self._flush_scheduled and self._loop is not None:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush_soon)

    def _makes_room(self, size: int) -> bool:
        """Whether so many bytes may be sent; a peer that left too much unread is cut off here."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return False
        limit = self._settings.write_buffer_bytes_max
        if self._out_bytes + transport.get_write_buffer_size() + size <= limit:
            return True
        self._flush()  # the kernel may take some of it
        if transport.get_write_buffer_size() + size <= limit:
            return True
        self.abort(ConnectionLost(f"peer {self.peer} left over {limit} bytes unread", "unread"))
        return False

    def send_frames(self, frames: list[bytes]) -> None:
        """Send several encoded frames."""
        self.frames_out += len(frames)
        self.send_bytes(b"".join(frames))

    def flush(self) -> None:
        """Hand over what was sent to the transport now instead of at the loop's next turn."""
        self._flush()

    def close(self) -> None:
        """Close once what was sent has left."""
        if self._transport is not None:
            self._flush()
            self._transport.close()

    def abort(self, error: Exception | None = None) -> None:
        """Close now; unsent bytes are lost. ``on_closed`` gets ``error``."""
        if self._close_error is None:
            self._close_error = error
        if self._transport is not None:
            self._out.clear()
            self._out_bytes = 0
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport (called by the loop)."""
        # Simulated transports only look like asyncio's, so no isinstance here.
        self._transport = cast(asyncio.Transport, transport)
        self.peer, self.host = _names(transport.get_extra_info("peername"))
        self._loop = asyncio.get_running_loop()
        self._last_activity_ms = self._clock.now_ms()
        if self._settings.idle_timeout_ms > 0:
            self._arm_idle_timer(self._settings.idle_timeout_ms)
        if self._on_opened is not None:
            self._on_opened(self)

    def data_received(self, data: bytes) -> None:
        """Decode a chunk and hand its commands over as one batch (called by the loop)."""
        if self.is_closing:
            return
        self._last_activity_ms = self._clock.now_ms()
        self.bytes_in += len(data)
        try:
            commands = self._decoder.feed(data)
        except RemoteProtocolError as error:
            self._fail_in_turn(error)
            return
        if commands:
            self.frames_in += len(commands)
            self._handle(commands)
        room = self._room
        if room is not None and (
            self._held_bytes or self._decoder.pending_bytes >= room.floor_bytes
        ):
            self.count_held()
        if self._decoder.error is not None:
            self._fail_in_turn(self._decoder.error)
        elif self._turns is not None and not self._left:
            self._turns.took(self, len(data))

    def _handle(self, commands: list[RemotingCommand]) -> None:
        """Hand commands over; where they take long, some of them now and the others in turn."""
        if self._left or self._is_waiting:
            self._left += commands
            return
        self._corked = True
        try:
            if self._turns is None or len(commands) <= COMMANDS_A_LOOK:
                self._on_commands(self, commands)
            else:
                self._handle_for_a_while(commands)
        finally:
            self._uncork()

    def _uncork(self) -> None:
        self._corked = False
        self._flush()

    def _handle_for_a_while(self, commands: list[RemotingCommand]) -> None:
        begun_ms = self._clock.now_ms()
        for at in range(0, len(commands), COMMANDS_A_LOOK):
            took_ms = self._clock.now_ms() - begun_ms
            if at and took_ms >= HANDLING_MS_MAX and self._turns is not None:
                self._left = commands[at:]
                self._turns.wait(self)
                return
            self._on_commands(self, commands[at : at + COMMANDS_A_LOOK])
            if self._is_waiting:
                self._left += commands[at + COMMANDS_A_LOOK :]
                return

    def eof_received(self) -> bool:
        """The peer will send nothing more: close, as Java does (called by the loop)."""
        return False

    def pause_writing(self) -> None:
        """The transport's buffer is filling (called by the loop)."""
        self._paused = True
        self._choose_reading()

    def resume_writing(self) -> None:
        """The transport's buffer has drained (called by the loop)."""
        self._paused = False
        self.count_held()
        self._choose_reading()
        told, self._when_writable = self._when_writable, []
        for one in told:
            one(self)

    def when_writable(self, told: Callable[[Connection], None]) -> None:
        """Tell once when the peer has read what it was sent; for who has seen ``is_write_paused``.

        Nobody is told of a connection that ends before.
        """
        self._when_writable.append(told)

    def be_read_always(self) -> None:
        """Never wait for a turn: others depend on what this peer says."""
        self._turns = None

    def wait(self, behind: list[RemotingCommand]) -> None:
        """Hand over and read nothing more until told to resume; for who answers in turns.

        Args:
            behind: what was handed over already and has not been dealt with; it comes again.
        """
        self._is_waiting = True
        # Somebody who was asked before may say so only now, when others wait for their turn already.
        self._left = [*behind, *self._left]
        self._choose_reading()

    def resume(self) -> None:
        """What everything had to wait for is done."""
        self._is_waiting = False
        self._last_activity_ms = self._clock.now_ms()
        if not self._is_held:
            self.go_on()

    def hold(self) -> None:
        """Read no more until it is this connection's turn (called by ``Turns``)."""
        self._is_held = True
        self._choose_reading()

    def go_on(self) -> None:
        """It is this connection's turn (called by ``Turns``), or it need wait no more.

        Where it waits for an answer still, that comes first, and ``resume`` goes on. What a handler
        raises costs this connection, as the loop has it for a chunk that has just come, and is told of
        there.
        """
        self._is_held = False
        if self._is_waiting:
            return
        commands, self._left = self._left, []
        if commands:
            self._corked = True
            try:
                self._handle_for_a_while(commands)
            except Exception as error:
                self._uncork()  # what was answered before stays so
                self.abort(error)
                raise
            self._uncork()
        if self._decoder.error is not None:
            self._fail_in_turn(self._decoder.error)
        elif not self._is_held:
            self._choose_reading()  # it reads no more where it has begun to wait

    def _choose_reading(self) -> None:
        """Read unless this connection waits: for its turn, for an answer, or for its peer to read."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._is_held or self._is_waiting or (self._paused and self._read_only_while_writable):
            transport.pause_reading()
        else:
            transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end, once (called by the loop)."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        self._out.clear()
        self._out_bytes = 0
        if self._room is not None and self._held_bytes:
            self._room.hold(self, 0)
        self._room = None  # whatever the transport says after the end counts no more
        self._when_writable.clear()
        self._left.clear()  # a peer that leaves in order is read, and so handled, to its end before
        self._on_closed(self, self._close_error or exc)

    def _flush_soon(self) -> None:
        self._flush_scheduled = False
        self._flush()

    def _flush(self) -> None:
        transport = self._transport
        if not self._out or transport is None:
            return
        out, size = self._out, self._out_bytes
        self._out, self._out_bytes = [], 0
        if transport.is_closing():
            return
        self.bytes_out += size
        self._last_activity_ms = self._clock.now_ms()
        if size > len(out) * JOINED_MAX:
            write_pieces(transport, out)
        else:
            transport.write(out[0] if len(out) == 1 else b"".join(out))
        room = self._room
        if room is not None and (self._paused or room.floor_bytes < FLOORS_BYTES[0]):
            self.count_held()

    @property
    def kept_bytes(self) -> int:
        """What this connection keeps in memory: of a frame that is not whole, and unsent."""
        return self._decoder.pending_bytes + self.unsent_bytes

    def count_held(self) -> None:
        """Tell what this connection keeps in memory, once that is more than a little."""
        room = self._room
        if room is None:
            return
        size = self.kept_bytes
        size = size if size >= room.floor_bytes else 0
        if size or self._held_bytes:  # also the same as before: the room may have looked meanwhile
            self._held_bytes = size
            room.hold(self, size)

    def _fail_in_turn(self, error: RemoteProtocolError) -> None:
        """Fail, but not before what came in front of the malformed frame is handled."""
        # The stack holds this connection and the frame, up to half a MiB: what nobody will read
        # would wait for the collector, which looks seldom.
        error.__traceback__ = error.__cause__ = error.__context__ = None
        if not self._left and not self._is_waiting and not self.is_closing:
            self._fail(error)

    def _fail(self, error: RemoteProtocolError) -> None:
        self._close_error = error
        if self._on_protocol_error is not None:
            self._on_protocol_error(self, error)
        self.close()

    def _arm_idle_timer(self, delay_ms: int) -> None:
        self._idle_timer = self._clock.call_later(delay_ms, self._check_idle)

    def _check_idle(self) -> None:
        """Look at the last activity; the timer is never moved while traffic flows."""
        timeout_ms = self._settings.idle_timeout_ms
        if self._is_waiting:
            self._last_activity_ms = self._clock.now_ms()  # it is not the peer that says nothing
        left_ms = self._last_activity_ms + timeout_ms - self._clock.now_ms()
        if left_ms > 0:
            self._idle_was_late = False
            self._arm_idle_timer(left_ms)
            return
        if left_ms < -LATE_MS and not self._idle_was_late:
            # This process stood still: what the peer sent meanwhile has not been read yet.
            self._idle_was_late = True
            self._arm_idle_timer(READ_MS)
            return
        self._idle_timer = None
        self.abort(ConnectionLost(f"idle for {timeout_ms} ms"))


def _names(peer: object) -> tuple[str, str]:
    """``host:port`` and host of a socket's peer."""
    if isinstance(peer, tuple) and len(peer) >= 2:
        return format_address(str(peer[0]), int(peer[1])), str(peer[0])
    return str(peer or ""), str(peer or "")
