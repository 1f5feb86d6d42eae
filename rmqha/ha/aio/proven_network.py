"""A network whose ends prove that they share ``haSecret`` before replication hears of them.

Once a connection is proven it belongs to replication alone, and costs nothing more. Where proof is
optional, a master without a secret is found out by its silence, and dialled once more without proof: it
closes upon what it cannot read. One that answers has a secret, and has to prove it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import cast

from rmqha.base.errors import ConnectFailed, RemoteProtocolError
from rmqha.base.proofs import CHALLENGE_BYTES, Secrets
from rmqha.ha.proof import MasterProof, SlaveProof
from rmqha.runtime.logs import Logger
from rmqha.runtime.ports import Clock, Listener, Network, Rng, TimerHandle

PROOF_MS = 5_000
UNPROVEN = "unproven"
"""The reason of a peer that proved nothing, beside those of requests."""
UNPROVEN_MAX = 64
"""Connections that have proven nothing yet; beyond it the oldest goes for a new one."""

Ended = Callable[["_Proving"], None]


class ProvenNetwork:
    """Network port of replication.

    Args:
        inner: the network below.
        secrets: ``haSecret``, and what goes with it.
        broker_name: of the set.
        clock, rng: for deadlines and challenges.
        log: told who was refused.
        refused: counts those that proved nothing, as ``UNPROVEN``.

    Attributes:
        let_in: connections on which the other end proved nothing, and that were taken.
    """

    def __init__(
        self, inner: Network, secrets: Secrets, broker_name: str, clock: Clock, rng: Rng, log: Logger,
        refused: Counter[str] | None = None,
    ) -> None:  # fmt: skip
        self._inner = inner
        self._secrets = secrets
        self._name = broker_name
        self._clock = clock
        self._rng = rng
        self._log = log
        self._unproven: dict[_Proving, None] = {}
        self.refused = Counter[str]() if refused is None else refused
        self.let_in = 0

    async def listen(
        self, host: str, port: int, factory: Callable[[], asyncio.Protocol]
    ) -> Listener:
        """As the network below; only who proves itself reaches a protocol of ``factory``."""
        return await self._inner.listen(host, port, lambda: self._guard(factory))

    async def connect(
        self, host: str, port: int, factory: Callable[[], asyncio.Protocol], *, timeout_ms: int
    ) -> asyncio.Transport:
        """Open a connection, and prove both ends.

        Raises:
            ConnectFailed: nobody answers, or whoever does has another secret or none.
        """
        half = SlaveProof(self._secrets, self._name, self._challenge())
        try:
            return await self._connect(host, port, factory, half, timeout_ms)
        except _UnprovenMaster:
            if half.heard or not self._secrets.is_optional:
                raise
        transport = await self._inner.connect(host, port, factory, timeout_ms=timeout_ms)
        self._take_unproven(f"{host}:{port}")
        return transport

    async def _connect(
        self, host: str, port: int, factory: Callable[[], asyncio.Protocol], half: SlaveProof,
        timeout_ms: int,
    ) -> asyncio.Transport:  # fmt: skip
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        proving = _Proving(half, factory, lambda one: _tell(done, one))
        transport = await self._inner.connect(host, port, lambda: proving, timeout_ms=timeout_ms)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await done
        except (TimeoutError, RemoteProtocolError) as error:
            transport.abort()
            reason = str(error) or "it does not answer: has it haSecret?"
            raise _UnprovenMaster(f"{host}:{port} proves nothing: {reason}") from error
        except BaseException:
            transport.abort()  # nobody dials any more
            raise
        return transport

    def _challenge(self) -> bytes:
        return self._rng.randint(0, (1 << 8 * CHALLENGE_BYTES) - 1).to_bytes(CHALLENGE_BYTES, "big")

    def _guard(self, factory: Callable[[], asyncio.Protocol]) -> asyncio.Protocol:
        half = MasterProof(self._secrets, self._name, self._challenge())
        proving = _Proving(half, factory, self._ended)
        if len(self._unproven) >= UNPROVEN_MAX:
            next(iter(self._unproven)).fail("too many prove nothing")
        self._unproven[proving] = None
        proving.timer = self._clock.call_later(PROOF_MS, proving.fail, "it proved nothing in time")
        return proving

    def _ended(self, proving: _Proving) -> None:
        self._unproven.pop(proving, None)
        if proving.failure is None:
            if not proving.is_proven:
                self._take_unproven(proving.peer)
            return
        self.refused[UNPROVEN] += 1
        self._log.log("warning", "ha_peer_refused", address=proving.peer, reason=proving.failure)

    def _take_unproven(self, peer: str) -> None:
        self.let_in += 1
        self._log.log("warning", "ha_peer_unproven", address=peer)


class _UnprovenMaster(ConnectFailed):
    """Somebody was there, and proved nothing."""


def _tell(done: asyncio.Future[None], proving: _Proving) -> None:
    if done.done():
        return
    if proving.failure is None:
        done.set_result(None)
    else:
        done.set_exception(RemoteProtocolError(proving.failure))


class _Proving(asyncio.Protocol):
    """A connection until it is proven.

    Args:
        half: this end of the proof.
        factory: of the protocol that takes over.
        ended: told once, when it is proven or has failed.
    """

    def __init__(
        self,
        half: MasterProof | SlaveProof,
        factory: Callable[[], asyncio.Protocol],
        ended: Ended,
    ) -> None:
        self._half = half
        self._factory = factory
        self._ended: Ended | None = ended
        self._transport: asyncio.Transport | None = None
        self.timer: TimerHandle | None = None
        self.failure: str | None = None
        self.peer = "?"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin; the one who dials speaks first."""
        self._transport = cast(asyncio.Transport, transport)
        found = transport.get_extra_info("peername") or ("?", 0)
        self.peer = f"{found[0]}:{found[1]}"
        if self.failure is not None:
            self._transport.abort()
        elif isinstance(self._half, SlaveProof):
            self._transport.write(self._half.begin())

    @property
    def is_proven(self) -> bool:
        """Whether both ends have proven themselves."""
        return self._half.is_proven

    def data_received(self, data: bytes) -> None:
        """A piece of the other end's proof."""
        if self.failure is not None or self._transport is None:
            return
        try:
            answer = self._half.feed(data)
        except RemoteProtocolError as error:
            self.fail(str(error))
            return
        if answer:
            self._transport.write(answer)
        if self._half.is_done:
            self._hand_over(self._transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """It ended before it was proven."""
        self.fail("it closed before it was proven: has it the same haSecret?")

    def fail(self, reason: str) -> None:
        """End the connection, and say why."""
        if self._ended is None:
            return
        self.failure = reason
        self._end()
        if self._transport is not None:
            self._transport.abort()

    def _hand_over(self, transport: asyncio.Transport) -> None:
        protocol = self._factory()
        self._end()
        # A loop chooses when it begins to read whether it reads into a protocol's own buffer.
        transport.pause_reading()
        transport.set_protocol(protocol)
        transport.resume_reading()
        protocol.connection_made(transport)
        if self._half.rest:
            protocol.data_received(self._half.rest)

    def _end(self) -> None:
        ended, self._ended = self._ended, None
        if self.timer is not None:
            self.timer.cancel()
        if ended is not None:
            ended(self)
