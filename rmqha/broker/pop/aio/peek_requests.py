"""Request 200052: what a pop would bring, without taking it. No offset moves, nobody waits."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from rmqha.broker.common.aio.ports import Handlers
from rmqha.broker.common.refusal import Refusal
from rmqha.broker.pop.offsets import Key
from rmqha.broker.pop.queue_choice import DRAWN, known_offset, queues_in_turn
from rmqha.broker.pop.request import COUNT_MAX, PopRequest, check_pop, parse_pop
from rmqha.broker.pull.aio.ports import Broker
from rmqha.broker.pull.refusals import read_refusal
from rmqha.broker.pull.request import BYTES_MAX, SCAN_MAX, transfer_of
from rmqha.ha.events import Role
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import ext_fields
from rmqha.remoting.topic_names import PERM_READ
from rmqha.store.aio.pulling import Pulled

_MOVED = ("OFFSET_TOO_SMALL", "OFFSET_OVERFLOW_BADLY")


class PeekProcessor:
    """Shows messages to whoever may pop them.

    Args:
        popped: where the next pop of a queue begins, where that is not the kept offset.
    """

    def __init__(self, broker: Broker, popped: Callable[[Key], int | None]) -> None:
        store = broker.store
        self._broker = broker
        self._popped = popped
        self._pulling = store.pulling
        self._random = random.Random(broker.config.address)

    def handlers(self) -> Handlers:
        """By request code."""
        return {RequestCode.PEEK_MESSAGE: self.peek}

    def peek(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """Show what a pop would bring (200052)."""
        pop = parse_pop(request.ext_fields)
        # What a pop would be refused for does not count here.
        pop = pop._replace(max_msg_nums=min(pop.max_msg_nums, COUNT_MAX), invisible_ms=0)
        refusal = self._closed() or self._checked(pop)
        if refusal is not None:
            return request.reply(refusal.code, refusal.remark)
        looked, rest = self._look(pop)
        if any(self._pulling.is_cold(found) for _, found in looked):
            work = self._peek_cold(connection, request, pop, looked)
            self._broker.answers.start(work, connection, request, name="cold peek")
            return None
        return self._show(connection, request, pop, looked, rest)

    async def _peek_cold(
        self,
        connection: Connection,
        request: RemotingCommand,
        pop: PopRequest,
        looked: list[tuple[str, Pulled]],
    ) -> None:
        """Show messages once they are in memory; sending them would wait for the disk."""
        for _, found in looked:
            await self._pulling.fetch(found)
        # A role may have ended meanwhile, and a log been cut.
        refusal = self._closed()
        if refusal is not None:
            connection.send(request.reply(refusal.code, refusal.remark))
            return
        answer = self._show(connection, request, pop, *self._look(pop))
        if answer is not None:
            connection.send(answer)

    def _show(
        self,
        connection: Connection,
        request: RemotingCommand,
        pop: PopRequest,
        looked: list[tuple[str, Pulled]],
        rest: int,
    ) -> RemotingCommand | None:
        parts: list[memoryview] = []
        for topic, shown in looked:
            found = self._pulling.whole(shown)
            parts += found.parts
            self._broker.statistics.got(topic, pop.consumer_group, found.messages, found.size)
        fields = ext_fields(popTime=0, invisibleTime=0, reviveQid=0, restNum=rest)
        if not parts:
            return request.reply(ResponseCode.PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE", fields)
        connection.send_parts(request.reply(ResponseCode.SUCCESS, "FOUND", fields), parts)
        return None

    def _closed(self) -> Refusal | None:
        broker = self._broker
        return read_refusal(
            broker.role, "peeking",
            may_read=bool(broker.config.integer("brokerPermission") & PERM_READ),
            slave_reads=broker.config.boolean("slaveReadEnable"),
        )  # fmt: skip

    def _checked(self, pop: PopRequest) -> Refusal | None:
        broker = self._broker
        group = broker.groups.find(pop.consumer_group, may_write=broker.role is Role.MASTER)
        checked = check_pop(pop, group, broker.topics.table.get(pop.topic), 0)
        return checked if isinstance(checked, Refusal) else None

    def _look(self, pop: PopRequest) -> tuple[list[tuple[str, Pulled]], int]:
        """What queues have, by topic, and how many messages the group has not popped yet."""
        looked: list[tuple[str, Pulled]] = []
        count = size = rest = 0
        for topic, queue_id in self._queues(pop):
            offset = self._offset(pop.consumer_group, topic, queue_id)
            rest += max(0, self._broker.store.reader.max_offset(topic, queue_id) - offset)
            if count >= pop.max_msg_nums or size >= BYTES_MAX:
                continue
            found = self._read(topic, queue_id, offset, pop.max_msg_nums - count, BYTES_MAX - size)
            looked.append((topic, found))
            count, size = count + found.messages, size + found.size
        return looked, rest

    def _read(
        self, topic: str, queue_id: int, offset: int, count_max: int, bytes_max: int
    ) -> Pulled:
        for _ in range(2):
            found = self._pulling.read(
                topic, queue_id, offset, None, count_max=count_max, bytes_max=bytes_max,
                transfer=transfer_of(self._broker.near_bytes, self._broker.config.values),
            scan_max=SCAN_MAX,
            )  # fmt: skip
            if found.status not in _MOVED:
                break
            offset = found.next_offset
        return found

    def _queues(self, pop: PopRequest) -> Iterator[tuple[str, int]]:
        draw = self._random.randrange(DRAWN)
        return queues_in_turn(pop, self._broker.topics.table.topics, draw, in_order=False)

    def _offset(self, group: str, topic: str, queue_id: int) -> int:
        kept = self._broker.offsets.table.query(group, topic, queue_id)
        known = known_offset(self._popped((group, topic, queue_id)), kept)
        if known is None:
            return max(0, self._broker.store.reader.min_offset(topic, queue_id))
        return max(0, known)
