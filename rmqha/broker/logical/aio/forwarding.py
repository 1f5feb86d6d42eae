"""A client that has not heard of a remap: its request is passed on, and the answer back.

Java answers 501, which its producers do not try again, and no client takes for a reason to ask for
the route; they fail until they do, every 30 s (apache/rocketmq #3607).

Clients that know no static topics ask one broker set for all queues of a topic. So it passes their
requests on to the leader of any queue, whether it has ever led it or not, and tries again where the
leader is another one by now. A pull that waits at a leader is asked anew when the queue may have moved:
a Java set holds it until its time is over, though no message can come there any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import NamedTuple

from rmqha.auth.signature import without_signature
from rmqha.broker.groups.aio.ports import Broker
from rmqha.broker.logical.aio.segments import FORWARD_TIMEOUT_MS
from rmqha.broker.logical.place import FORWARDED_FIELD, elsewhere, is_of_old_client
from rmqha.broker.naming.aio.other_sets import OtherSets
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.statictopic.mapping import TopicQueueMappingDetail
from rmqha.statictopic.translate import not_leader

FORWARDS_MAX = 10_000
"""Requests on their way at a time; pulls of old clients that may wait are half of them at most, so that
consumers with nothing to read leave room for messages."""

ROUNDS = 4
"""How often an old client's request looks for its leader: name servers hear of a remap before the
leader of before does, so that more than two come only with one remap after the other."""

PAUSE_MS = 50
"""Between two of these that found no leader."""

Adapt = Callable[[RemotingCommand, str], RemotingCommand]
"""Makes a client's answer of that of a leader, whose broker set is named."""

Anew = Callable[[int], RemotingCommand | None]
"""Serves a request by the mapping of now, after it has waited for so many milliseconds."""


class _Passing(NamedTuple):
    """A request on its way.

    Attributes:
        name: the leader by this broker's own knowledge; None for one to be looked up.
        rounds: how many leaders may be asked.
    """

    request: RemotingCommand
    mapping: TopicQueueMappingDetail
    logical_id: int
    name: str | None
    fields: dict[str, str]
    timeout_ms: int
    rounds: int
    again: Mapping[str, str]
    adapt: Adapt | None


class Forwarding:
    """Answers requests for queues that another broker set leads."""

    def __init__(self, broker: Broker, sets: OtherSets) -> None:
        self._broker = broker
        self._sets = sets
        self._count = 0
        self._waiting: dict[str, dict[asyncio.Future[None], None]] = {}
        broker.mappings.on_changed.append(self._remapped)

    def pass_on(
        self,
        connection: Connection,
        request: RemotingCommand,
        mapping: TopicQueueMappingDetail,
        logical_id: int,
        wait_ms: int = 0,
        adapt: Adapt | None = None,
        changed: Mapping[str, str] | None = None,
        again: Mapping[str, str] | None = None,
        remapped: Anew | None = None,
    ) -> RemotingCommand | None:
        """Pass a request on to the queue's leader, or refuse it with 501.

        Args:
            wait_ms: how long the leader may take besides.
            adapt: None for a client that gets the leader's answer.
            changed: fields that are others by now than the client sent.
            again: those that are others once a leader was asked.
            remapped: serves one that may wait when queues of its topic have moved meanwhile.
        """
        name = elsewhere(mapping, logical_id, request.ext_fields)
        is_old = is_of_old_client(request.version, request.ext_fields)
        most = FORWARDS_MAX // 2 if wait_ms and is_old else FORWARDS_MAX
        if (name is None and not is_old) or self._count >= most:
            return request.reply(ResponseCode.NOT_LEADER_FOR_QUEUE, not_leader(mapping, logical_id))
        self._count += 1
        sent = without_signature(request.ext_fields)
        fields = {**sent, **(changed or {}), FORWARDED_FIELD: "true"}
        passing = _Passing(
            request, mapping, logical_id, name, fields, FORWARD_TIMEOUT_MS + wait_ms,
            ROUNDS if is_old else 1, again or {}, adapt,
        )  # fmt: skip
        work = self._passed_on(connection, passing, remapped if wait_ms else None)
        self._broker.answers.start(work, connection, request, name="forwarded")
        return None

    async def leader_of(self, mapping: TopicQueueMappingDetail, logical_id: int) -> str | None:
        """The set that leads a queue by the word of name servers; any leader for a negative one."""
        leaders = (await self._sets.places(mapping.topic)).leaders
        if logical_id < 0:
            return next((one for one in leaders.values() if one != mapping.broker_name), None)
        return leaders.get(logical_id)

    def _remapped(self, topics: frozenset[str]) -> None:
        """Queues have moved: whoever waits at a leader of before waits for nothing."""
        for topic in sorted(topics):
            self._sets.forget_places(topic)
            for moved in self._waiting.pop(topic, ()):
                if not moved.done():
                    moved.set_result(None)

    async def _passed_on(
        self, connection: Connection, passing: _Passing, remapped: Anew | None
    ) -> None:
        request, begun_ms = passing.request, self._broker.clock.now_ms()
        try:
            ask = self._adapted if remapped is None else self._unless_remapped
            answer: RemotingCommand | None = await ask(passing)
        finally:
            self._count -= 1
        if answer is None and remapped is not None:
            answer = remapped(self._broker.clock.now_ms() - begun_ms)
        if answer is not None and not request.is_oneway:
            connection.send(
                request.reply(answer.code, answer.remark, answer.ext_fields, answer.body)
            )

    async def _unless_remapped(self, passing: _Passing) -> RemotingCommand | None:
        """The answer, or None as soon as queues of the topic have moved."""
        topic, loop = passing.mapping.topic, asyncio.get_running_loop()
        asking, moved = loop.create_task(self._adapted(passing)), loop.create_future()
        waiting = self._waiting.setdefault(topic, {})
        waiting[moved] = None
        try:
            await asyncio.wait((asking, moved), return_when=asyncio.FIRST_COMPLETED)
            return asking.result() if asking.done() else None
        finally:
            asking.cancel()
            waiting.pop(moved, None)
            if not waiting and self._waiting.get(topic) is waiting:
                del self._waiting[topic]

    async def _adapted(self, passing: _Passing) -> RemotingCommand:
        answer, name = await self._answer(passing)
        return answer if passing.adapt is None else passing.adapt(answer, name)

    async def _answer(self, passing: _Passing) -> tuple[RemotingCommand, str]:
        """What a leader says, and who it is; the last 501 where there is none."""
        request, mapping, name, fields = (
            passing.request, passing.mapping, passing.name, passing.fields,
        )  # fmt: skip
        remark = not_leader(mapping, passing.logical_id)
        answer = request.reply(ResponseCode.NOT_LEADER_FOR_QUEUE, remark)
        for number in range(passing.rounds):
            is_looked_up = name is None
            if name is None:
                name = await self.leader_of(mapping, passing.logical_id)
            if name is not None and name != mapping.broker_name:
                answer = await self._sets.ask(
                    name, request.code, fields, request.body, timeout_ms=passing.timeout_ms
                )
                if answer.code != ResponseCode.NOT_LEADER_FOR_QUEUE:
                    return answer, name
                fields = {**fields, **passing.again}
            self._sets.forget_places(mapping.topic)
            name = None
            if is_looked_up and number < passing.rounds - 1:
                await self._broker.clock.sleep(PAUSE_MS)
        return answer, ""
