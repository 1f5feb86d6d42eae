"""What pop mode adds to a broker, put together: modes and their file, pops, acknowledgements."""

from __future__ import annotations

import asyncio
from collections.abc import Container
from typing import Any

from rmqha.broker.common.aio.config_file import ConfigFile, content_of
from rmqha.broker.common.aio.ports import Handlers
from rmqha.broker.deferred.aio.master_services import MasterServices
from rmqha.broker.groups.aio.assignment_requests import AssignmentProcessor
from rmqha.broker.groups.request_modes import RequestMode, RequestModes
from rmqha.broker.pop.aio.ack_requests import AckProcessor
from rmqha.broker.pop.aio.ordered import OrderedPops
from rmqha.broker.pop.aio.peek_requests import PeekProcessor
from rmqha.broker.pop.aio.pop_requests import PopProcessor
from rmqha.broker.pop.aio.revive import ReviveService
from rmqha.broker.pull.aio.ports import Broker
from rmqha.remoting.aio.client import RemotingClient
from rmqha.runtime.logs import Logger
from rmqha.runtime.ports import Disk


class PopParts:
    """Of one broker.

    Attributes:
        modes: who consumes how; a slave's are its master's.
        file: ``config/messageRequestMode.json``.
        orders: what groups that pop in order have in flight.
        pops: holds and hands out.
        revive: delivers once more what was popped and not acknowledged.
    """

    def __init__(
        self, broker: Broker, services: MasterServices, client: RemotingClient, disk: Disk,
        log: Logger,
    ) -> None:  # fmt: skip
        config = broker.config
        share = config.integer("defaultPopShareQueueNum")
        default = RequestMode("", "", config.values["defaultMessageRequestMode"], share)
        self.modes = RequestModes(config.integer("requestModesMax"), default)
        path = config.store.path("config", "messageRequestMode.json")
        self.file = ConfigFile(
            disk, broker.clock, path, content_of(self.modes.members), broker.troubles
        )
        self.orders = OrderedPops(broker, disk)
        self.pops = PopProcessor(broker, services, self.orders)
        self.revive = ReviveService(
            broker, services.writer, services.timer_service, services.rules, log
        )
        services.also("pop revive", self.revive.run)
        self._acks = AckProcessor(broker, services, self.orders)
        self._peeks = PeekProcessor(broker, self.pops.popped_to)
        self._assignments = AssignmentProcessor(broker, self.modes, self.file, client)

    def handlers(self) -> Handlers:
        """By request code."""
        return {
            **self.pops.handlers(),
            **self._acks.handlers(),
            **self._peeks.handlers(),
            **self._assignments.handlers(),
        }

    def ended(self, topics: Container[str], groups: Container[str]) -> None:
        """Topics and groups are gone, with what they have stored: nothing is left of their pops."""
        self.pops.ended(topics, groups)
        self.orders.ended(topics, groups)

    async def load(self) -> None:
        """Read the files; raises as ``ConfigFile.read``."""
        await self.file.read(self._load)
        await self.orders.load()

    async def run(self) -> None:
        """Write the files after changes, for ever."""
        await asyncio.gather(self.file.run(), self.orders.file.run())

    async def save(self) -> None:
        """Write now what has changed; raises DiskFailed."""
        await self.file.save()
        await self.orders.file.save()

    def _load(self, value: dict[str, Any]) -> None:
        self.modes.load(value)

    def take_modes(self, value: dict[str, Any]) -> int:
        """A master's modes; how many, or 0 when nothing is new. Raises RemoteProtocolError."""
        if not self.modes.load(value):
            return 0
        self.file.changed()
        return max(1, len(self.modes))
