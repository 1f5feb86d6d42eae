"""What logical queues add to a broker, put together: their segments, the way elsewhere, requests."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable

from rmqha.base.errors import DiskFailed
from rmqha.broker.common.aio.ports import Handlers
from rmqha.broker.groups.aio.ports import Broker
from rmqha.broker.logical.aio.cleaning import MappingCleaning
from rmqha.broker.logical.aio.forwarding import Forwarding
from rmqha.broker.logical.aio.lock_requests import LogicalLocks
from rmqha.broker.logical.aio.offset_requests import LogicalOffsets
from rmqha.broker.logical.aio.segments import SegmentAccess
from rmqha.broker.naming.aio.other_sets import OtherSets
from rmqha.broker.topics.aio.static_requests import StaticTopicProcessor
from rmqha.runtime.logs import Logger


class LogicalParts:
    """Of one broker.

    Args:
        sets: the masters of other broker sets.
        told: see ``TopicProcessor``.

    Attributes:
        segments: reads them, here or at another broker set.
        forwarding: passes requests on to the leader of a queue.
        cleaning: drops segments that have expired.
    """

    def __init__(
        self,
        broker: Broker,
        sets: OtherSets,
        told: Callable[[int], Awaitable[object]],
        log: Logger,
    ) -> None:
        self._broker = broker
        self._sets = sets
        self._log = log
        self.segments, self.forwarding = SegmentAccess(broker, sets), Forwarding(broker, sets)
        self.cleaning = MappingCleaning(broker, self.segments, log)
        self._topics = StaticTopicProcessor(broker, told)

    def handlers(self, offsets: Handlers, clients: Handlers) -> Handlers:
        """By request code.

        Args:
            offsets: who answers about offsets of physical queues.
            clients: who locks physical queues.
        """
        logical = LogicalOffsets(self._broker, self.segments, self.forwarding, offsets)
        locks = LogicalLocks(self._broker, self._sets, clients, self._log)
        return {**self._topics.handlers(), **logical.handlers(), **locks.handlers()}

    async def open(self) -> None:
        """Keep the mappings as they were loaded.

        No topic may be kept whose mapping never was, when this broker ends at once.
        """
        with contextlib.suppress(DiskFailed):  # told by the file, which is written again
            await self._broker.mappings.file.save()
