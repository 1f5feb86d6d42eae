"""Whose a connection is, by what the kernel tells of processes: for proxies that see loopback alone.

Every node is started with a mark in its environment, the number of the run and its name, which the
processes that it starts inherit.

Source: proc(5), ``/proc/net/tcp``, ``/proc/PID/fd`` and ``/proc/PID/environ``.
"""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path

MARK = "RMQHA_CHAOS_NODE"
PROC = Path("/proc")
LOCAL, REMOTE, INODE = 1, 2, 9
"""Columns of ``/proc/net/tcp``."""

Address = tuple[str, int]


def mark(run: int, name: str) -> str:
    """What the environment of a node says, as ``env`` takes it."""
    return f"{MARK}={run}/{name}"


class Owners:
    """Which node of a run holds a socket.

    Processes are remembered: their environment is that of their beginning.
    """

    def __init__(self, run: int, proc: Path = PROC) -> None:
        self._proc = proc
        self._mark = mark(run, "").encode()
        self._names: dict[int, str] = {}

    def of(self, local: Address, remote: Address) -> str:
        """The node whose end of a connection has this local address; "" for nobody's."""
        inode = self._inode(local, remote)
        if not inode:
            return ""
        wanted = f"socket:[{inode}]"
        for pid, name in self.nodes():
            if wanted in self._opened(pid):
                return name
        return ""

    def _inode(self, local: Address, remote: Address) -> str:
        pair = [_hex(local), _hex(remote)]
        for line in (self._proc / "net" / "tcp").read_text().splitlines()[1:]:
            columns = line.split()
            if columns[LOCAL : REMOTE + 1] == pair:
                return columns[INODE]
        return ""

    def nodes(self) -> list[tuple[int, str]]:
        """All processes of the run, with the name of the node."""
        there = {int(one.name) for one in self._proc.iterdir() if one.name.isdigit()}
        self._names = {pid: name for pid, name in self._names.items() if pid in there}
        for pid in there - self._names.keys():
            self._names[pid] = self._name(pid)
        return [(pid, name) for pid, name in self._names.items() if name]

    def _name(self, pid: int) -> str:
        try:
            environment = (self._proc / str(pid) / "environ").read_bytes()
        except OSError:  # another user's, or gone
            return ""
        for entry in environment.split(b"\0"):
            if entry.startswith(self._mark):
                return entry.removeprefix(self._mark).decode("utf-8", "replace")
        return ""

    def _opened(self, pid: int) -> set[str]:
        found = set()
        folder = self._proc / str(pid) / "fd"
        try:
            for name in os.listdir(folder):
                found.add(os.readlink(folder / name))
        except OSError:  # it ends, or has just closed one
            pass
        return found


def _hex(address: Address) -> str:
    """As the kernel writes it: the four bytes as a number of the machine's order, and the port."""
    (number,) = struct.unpack("=I", socket.inet_aton(address[0]))
    return f"{number:08X}:{address[1]:04X}"
