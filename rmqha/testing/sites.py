"""Where the nodes of a cluster run: in this process, or each in its own."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from rmqha.broker.common.settings import FAST_PORT_DISTANCE
from rmqha.testing.in_process import MODULES, InProcessNode
from rmqha.testing.launcher_handle import PROGRAMS, launcher
from rmqha.testing.nodes import Node
from rmqha.testing.processes import ProcessNode
from rmqha.testing.real.processes import allocate_ports, free_ports
from rmqha.testing.settings import Place, Plan
from rmqha.testing.sockets import Reserved

Settings = tuple[Mapping[str, object], Mapping[str, object], Mapping[str, object]]
KINDS = ("controller", "namesrv", "broker")


class Site(Protocol):
    """Makes nodes, and gives back what they shared."""

    plan: Plan

    def node(self, place: Place) -> Node:
        """The node of a place; called once for each."""

    async def load(self, kind: str) -> None:
        """Have the code of a kind of node at hand; others may start meanwhile."""

    async def close(self) -> None:
        """Give back what is left when all nodes have ended."""


class InProcessSite:
    """Nodes in this process, on reserved ports."""

    def __init__(
        self,
        folder: Path,
        counts: tuple[int, int, int],
        settings: Settings,
        seed: int,
        tls: Mapping[str, str],
    ) -> None:
        self._seed = seed
        self._reserved: dict[str, Reserved] = {}
        places: dict[str, list[Place]] = {}
        for kind, count in zip(KINDS, counts, strict=True):
            places[kind] = [self._place(folder, kind, number) for number in range(count)]
        self.plan = Plan(
            tuple(places["controller"]), tuple(places["namesrv"]), tuple(places["broker"]),
            *settings, tls,
        )  # fmt: skip

    def _place(self, folder: Path, kind: str, number: int) -> Place:
        name = f"{kind}-{number}"
        reserved = self._reserved[name] = Reserved()
        if kind == "broker":
            port = reserved.take_pair()
            ports = (port, port - FAST_PORT_DISTANCE, reserved.take())
            return Place(name, kind, folder / name, port, ports)
        port = reserved.take()
        return Place(name, kind, folder / name, port, (port,))

    def node(self, place: Place) -> Node:
        """A node on its reserved ports."""
        return InProcessNode(place, self.plan, self._reserved[place.name], self._seed)

    async def load(self, kind: str) -> None:
        """Import it, in a thread: the nodes that run already go on."""
        for module in MODULES[kind]:
            await asyncio.to_thread(importlib.import_module, module)

    async def close(self) -> None:
        """Give the ports back."""
        for one in self._reserved.values():
            one.close()


class PlannedSite:
    """Nodes in processes of their own, where a plan has them."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def node(self, place: Place) -> Node:
        """A process that is not started yet."""
        return ProcessNode(place, self.plan)

    async def load(self, kind: str) -> None:
        """Have the launcher import it."""
        await asyncio.to_thread(lambda: launcher().request(do="load", program=PROGRAMS[kind]))

    async def close(self) -> None:
        """Nothing was borrowed."""


class ProcessSite(PlannedSite):
    """The same on ports that no other test run is given."""

    def __init__(
        self,
        folder: Path,
        counts: tuple[int, int, int],
        settings: Settings,
        seed: int,
        tls: Mapping[str, str],
    ) -> None:
        del seed  # a process draws from the operating system's entropy
        self._blocks: list[range] = []
        self._spare: list[int] = []
        controllers, name_servers, brokers = counts
        super().__init__(
            Plan(
                tuple(self._place(folder, "controller", n) for n in range(controllers)),
                tuple(self._place(folder, "namesrv", n) for n in range(name_servers)),
                tuple(self._place(folder, "broker", n) for n in range(brokers)),
                *settings,
                tls,
                steady=True,
            )
        )

    def _place(self, folder: Path, kind: str, number: int) -> Place:
        name = f"{kind}-{number}"
        wanted = 3 if kind == "broker" else 1
        if len(self._spare) < wanted:
            block = allocate_ports()
            self._blocks.append(block)
            self._spare = list(block)
        ports, self._spare = self._spare[:wanted], self._spare[wanted:]
        if kind == "broker":
            fast, ha, port = ports
            return Place(name, kind, folder / name, port, (port, fast, ha))
        return Place(name, kind, folder / name, ports[0], (ports[0],))

    async def close(self) -> None:
        """Give the ports back."""
        for block in self._blocks:
            free_ports(block)
