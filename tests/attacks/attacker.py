"""What every attack stands on: where it aims, how fast it goes, and what it has achieved.

An attack is a function that takes a :class:`Run` and goes on until its time is over. It shares no
line with ``rmqha.remoting``: frames come from the independent client, and of answers only length
and code are looked at.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import socket
import struct
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Self

from msgspec import Struct

from rmqha.testing.real import wire

ONEWAY = 2
DIAL_S = 1.0
STALL_S = 0.5
SHORT_S = 0.05
READ_BYTES = 1 << 16
FRAME_BYTES_MAX = 1 << 26
_CODE = re.compile(rb'"code":(-?\d+)')


class Target(Struct, frozen=True):
    """Who is attacked; addresses are ``host:port``.

    Attributes:
        raft: where controllers hear each other.
        ha: replication ports.
        http: status pages and exporters.
        group: the controllers' group, whose members are n0, n1, ...
        master: address of the master when the attack began.
        topic: one that honest clients use.
        own_topic, own_group: what the attacker may use if it has a user.
        source: the address that attackers come from, so that servers can tell them from honest
            clients; empty for the same.
        access_key, secret_key: that user; empty for a stranger.
    """

    controllers: tuple[str, ...]
    raft: tuple[str, ...]
    namesrv: tuple[str, ...]
    brokers: tuple[str, ...]
    ha: tuple[str, ...]
    http: tuple[str, ...]
    broker_name: str
    cluster_name: str
    group: str
    master: str
    topic: str
    own_topic: str
    own_group: str
    source: str = ""
    access_key: str = ""
    secret_key: str = ""

    @property
    def servers(self) -> tuple[str, ...]:
        """All ports that speak remoting."""
        return (*self.controllers, *self.namesrv, *self.brokers)


class Tally(Struct):
    """What an attack has achieved.

    Attributes:
        sent: frames, requests or pieces that left.
        sent_bytes: of them.
        held_max: connections that were open at a time.
        refused_dials: connections that were not let in.
        closed: connections that the other side ended.
        stalled: writes that the other side did not take in time.
        read_bytes: what came back.
        answers: by their codes.
    """

    sent: int = 0
    sent_bytes: int = 0
    held_max: int = 0
    refused_dials: int = 0
    closed: int = 0
    stalled: int = 0
    read_bytes: int = 0
    answers: Counter[str] = Counter()


class Run:
    """One attack: its target, its time and its tally.

    Args:
        seconds: how long.
        per_s: shots a second; 0 for as fast as it goes.
    """

    def __init__(self, target: Target, seconds: float, per_s: float) -> None:
        self.target = target
        self.tally = Tally(answers=Counter())
        self._seconds = seconds
        self._period_s = 1 / per_s if per_s else 0.0
        self.begin()
        self._lines: dict[str, Line] = {}

    def begin(self) -> None:
        """Now: what was prepared so far takes no time from the attack."""
        self._next = time.monotonic()
        self._end = self._next + self._seconds

    @property
    def goes_on(self) -> bool:
        """Whether there is time left."""
        return time.monotonic() < self._end

    def pace(self) -> bool:
        """Wait for the moment of the next shot; False when the time is over."""
        now = time.monotonic()
        # What could not be sent in time is not made up for: a rate is a limit.
        self._next = max(self._next + self._period_s, now - 1.0)
        if self._next > now:
            time.sleep(min(self._next, self._end) - now if self._end > now else 0)
        return self.goes_on

    def wait(self, seconds: float) -> None:
        """Do nothing for a while, or until the end."""
        time.sleep(max(0.0, min(seconds, self._end - time.monotonic())))

    def line(self, address: str) -> Line:
        """The connection to an address, opened anew if it was closed."""
        one = self._lines.get(address)
        if one is None:
            one = self._lines[address] = Line(self, address)
        return one

    def dial(self, address: str) -> socket.socket | None:
        """A connection; None when it is not let in."""
        host, _, port = address.rpartition(":")
        source = (self.target.source, 0) if self.target.source else None
        try:
            return socket.create_connection((host, int(port)), DIAL_S, source)
        except OSError:
            self.tally.refused_dials += 1
            return None

    def shoot(self, address: str, frame: bytes) -> None:
        """Send one frame, and look at what has come back."""
        self.line(address).shoot(frame)

    def fire(self, shots: Iterator[tuple[str, bytes]]) -> None:
        """Send what an endless supply brings, until the end."""
        first = next(shots)
        self.begin()
        for address, one in itertools.chain([first], shots):
            if not self.pace():
                break
            self.shoot(address, one)
        self.close()

    def close(self) -> None:
        """Take what has come back, and hang up."""
        for one in self._lines.values():
            one.drain(SHORT_S)
            one.close()


class Line:
    """One connection on which frames are sent and answers counted by code."""

    def __init__(self, run: Run, address: str) -> None:
        self._run = run
        self._address = address
        self._tally = run.tally
        self._socket: socket.socket | None = None
        self._buffer = b""
        self._silent_until = 0.0

    def shoot(self, frame: bytes) -> bool:
        """Send a frame; whether it left."""
        peer = self._dialled()
        if peer is None:
            return False
        try:
            peer.settimeout(STALL_S)
            peer.sendall(frame)
        except TimeoutError:
            self._tally.stalled += 1
            self.close()
            return False
        except OSError:
            self._tally.closed += 1
            self.close()
            return False
        self._tally.sent += 1
        self._tally.sent_bytes += len(frame)
        self.drain()
        return True

    def drain(self, wait_s: float = 0.0) -> None:
        """Count the answers that have come."""
        while self._socket is not None:
            try:
                self._socket.settimeout(wait_s)
                data = self._socket.recv(READ_BYTES)
            except (BlockingIOError, TimeoutError):
                return
            except OSError:
                data = b""
            if not data:
                self._tally.closed += 1
                self.close()
                return
            self._tally.read_bytes += len(data)
            self._read(data)

    def _read(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 8:
            total, packed = struct.unpack_from(">II", self._buffer)
            if total > FRAME_BYTES_MAX:
                self._buffer = b""
                return
            if len(self._buffer) < 4 + total:
                return
            found = _CODE.search(self._buffer, 8, 8 + (packed & 0xFFFFFF))
            self._tally.answers[found.group(1).decode() if found else "?"] += 1
            self._buffer = self._buffer[4 + total :]

    def close(self) -> None:
        """Hang up."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._buffer = b""

    def _dialled(self) -> socket.socket | None:
        if self._socket is None and time.monotonic() >= self._silent_until:
            self._socket = self._run.dial(self._address)
            if self._socket is None:
                self._silent_until = time.monotonic() + 0.2
        return self._socket


class Crowd:
    """Connections that stay open, each replaced when the other side ends it.

    Args:
        run: whose time and tally.
        addresses: where to; each gets ``each`` connections.
        first: what is said on each.
    """

    def __init__(self, run: Run, addresses: tuple[str, ...], each: int, first: bytes = b"") -> None:
        self._run = run
        self._wanted = [address for address in addresses for _ in range(each)]
        self._first = first
        self._open: dict[int, socket.socket] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._open.values():
            one.close()

    def fill(self) -> None:
        """Open what is not open, at the run's pace."""
        for number, address in enumerate(self._wanted):
            if number in self._open:
                continue
            if not self._run.pace():
                return
            one = self._run.dial(address)
            if one is None:
                continue
            self._open[number] = one
            self.say(number, self._first)
            self._run.tally.held_max = max(self._run.tally.held_max, len(self._open))

    def say(self, number: int, data: bytes) -> None:
        """Send on one connection, as far as it goes at once."""
        one = self._open[number]
        one.settimeout(0)
        try:
            sent = one.send(data) if data else 0
        except BlockingIOError:
            self._run.tally.stalled += 1
            return
        except OSError:
            self._forget(number)
            return
        self._run.tally.sent += 1
        self._run.tally.sent_bytes += sent

    def look(self, *, reads: bool) -> None:
        """Notice who was thrown out; with ``reads`` also take what was said."""
        for number, one in list(self._open.items()):
            one.settimeout(0)
            with contextlib.suppress(BlockingIOError, TimeoutError):
                try:
                    data = one.recv(READ_BYTES, 0 if reads else socket.MSG_PEEK)
                except (ConnectionError, socket.herror):
                    data = b""
                if not data:
                    self._forget(number)
                elif reads:
                    self._run.tally.read_bytes += len(data)

    @property
    def open(self) -> tuple[int, ...]:
        """Numbers of the connections that are open."""
        return tuple(self._open)

    def _forget(self, number: int) -> None:
        self._open.pop(number).close()
        self._run.tally.closed += 1


def frame(
    code: int, fields: Mapping[str, object] | None = None, body: bytes = b"", *, flag: int = 0
) -> bytes:
    """A request, signed if the process has a user."""
    return wire.encode(code, fields or {}, body, next(_OPAQUES), flag)


_OPAQUES = itertools.count(1)
