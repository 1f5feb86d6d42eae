"""How messages that waited get to their topics: into a queue that consumers look into."""

from __future__ import annotations

from rmqha.broker.common.aio.writer import Writer
from rmqha.broker.deferred.delays import DelayRules
from rmqha.broker.deferred.logical_queues import redirected
from rmqha.broker.topics.aio.ports import Broker
from rmqha.runtime.logs import Logger
from rmqha.store.aio.commit_log import AppendResult
from rmqha.store.record import Message


class Deliveries:
    """Writes what is due, while this broker reigns; as for ``Writer``, nobody may wait before."""

    def __init__(self, broker: Broker, writer: Writer, rules: DelayRules, log: Logger) -> None:
        self._broker = broker
        self._writer = writer
        self._rules = rules
        self._log = log
        self._told: dict[str, int] = {}

    def append(self, message: Message) -> AppendResult:
        """Write one message under its real topic, or have it wait once more.

        Raises:
            MessageIllegal: the store cannot hold it.
            DiskFailed: the store has stopped.
        """
        detail = self._broker.mappings.table.items.get(message.topic)
        if detail is not None:
            message, waits = redirected(message, detail, self._rules)
            if waits and self._told.get(detail.topic) != detail.epoch:
                self._told[detail.topic] = detail.epoch
                self._log.log(
                    "error", "deliveries_without_queue", topic=detail.topic, epoch=detail.epoch
                )
        return self._writer.append(message)
