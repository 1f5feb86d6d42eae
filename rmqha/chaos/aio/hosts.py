"""Hosts in network namespaces of their own, behind one bridge, and the links between them.

The command runs in a namespace that it made (``enter``): there is the bridge, and clients live at its
address. Each host is a namespace that a sleeping process holds; a node is started into it by
``nsenter``. All of it is gone when these processes are: nothing is left in the machine's own
network, and no other user's processes can be reached by mistake.

Needs Linux, iproute2, util-linux and nftables; without root, user namespaces that the machine allows.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rmqha.base.errors import RmqhaError
from rmqha.chaos.rules import rules
from rmqha.chaos.scenarios import Fault

NETWORK = "10.77.0"
HUB = f"{NETWORK}.1"
BRIDGE = "rmqha0"
BRIDGE_MAC = "02:77:00:00:00:01"
"""Its own: by default a bridge takes that of a link, and another one when the link goes."""
INSIDE = "RMQHA_CHAOS_INSIDE"
NAMESPACES = ("--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
"""With processes of their own, too: when the command ends, even by ``kill -9``, so do all nodes."""
WITH_PARENT = ("setpriv", "--pdeathsig", "KILL")
"""And it ends when whoever started it does."""
PROGRAMS = {
    "setpriv": "util-linux",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "ip": "iproute2",
    "nft": "nftables",
}
LINKS_BY = "network namespaces and nftables"
SLOW_LINK = "rmqha.chaos.aio.slow_link"
TIMEOUT_S = 20.0


class HostsUnavailable(RmqhaError):
    """This machine cannot give hosts a network of their own; the message says what is missing."""


def enter(arguments: Sequence[str], module: str) -> None:
    """Run this command anew in namespaces of its own; returns where it does already.

    Raises:
        HostsUnavailable: a program is missing, or namespaces are not allowed.
    """
    if os.environ.get(INSIDE) and os.getpid() == 1:
        return
    missing = {f"{name} ({where})" for name, where in PROGRAMS.items() if not shutil.which(name)}
    if missing:
        raise HostsUnavailable(f"missing programs: {', '.join(sorted(missing))}")
    user = () if os.geteuid() == 0 else ("--map-root-user", "--user")
    unshare = ["unshare", *NAMESPACES, *user]
    tried = subprocess.run([*unshare, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        raise HostsUnavailable(f"no network namespace: {tried.stderr.strip()}")
    environment = {**os.environ, INSIDE: "yes"}
    program = [*unshare, sys.executable, "-m", module, *arguments]
    # ``unshare`` passes over SIGTERM while it waits; killed, it takes its namespaces along.
    with subprocess.Popen([*WITH_PARENT, *program], env=environment) as inside:
        signal.signal(signal.SIGTERM, lambda *_: inside.kill())
        signal.signal(signal.SIGINT, lambda *_: None)  # a terminal tells the other one, too
        code = inside.wait()
    sys.exit(code if code >= 0 else 128 - code)


class Hosts:
    """The hub and its hosts (see ``Links``); call ``close`` at the end.

    Args:
        run: carries a command out, with a text for its stdin; for tests.

    Raises:
        HostsUnavailable: the bridge cannot be made.
    """

    links_by = LINKS_BY
    takes_java = True

    def __init__(self, run: Callable[[Sequence[str], str], None] | None = None) -> None:
        self._run = run or _run
        self._holders: dict[str, subprocess.Popen[bytes]] = {}
        self._links: list[str] = []
        self._slow: dict[str, subprocess.Popen[bytes]] = {}
        self.addresses: dict[str, str] = {}
        for command in (
            ["ip", "link", "set", "lo", "up"],
            ["ip", "link", "add", BRIDGE, "address", BRIDGE_MAC, "type", "bridge"],
            ["ip", "addr", "add", f"{HUB}/24", "dev", BRIDGE],
            ["ip", "link", "set", BRIDGE, "up"],
        ):
            self._run(command, "")

    def add(self, name: str, ports: Sequence[int] = ()) -> str:
        """Make a host; returns its address. All ports are its own.

        Raises:
            HostsUnavailable: a command failed; the message is its own.
        """
        number = len(self.addresses) + 2
        address = f"{NETWORK}.{number}"
        holder = subprocess.Popen(
            ["unshare", "--net", "sleep", "infinity"], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self._holders[name] = holder
        self._await_namespace(holder)
        here, there = f"h{number}", f"v{number}"
        inside = self.prefix(name)
        self._links.append(here)
        for command in (
            ["ip", "link", "add", here, "type", "veth", "peer", "name", there],
            ["ip", "link", "set", there, "netns", str(holder.pid)],
            ["ip", "link", "set", here, "master", BRIDGE],
            ["ip", "link", "set", here, "up"],
            [*inside, "ip", "link", "set", "lo", "up"],
            [*inside, "ip", "addr", "add", f"{address}/24", "dev", there],
            [*inside, "ip", "link", "set", there, "up"],
        ):
            self._run(command, "")
        self.addresses[name] = address
        return address

    @staticmethod
    def _await_namespace(holder: subprocess.Popen[bytes]) -> None:
        """``unshare`` has left this namespace when its link says so."""
        ours = os.readlink("/proc/self/ns/net")
        for _ in range(100_000):
            if holder.poll() is not None:
                raise HostsUnavailable("a host's namespace ended at once")
            if os.readlink(f"/proc/{holder.pid}/ns/net") != ours:
                return
            os.sched_yield()
        raise HostsUnavailable("a host has no namespace of its own")

    def bind_address(self, name: str) -> str:
        """Where a node listens: its one address."""
        return self.addresses[name]

    def prefix(self, name: str) -> list[str]:
        """What runs the command behind it at a host."""
        return ["nsenter", f"--net=/proc/{self._holders[name].pid}/ns/net", "--"]

    def apply(self, fault: Fault | None) -> None:
        """Have the links be as a fault wants them; None heals all."""
        for name in self.addresses:
            self._run([*self.prefix(name), "nft", "-f", "-"], rules(name, self.addresses, fault))

    def delay(self, name: str, delay_ms: int, jitter_ms: int, seed: int) -> None:
        """Have whatever a host hears and says take its time (see ``slow_link``).

        Raises:
            HostsUnavailable: nobody can stand in its link here.
        """
        number = self.addresses[name].rpartition(".")[2]
        link, inner, outer = f"h{number}", f"e{number}", f"d{number}"
        # The hub must not answer by itself what it hears on a link that is no part of the bridge.
        Path(f"/proc/sys/net/ipv4/conf/{link}/arp_ignore").write_text("8")
        for command in (
            ["ip", "link", "add", inner, "type", "veth", "peer", "name", outer],
            ["ip", "link", "set", inner, "up"],
            ["ip", "link", "set", link, "nomaster"],
            ["ip", "link", "set", outer, "master", BRIDGE],
            ["ip", "link", "set", outer, "up"],
        ):
            self._run(command, "")
        slow = subprocess.Popen(
            [sys.executable, "-m", SLOW_LINK, link, inner, str(delay_ms), str(jitter_ms), str(seed)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        )  # fmt: skip
        self._slow[name] = slow
        assert slow.stdout is not None
        if slow.stdout.readline() != b"ready\n":
            raise HostsUnavailable(f"the link of {name} cannot be slowed down")

    def restore(self, name: str) -> None:
        """Have a host's link be as quick as before."""
        slow = self._slow.pop(name)
        slow.kill()
        slow.communicate(timeout=TIMEOUT_S)
        number = self.addresses[name].rpartition(".")[2]
        self._run(["ip", "link", "del", f"e{number}"], "")
        self._run(["ip", "link", "set", f"h{number}", "master", BRIDGE], "")

    def close(self) -> None:
        """End the holders, and with them the hosts; then the bridge."""
        for name in list(self._slow):
            self.restore(name)
        for link in self._links:  # a namespace goes some time after its last process
            self._run(["ip", "link", "del", link], "")
        self._links.clear()
        for holder in self._holders.values():
            holder.kill()
            holder.wait(TIMEOUT_S)
        self._holders.clear()
        self.addresses.clear()
        self._run(["ip", "link", "del", BRIDGE], "")


def _run(command: Sequence[str], text: str) -> None:
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    if done.returncode:
        raise HostsUnavailable(f"{' '.join(command)}: {done.stderr.strip()}")
