"""The process that stands in every link, where the kernel's own rules are not to be had.

``python -m rmqha.chaos.aio.relay RUN`` listens where nodes are dialled, and passes bytes on to where
they really listen. It takes orders from stdin, a line of JSON each, and answers each with ``ok`` or
with what is wrong. When its stdin ends, whoever gave the orders has ended without a word: then it ends
the nodes of the run, too.

A node is told by the process that dialled (``owner.py``). A connection to a node that cannot be heard
is taken, as the kernel takes it for whoever listens, and nothing comes over it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sys
from functools import partial

import msgspec
import uvloop
from msgspec import Struct

from rmqha.chaos.aio.owner import Owners
from rmqha.chaos.scenarios import Fault
from rmqha.chaos.wire import Wire, wire

CHUNK_BYTES = 64 << 10
CHUNKS_MAX = 64
"""On their way in one direction of a connection; whoever sends more waits."""


class Door(Struct, frozen=True, tag=True):
    """A node is dialled at ``public`` and listens at ``real``, at the same ports."""

    name: str
    public: str
    real: str
    ports: tuple[int, ...]


class Rules(Struct, frozen=True, tag=True):
    """How links are from now on."""

    fault: Fault | None
    slow: dict[str, tuple[int, int]]


Order = Door | Rules
OK = "ok"


class Relay:
    """All links of one run.

    Args:
        run: whose nodes. What is lost, and how late bytes are, is drawn from it, too.
    """

    def __init__(self, run: int) -> None:
        self._rng = random.Random(run)
        self._owners = Owners(run)
        self._rules = Rules(None, {})
        self._changed = asyncio.Event()
        self._servers: list[asyncio.Server] = []

    async def take(self, order: Order) -> None:
        """Carry an order out.

        Raises:
            OSError: an address cannot be listened at.
        """
        if isinstance(order, Door):
            for port in order.ports:
                accept = partial(self._accepted, order, port)
                self._servers.append(await asyncio.start_server(accept, order.public, port))
        else:
            self._rules = order
            self._changed.set()
            self._changed = asyncio.Event()

    def end_nodes(self) -> None:
        """Kill whatever runs with the mark of this run."""
        for pid, _ in self._owners.nodes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _wire(self, source: str, target: str) -> Wire:
        return wire(self._rules.fault, self._rules.slow, source, target)

    async def _until_whole(self, source: str, target: str) -> None:
        while self._wire(source, target).is_cut:
            await self._changed.wait()

    async def _accepted(
        self, door: Door, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        here, there = writer.get_extra_info("sockname"), writer.get_extra_info("peername")
        source = await asyncio.to_thread(self._owners.of, there, here)
        await self._until_whole(source, door.name)
        await self._until_whole(door.name, source)
        try:
            far_reader, far_writer = await asyncio.open_connection(door.real, port)
        except OSError:
            writer.transport.abort()
            return
        await asyncio.gather(
            self._pass(reader, far_writer, source, door.name),
            self._pass(far_reader, writer, door.name, source),
        )

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, source: str, target: str
    ) -> None:
        """One direction, to its end: that is passed on in its turn, like bytes."""
        loop = asyncio.get_running_loop()
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(CHUNKS_MAX)
        reads = asyncio.create_task(self._read(reader, waiting, source, target))
        try:
            while True:
                due_s, chunk = await waiting.get()
                await asyncio.sleep(max(0.0, due_s - loop.time()))
                await self._until_whole(source, target)
                if not chunk:
                    break
                writer.write(chunk)
                await writer.drain()
        except OSError:
            pass  # the other end is gone
        finally:
            reads.cancel()
            writer.close()

    async def _read(
        self, reader: asyncio.StreamReader, waiting: asyncio.Queue[tuple[float, bytes]],
        source: str, target: str,
    ) -> None:  # fmt: skip
        loop, chunk, due_s = asyncio.get_running_loop(), b" ", 0.0
        while chunk:
            try:
                chunk = await reader.read(CHUNK_BYTES)
            except OSError:
                chunk = b""  # reset is an end, too
            late_ms = self._wire(source, target).late_ms(self._rng)
            due_s = max(due_s, loop.time() + late_ms / 1000)
            await waiting.put((due_s, chunk))


async def serve(run: int) -> None:
    """Take orders until there are no more."""
    relay, decoder = Relay(run), msgspec.json.Decoder(Order)
    orders = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    while line := await orders.readline():
        said = OK
        try:
            await relay.take(decoder.decode(line))
        except (OSError, msgspec.MsgspecError) as error:
            said = str(error)
        sys.stdout.write(said + "\n")
        sys.stdout.flush()
    relay.end_nodes()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
