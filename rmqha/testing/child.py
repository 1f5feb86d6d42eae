"""In a node's own process: its program's ``main``, on links that can be cut and a disk that can be slow.

What the program prints goes to its channel, and so come the faults: a JSON line in, a line with
its number out once it holds.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import signal
import socket
import sys
from typing import Any

from rmqha.runtime.aio.machine import MACHINE
from rmqha.runtime.aio.net import TcpNetwork
from rmqha.runtime.aio.tls import Tls
from rmqha.runtime.ports import Disk, Network
from rmqha.testing.disks import NodeDisk, SlowDisk
from rmqha.testing.links import LinkedNetwork, Links

APPLIED = "rmqha-faults-applied"
CHANNEL = 1
"""The descriptor: the program's stdout."""
CHUNK_BYTES = 65_536


class Faults:
    """What this process obeys.

    Args:
        channel: where faults come from.
    """

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._links = Links()
        self._slow = SlowDisk()
        self._rest = b""
        self._is_heard = False

    def network(self, tls: Tls | None) -> Network:
        """A network that can be cut."""
        self._listen()
        return LinkedNetwork(TcpNetwork(tls), self._links)

    def disk(self) -> Disk:
        """A disk that can be slow."""
        self._listen()
        return NodeDisk(self._slow)

    def _listen(self) -> None:
        if not self._is_heard:
            self._is_heard = True
            asyncio.get_running_loop().add_reader(self._channel, self._readable)
            self._readable()  # what it was born with holds before it has a network, or a disk

    def _readable(self) -> None:
        try:
            data = self._channel.recv(CHUNK_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        if not data:
            # Whoever started this process is gone; the launcher ends it.
            asyncio.get_running_loop().remove_reader(self._channel)
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._apply(json.loads(line))

    def _apply(self, faults: dict[str, Any]) -> None:
        self._links.cut(faults["cut"])
        self._slow.delay_ms = faults["slow_ms"]
        sys.stdout.write(f"{APPLIED} {faults['number']}\n")
        sys.stdout.flush()


def run_node(program: str, arguments: list[str]) -> int:
    """Run a program's ``main`` to its end; returns the exit code."""
    faults = Faults(socket.socket(fileno=CHANNEL))
    MACHINE.network, MACHINE.disk = faults.network, faults.disk
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.argv = [program, *arguments]
    try:
        importlib.import_module(program).main(arguments)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0
