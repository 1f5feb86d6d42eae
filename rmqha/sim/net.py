"""Simulated TCP: ordered streams with delays, stalls, cuts in one or both directions, resets.

A cut holds bytes back, as TCP does while it retransmits; new connections time out. When a host
is killed its peers see a reset, when it loses power they see nothing until they speak to it. Where
a window is set, who has more on its way than it holds is told to pause, as by asyncio.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import random
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, cast

from msgspec import Struct

from rmqha.base.errors import ConnectFailed
from rmqha.sim.loop import HOST, SimLoop

Factory = Callable[[], asyncio.Protocol]
RETRANSMITS_MAX = 8
PARTED, JOINED = "write that came in parts", "writes that came as one"
PAUSED = "sender told to pause"
WATCH = ".watch"
"""Ends the name of the process that watches a host's broker, with connections of its own."""

WIRE = contextvars.Context()
"""What is on its way belongs to no host: it arrives whatever became of its sender."""


class Weather(Struct):
    """How the network treats bytes; durations are milliseconds.

    Attributes:
        delay_min_ms, delay_max_ms: of each segment.
        loss: share of segments that are lost, each time they are sent; the next try comes
            ``retransmit_ms`` later.
    """

    delay_min_ms: float = 0.1
    delay_max_ms: float = 1.0
    loss: float = 0.0
    retransmit_ms: float = 200.0


class SimTransport(asyncio.Transport):
    """One end of a simulated connection; only what rmqha's connections use."""

    def __init__(self, net: SimNet, host: str, peer_host: str, name: str) -> None:
        super().__init__({"peername": (peer_host, 1), "sockname": (host, 1), "name": name})
        self.net = net
        self.host = host
        self.peer_host = peer_host
        self.protocol: asyncio.Protocol | None = None
        self.peer: SimTransport | None = None
        self.ended = False
        self._closing = False
        self._reading = True
        self._unread: list[bytes | None] = []
        # Sent, and not read at the other end.
        self._outstanding = 0
        self._paused = False
        # What was sent and has not arrived, in order; each timer under way brings the next one.
        self._stream: deque[bytes | None] = deque()
        self._stream_bytes = 0
        self._timers = 0
        self._arrives_at = 0.0

    # -- asyncio.Transport -----------------------------------------------------------------

    def is_closing(self) -> bool:
        return self._closing

    def get_write_buffer_size(self) -> int:
        if (self.host, self.peer_host) not in self.net.cuts:
            return max(0, self._outstanding - self.net.window_bytes)
        return self._stream_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        unread, self._unread = self._unread, []
        for data in unread:
            self._deliver(data)

    def is_reading(self) -> bool:
        return self._reading

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = cast(asyncio.Protocol, protocol)

    def write(self, data: Any) -> None:
        if not self._closing:
            self._push(bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._push(None)
            self.net.loop.call_soon(self.end, None)

    def abort(self) -> None:
        self._closing = True
        self.reset_peer()
        self.net.loop.call_soon(self.end, None)

    # -- simulation ------------------------------------------------------------------------

    def reset_peer(self) -> None:
        """Let the other end see a reset, unless the network is cut."""
        peer = self.peer
        if peer is None or peer.ended or (self.host, self.peer_host) in self.net.cuts:
            return
        self.net.loop.call_later(
            self.net.delay_s(), peer.end, ConnectionResetError("reset by peer"), context=WIRE
        )

    def end(self, error: Exception | None) -> None:
        """This end is over; its protocol hears it once."""
        if self.ended:
            return
        if self.host in self.net.held:
            self.net.held[self.host].append((self.end, error))
            return
        self.ended = self._closing = True
        self.net.transports.pop(self, None)
        if self.protocol is not None and self.host in self.net.alive:
            self.net.run_on(self.host, self.protocol.connection_lost, error)

    def flush_held(self) -> None:
        """The cut is gone: what was held back leaves now."""
        for _ in range(len(self._stream) - self._timers):
            self._travel()

    def _push(self, data: bytes | None) -> None:
        parts = self.net.segments.split(data)
        self._stream.extend(parts)
        self._stream_bytes += len(data or b"")
        self._outstanding += len(data or b"")
        if (self.host, self.peer_host) not in self.net.cuts:
            self._travel(len(parts) - 1)
        if data is not None and self._outstanding > self.net.window_bytes and not self._paused:
            self._paused = True
            self.net.segments.counts[PAUSED] += 1
            if self.protocol is not None:
                self.protocol.pause_writing()

    def _was_read(self, size: int) -> None:
        """The other end has taken so many bytes out of its socket."""
        self._outstanding -= size
        if self._paused and self._outstanding <= self.net.window_bytes // 4:
            self._paused = False
            self._resume(None)

    def _resume(self, _: Any) -> None:
        """Tell this end that it may write again, once its process goes on."""
        if self.ended or self._paused or self.protocol is None:
            return
        if self.host in self.net.held:
            self.net.held[self.host].append((self._resume, None))
        else:
            self.net.run_on(self.host, self.protocol.resume_writing)

    def _travel(self, ahead: int = 0) -> None:
        """The next part sets off, behind so many others: the last one comes as late as the whole."""
        delay_s = self.net.delay_s(self.host, self.peer_host)
        before = max(self._arrives_at, self.net.loop.time())
        self._arrives_at = max(self._arrives_at, self.net.loop.time() + delay_s)
        for moment in (
            *self.net.segments.moments(before, self._arrives_at, ahead),
            self._arrives_at,
        ):
            self._timers += 1
            # Timers of equal times fire in any order, so they carry no data of their own.
            self.net.loop.call_at(moment, self._arrive, context=WIRE)

    def _arrive(self) -> None:
        self._timers -= 1
        peer = self.peer
        if peer is None or (self.host, self.peer_host) in self.net.cuts:
            return
        data = self._stream.popleft()
        if self._timers and self._arrives_at <= self.net.loop.time():
            following = self._stream[0]
            if data and following and self.net.segments.is_joined():
                # Both are due now: the next timer brings them as one.
                self._stream[0] = data + following
                return
        self._stream_bytes -= len(data or b"")
        if peer.ended or peer.host not in self.net.alive:
            if data is not None and not self.ended and peer.host not in self.net.dark:
                self.net.loop.call_soon(self.end, ConnectionResetError("reset by peer"))
        else:
            peer._deliver(data)  # noqa: SLF001 - the other end of the same class

    def _deliver(self, data: bytes | None) -> None:
        if self.ended or self.protocol is None:
            return
        if self.host in self.net.held:
            self.net.held[self.host].append((self._deliver, data))
        elif not self._reading:
            self._unread.append(data)
        elif data is None:
            self._closing = True
            self.end(None)
        else:
            self.net.run_on(self.host, self.protocol.data_received, data)
            if self.peer is not None:
                self.peer._was_read(len(data))  # noqa: SLF001 - the other end of the same class


class Segments:
    """Where the network parts what was written at once, and joins what was not.

    A write that is parted is whole no later than otherwise, so that this changes nothing but what
    a receiver has of it before, and what it keeps where the rest never comes.

    Attributes:
        parted, joined: shares of writes that come in parts, and of those due at once that come as one.
        counts: of both.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = random.Random()
        self._rng.setstate(rng.getstate())
        self.parted = self.joined = 0.0
        self.counts: Counter[str] = Counter()

    def split(self, data: bytes | None) -> list[bytes | None]:
        """The parts of one write."""
        rng = self._rng
        if data is None or len(data) < 2 or rng.random() >= self.parted:
            return [data]
        self.counts[PARTED] += 1
        places = {rng.randrange(1, len(data)) for _ in range(rng.choice((1, 1, 2, 4)))}
        edges = [0, *sorted(places), len(data)]
        return [data[low:high] for low, high in itertools.pairwise(edges)]

    def moments(self, low: float, high: float, count: int) -> list[float]:
        """When the parts before the last one come."""
        return sorted(self._rng.uniform(low, high) for _ in range(count))

    def is_joined(self) -> bool:
        """Whether two writes that are due at once come as one."""
        joined = self._rng.random() < self.joined
        self.counts[JOINED] += joined
        return joined


class SimListener:
    """A listening port of a simulated host."""

    def __init__(self, net: SimNet, key: tuple[str, int]) -> None:
        self._net = net
        self._key = key

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return self._key[1]

    def close(self) -> None:
        """Stop accepting connections."""
        self._net.listeners.pop(self._key, None)

    async def wait_closed(self) -> None:
        """It is closed at once."""


class SimNet:
    """All hosts and what lies between them."""

    def __init__(self, loop: SimLoop, rng: random.Random) -> None:
        self.loop = loop
        self.rng = rng
        self.weather = Weather()
        self.segments = Segments(rng)
        # what one end may have on its way before it is told to pause
        self.window_bytes = 1 << 60
        self.alive: dict[str, None] = {}
        self.dark: set[str] = set()
        self.cuts: set[tuple[str, str]] = set()
        # milliseconds that everything from one host to another takes longer
        self.lags: dict[tuple[str, str], float] = {}
        # what came to hosts that stand still, in the order in which it came
        self.held: dict[str, list[tuple[Callable[[Any], None], Any]]] = {}
        self.contexts: dict[str, Any] = {}
        self.listeners: dict[tuple[str, int], Factory] = {}
        self.transports: dict[SimTransport, None] = {}
        self._names = 0
        self._next_port = 40_000

    def delay_s(self, source: str = "", target: str = "") -> float:
        """How long the next segment takes, in seconds."""
        weather = self.weather
        delay = self.rng.uniform(weather.delay_min_ms, weather.delay_max_ms)
        delay += self.lags.get((source, target), 0.0)
        if weather.loss:
            for _ in range(RETRANSMITS_MAX):
                if self.rng.random() >= weather.loss:
                    break
                delay += weather.retransmit_ms
        return delay / 1000

    def run_on(self, host: str, call: Callable[..., Any], *args: Any) -> Any:
        """Run code of a host, so that the tasks it starts belong to that host."""
        return self.contexts[host].copy().run(call, *args)

    def boot(self, host: str, context: Any) -> SimNetwork:
        """A host comes up; what runs in its context belongs to this life of it."""
        context.run(HOST.set, self.loop.begin_life(host))
        self.alive[host] = None
        self.dark.discard(host)
        self.contexts[host] = context
        return SimNetwork(self, host)

    def kill(self, host: str, *, power: bool) -> None:
        """A host's process ends; without power its peers are not even told."""
        self.alive.pop(host, None)
        self.held.pop(host, None)
        if power:
            self.dark.add(host)
        for key in [key for key in self.listeners if key[0] == host]:
            del self.listeners[key]
        for transport in [t for t in self.transports if t.host == host]:
            if not power:
                transport.reset_peer()
            transport.end(None)

    def cut(self, source: str, target: str) -> None:
        """Nothing gets from source to target until :meth:`heal`."""
        # What watches a host's broker is on the same machine.
        for near in (source, f"{source}{WATCH}"):
            self.cuts |= {(near, target), (near, f"{target}{WATCH}")}

    def heal(self) -> None:
        """All cuts are mended, and no way is longer than another; what TCP still holds arrives."""
        self.cuts.clear()
        self.lags.clear()
        for transport in list(self.transports):
            transport.flush_held()

    def pause(self, host: str) -> None:
        """A host's process stands still: what arrives waits in its sockets."""
        self.held.setdefault(host, [])

    def resume(self, host: str) -> None:
        """It goes on; what waited comes after its timers, for libuv runs those first."""
        self.loop.call_later(1e-6, self._hand_over, host, context=WIRE)

    def _hand_over(self, host: str) -> None:
        for take, what in self.held.pop(host, []):
            take(what)

    def is_linked(self, one: str, other: str) -> bool:
        """Whether bytes pass in both directions, as fast as the weather allows."""
        ways = {(one, other), (other, one)}
        return not ways & self.cuts and not ways & self.lags.keys()

    def reset_between(self, one: str, other: str) -> None:
        """A middlebox resets every connection between two hosts; both are alive."""
        for transport in list(self.transports):
            if {transport.host, transport.peer_host} == {one, other}:
                error = ConnectionResetError("reset")
                self.loop.call_later(self.delay_s(), transport.end, error, context=WIRE)

    def open(self, source: str, target: str, port: int, factory: Factory) -> SimTransport:
        """Make both ends of a connection; the caller has checked that it is possible."""
        self._names += 1
        near = SimTransport(self, source, target, f"{self._names}a")
        far = SimTransport(self, target, source, f"{self._names}b")
        near.peer, far.peer = far, near
        self.transports[near] = self.transports[far] = None
        near.protocol = factory()
        far.protocol = self.run_on(target, self.listeners[(target, port)])
        self.run_on(target, far.protocol.connection_made, far)
        self.run_on(source, near.protocol.connection_made, near)
        return near

    def free_port(self) -> int:
        """A port that nobody has had."""
        self._next_port += 1
        return self._next_port


class SimNetwork:
    """Network port of one simulated host."""

    def __init__(self, net: SimNet, host: str) -> None:
        self._net = net
        self._host = host

    async def listen(self, host: str, port: int, factory: Factory) -> SimListener:
        """Accept connections to this host's ``port``; the host text is not looked at."""
        key = (self._host, port or self._net.free_port())
        if key in self._net.listeners:
            raise OSError(98, f"address in use: {key}")
        self._net.listeners[key] = factory
        return SimListener(self._net, key)

    async def connect(
        self, host: str, port: int, factory: Factory, *, timeout_ms: int
    ) -> asyncio.Transport:
        """Connect to another simulated host."""
        net = self._net
        await asyncio.sleep(net.delay_s(self._host, host) + net.delay_s(host, self._host))
        there, back = (self._host, host), (host, self._host)
        if there in net.cuts or back in net.cuts or host in net.dark or host in net.held:
            await asyncio.sleep(timeout_ms / 1000)
            raise ConnectFailed(f"connecting to {host}:{port} timed out")
        if (host, port) not in net.listeners or HOST.get() not in net.alive:
            raise ConnectFailed(f"{host}:{port} refused")
        return net.open(self._host, host, port, factory)
