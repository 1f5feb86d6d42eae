"""Hosts that are addresses of the loopback, with a proxy in every link: no namespace, no root.

A node is dialled at one address and listens at another one; ``relay.py`` stands between. What a packet
filter would drop a proxy holds back (``wire.py``). The report says which of the two it was.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

import msgspec

from rmqha.chaos.aio.hosts import HostsUnavailable
from rmqha.chaos.aio.owner import mark
from rmqha.chaos.aio.relay import OK, Door, Order, Rules
from rmqha.chaos.scenarios import Fault

LINKS_BY = "user-space proxies"
RELAY = "rmqha.chaos.aio.relay"


class Proxies:
    """Hosts of one cell (see ``Links``).

    Args:
        number: of a run, and of a network that nobody else uses now; by default this process's own.
    """

    links_by = LINKS_BY
    takes_java = False

    def __init__(self, number: int | None = None) -> None:
        self._number = number = os.getpid() if number is None else number
        self._network = f"127.{64 + number // 256 % 128}.{number % 256}"
        self.addresses: dict[str, str] = {}
        self._fault: Fault | None = None
        self._slow: dict[str, tuple[int, int]] = {}
        self._relay = subprocess.Popen(
            [sys.executable, "-m", RELAY, str(number)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    def add(self, name: str, ports: Sequence[int]) -> str:
        """Make a host; returns where it is dialled.

        Raises:
            HostsUnavailable: an address cannot be listened at.
        """
        number = 2 * (len(self.addresses) + 1)
        public, real = f"{self._network}.{number}", f"{self._network}.{number + 1}"
        self._order(Door(name, public, real, tuple(ports)))
        self.addresses[name] = public
        return public

    def bind_address(self, name: str) -> str:
        """Behind the proxy: the address after the one that is dialled."""
        network, _, number = self.addresses[name].rpartition(".")
        return f"{network}.{int(number) + 1}"

    def prefix(self, name: str) -> list[str]:
        """Its name goes with it, so that the relay knows whose a connection is."""
        return ["env", mark(self._number, name)]

    def apply(self, fault: Fault | None) -> None:
        """Have the links be as a fault wants them; None heals all."""
        self._fault = fault
        self._tell()

    def delay(self, name: str, delay_ms: int, jitter_ms: int, seed: int) -> None:
        """Have whatever a node hears and says take its time; the relay draws the jitter."""
        self._slow[name] = (delay_ms, jitter_ms)
        self._tell()

    def restore(self, name: str) -> None:
        """Have a node's link be as quick as before."""
        del self._slow[name]
        self._tell()

    def close(self) -> None:
        """End the relay, and with it every connection."""
        self._relay.kill()
        self._relay.communicate()
        self.addresses.clear()

    def _tell(self) -> None:
        self._order(Rules(self._fault, self._slow))

    def _order(self, order: Order) -> None:
        relay = self._relay
        assert relay.stdin is not None
        assert relay.stdout is not None
        try:
            relay.stdin.write(msgspec.json.encode(order) + b"\n")
            relay.stdin.flush()
            said = relay.stdout.readline().decode().strip()
        except OSError as error:
            said = str(error)
        if said != OK:
            raise HostsUnavailable(f"proxies: {said or 'the relay has ended'}")
