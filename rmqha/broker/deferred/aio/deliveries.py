"""How messages that waited get to their topics: into a queue that consumers look into.

Where this set leads none of a static topic's queues, messages are sent to a set that does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rmqha.base.errors import MessageIllegal, RmqhaError
from rmqha.broker.common.aio.writer import Writer
from rmqha.broker.deferred.delays import DelayRules
from rmqha.broker.deferred.logical_queues import (
    AGAIN_MS,
    Elsewhere,
    delivered_to,
    led_elsewhere,
    redirected,
    send_fields,
)
from rmqha.broker.naming.aio.other_sets import OtherSets
from rmqha.broker.topics.aio.ports import Broker
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.runtime.logs import Logger
from rmqha.store.aio.commit_log import AppendResult
from rmqha.store.record import Message

SEND_TIMEOUT_MS = 3_000
LOOK_MS = 100
"""Between two looks whether this broker can be written to."""


class Deliveries:
    """Writes what is due, while this broker reigns."""

    def __init__(
        self, broker: Broker, writer: Writer, sets: OtherSets, rules: DelayRules, log: Logger
    ) -> None:
        self._broker = broker
        self._writer = writer
        self._sets = sets
        self._rules = rules
        self._log = log
        # Until when, on the clock, nothing is sent there.
        self._avoided: dict[str, int] = {}

    def append(self, message: Message) -> AppendResult:
        """Write one message under its real topic, or have it wait once more.

        As for ``Writer.append``, nobody may wait before.

        Raises:
            MessageIllegal: the store cannot hold it.
            DiskFailed: the store has stopped.
        """
        detail = self._broker.mappings.table.items.get(message.topic)
        if detail is not None:
            # What can be sent on is, by whoever delivers delay levels.
            wait_ms = 0 if self.elsewhere(message) is not None else AGAIN_MS
            message = redirected(message, detail, self._rules, wait_ms)
        result = self._writer.append(message)
        self._broker.statistics.put(message.topic, 1, result.size)
        return result

    def elsewhere(self, message: Message) -> Elsewhere | None:
        """Where to send a message that this set has no queue for; None for all others."""
        detail = self._broker.mappings.table.items.get(message.topic)
        if detail is None or delivered_to(detail, message.queue_id) is not None:
            return None
        now_ms = self._broker.clock.now_ms()
        self._avoided = {name: until for name, until in self._avoided.items() if until > now_ms}
        return led_elsewhere(detail, message.queue_id, self._avoided)

    async def send_on(self, messages: Sequence[tuple[Message, Elsewhere]]) -> int:
        """Send messages to other sets; those that are not taken there wait here once more.

        One may come twice: its answer may be lost, and this broker's role may end meanwhile.

        Returns:
            Where the last record ends that was written, 0 for none.

        Raises:
            DiskFailed: the store has stopped.
        """
        taken = await asyncio.gather(*(self._is_taken(*one) for one in messages))
        left = [message for (message, _), is_taken in zip(messages, taken, strict=True)
                if not is_taken]  # fmt: skip
        end = 0
        for message in left:
            while not self._writer.is_open:
                await self._broker.clock.sleep(LOOK_MS)
            try:
                end = self.append(message).end
            except MessageIllegal as error:
                self._broker.statistics.records_skipped += 1
                self._log.log("error", "delayed_message_illegal", reason=str(error))
        return end

    async def _is_taken(self, message: Message, place: Elsewhere) -> bool:
        fields = send_fields(message, place)
        try:
            answer = await self._sets.ask(
                place.broker_name, RequestCode.SEND_MESSAGE, fields, message.body,
                timeout_ms=SEND_TIMEOUT_MS,
            )  # fmt: skip
        except RmqhaError as error:
            reason = str(error)
        else:
            # Stored, but not as safe as was asked for, is not enough: it would be the only copy.
            if answer.code == ResponseCode.SUCCESS:
                return True
            reason = f"{answer.code}: {answer.remark}"
        self._avoided[place.broker_name] = self._broker.clock.now_ms() + AGAIN_MS
        self._log.log(
            "warning", "delivery_not_taken", topic=message.topic, broker=place.broker_name,
            reason=reason,
        )  # fmt: skip
        return False
