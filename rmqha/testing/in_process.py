"""Nodes in this process: the same services as in the real processes, on ports that can break."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rmqha.base.errors import RmqhaError
from rmqha.runtime.aio.tls import Tls
from rmqha.testing.disks import NodeDisk, SlowDisk
from rmqha.testing.life import Life, NodeClock, SeededRng, outside
from rmqha.testing.links import Links
from rmqha.testing.logs import NodeLog
from rmqha.testing.nodes import Node, NodeFailed
from rmqha.testing.settings import Place, Plan
from rmqha.testing.sockets import LOOPBACK, NodeNetwork, Reserved

if TYPE_CHECKING:
    from rmqha.broker.aio.replica import BrokerReplica
    from rmqha.controller.aio.service import ControllerService
    from rmqha.namesrv.aio.service import NameServer

    Service = ControllerService | NameServer | BrokerReplica

MODULES = {
    "controller": ("rmqha.controller.aio.service", "rmqha.controller.settings"),
    "namesrv": ("rmqha.namesrv.aio.service", "rmqha.namesrv.settings"),
    "broker": ("rmqha.broker.aio.replica", "rmqha.broker.common.settings"),
}
"""What a kind of node needs: a tenth of a second or more each, so only what is started is loaded,
and brokers while the controllers elect their leader."""
BOOT_ID = "test"
"""Never changes: a killed node loses its process, not its machine."""


class InProcessNode(Node):
    """One node of this process.

    Args:
        place: where it lives.
        plan: its configuration.
        reserved: its ports.
        seed: of the cluster.
    """

    def __init__(self, place: Place, plan: Plan, reserved: Reserved, seed: int) -> None:
        super().__init__(place)
        self._plan = plan
        self._reserved = reserved
        self._seed = seed
        self._runs = 0
        self._links = Links()
        self._slow = SlowDisk()
        self._life: Life | None = None
        self._network: NodeNetwork | None = None
        self._disk: NodeDisk | None = None
        self._log: NodeLog | None = None
        self._ending: asyncio.Task[None] | None = None
        self.service: Service | None = None

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._life is not None and not self._life.is_dead

    async def start(self) -> None:
        """Start the node in this process.

        Raises:
            NodeFailed: its store or its configuration cannot be used.
        """
        await self._ended()
        if self.is_alive:
            return
        self._runs += 1
        self.failure = ""
        self.is_stopped = False
        life = self._life = Life()
        clock = NodeClock(life)
        self.place.folder.mkdir(parents=True, exist_ok=True)
        self._log = NodeLog(self.log, clock.wall_ms)
        tls = Tls(self._plan.properties(self.place), self._log) if self._plan.is_tls else None
        self._network = NodeNetwork(self._links, life, self._reserved, tls)
        self._disk = NodeDisk(self._slow, life)
        ports: dict[str, Any] = {
            "clock": clock, "disk": self._disk, "network": self._network, "log": self._log,
        }  # fmt: skip
        context = life.context()
        try:
            service = self.service = context.run(self._make, life, ports)
            loop = asyncio.get_running_loop()
            await loop.create_task(_start(service), name=f"start {self.name}", context=context)
        except (RmqhaError, OSError) as error:
            await self.kill()
            raise NodeFailed(f"{self.name} did not start: {error!r}") from error

    def _make(self, life: Life, ports: dict[str, Any]) -> Service:
        properties = self._plan.properties(self.place)
        folder = str(self.place.folder)
        rng = SeededRng(f"{self._seed}/{self.name}/{self._runs}")
        match self.place.kind:
            case "controller":
                from rmqha.controller.aio.service import ControllerService
                from rmqha.controller.settings import load_config as load_controller_config

                return ControllerService(
                    load_controller_config(properties, home="", user_home=folder),
                    rng=rng, on_fatal=lambda error: self._failed(life, error), **ports,
                )  # fmt: skip
            case "namesrv":
                from rmqha.namesrv.aio.service import NameServer
                from rmqha.namesrv.settings import load_config as load_namesrv_config

                saved = str(self.place.folder / "namesrv.properties")
                config = load_namesrv_config(properties, user_home=folder, store_path=saved)
                return NameServer(config, **ports)
            case _:
                from rmqha.broker.aio.replica import BrokerReplica
                from rmqha.broker.common.settings import load_config as load_broker_config

                return BrokerReplica(
                    load_broker_config(
                        properties, host_name=self.name, local_address=LOOPBACK, user_home=folder
                    ),
                    rng=rng, boot_id=BOOT_ID, process_id=self._runs,
                    on_fatal=lambda error: self._failed(life, error), **ports,
                )  # fmt: skip

    def _failed(self, life: Life, error: BaseException) -> None:
        """A real process would end here with an exit code."""
        if life is self._life and not life.is_dead and not self.failure:
            self.failure = repr(error)
            self._say("error", "node_failed", reason=repr(error))
            asyncio.get_running_loop().create_task(
                self._kill(life), name=f"failed {self.name}", context=outside()
            )

    def _say(self, level: str, event: str, **facts: object) -> None:
        if self._log is not None:
            self._log.log(level, event, **facts)

    async def kill(self) -> None:
        """Sockets are reset, tasks cancelled, files left as they are."""
        if self._life is not None:
            await self._kill(self._life)

    async def _kill(self, life: Life) -> None:
        if not life.is_dead:
            self._say("info", "node_killed")
            self._end(life)
        await self._ended()

    async def shut_down(self) -> None:
        """Stop in order."""
        life, service = self._life, self.service
        if life is None or life.is_dead or service is None:
            await self._ended()
            return
        await self.cont()
        context = life.context()
        work = asyncio.get_running_loop().create_task(service.stop(), context=context)
        try:
            await work
        except asyncio.CancelledError:
            if not life.is_dead:  # else the node failed meanwhile, and its work was ended with it
                raise
        if not life.is_dead:
            self._say("info", "node_ended")
            self._end(life)
        await self._ended()

    def _end(self, life: Life) -> None:
        """Dead from now on; a task of its own gives back what it had, and nothing of a later life."""
        self.is_stopped = False
        life.is_dead = True
        if self._network is not None:
            self._network.kill()
        closing = _give_back(life, self._disk, self._log)
        self._ending = asyncio.get_running_loop().create_task(
            closing, name=f"end {self.name}", context=outside()
        )

    async def _ended(self) -> None:
        """Wait until the life before has given back what it had."""
        ending = self._ending
        if ending is None:
            return
        try:
            await asyncio.shield(ending)
        finally:
            if self._ending is ending and ending.done():
                self._ending = self.service = None

    async def stop(self) -> None:
        """Nothing reaches it any more: no bytes, no timers, no disk."""
        if self._life is not None and self.is_alive:
            self._say("info", "node_stopped")
            self.is_stopped = True
            self._life.gate.set_open(False)

    async def cont(self) -> None:
        """What was held back reaches it now."""
        if self._life is not None and self.is_stopped:
            self.is_stopped = False
            self._life.gate.set_open(True)
            self._say("info", "node_continued")

    async def slow_disk(self, delay_ms: float) -> None:
        """See :class:`SlowDisk`."""
        self._slow.delay_ms = delay_ms

    async def cut(self, ports: Iterable[int]) -> None:
        """See :class:`Links`."""
        self._links.cut(ports)


async def _give_back(life: Life, disk: NodeDisk | None, log: NodeLog | None) -> None:
    """End a life's tasks, and close its files."""
    await life.end()
    if disk is not None:
        await disk.abandon()
    if log is not None:
        log.close()


async def _start(service: Service) -> None:
    await service.start()
