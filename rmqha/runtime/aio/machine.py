"""The machine's disk, network and resolver as processes take them, and the place to put others there.

A test's launcher does so before it runs a process's ``main``: that process then is the real one,
with links that can be cut and a disk that can be slow.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from rmqha.runtime.aio.disk import SystemDisk
from rmqha.runtime.aio.names import SystemNames
from rmqha.runtime.aio.net import TcpNetwork
from rmqha.runtime.aio.tls import Tls
from rmqha.runtime.ports import Disk, Names, Network


class Machine(Struct):
    """How to make ports; called in the running event loop.

    Attributes:
        network, disk, names: one call, one port; a network is given the certificates of the
            process, or None where its streams are always plain.
    """

    network: Callable[[Tls | None], Network] = TcpNetwork
    disk: Callable[[], Disk] = SystemDisk
    names: Callable[[], Names] = SystemNames


MACHINE = Machine()
