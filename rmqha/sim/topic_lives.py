"""Administrators and users of topics that come and go while a broker set fails over.

Each name has one of them. It makes the topic, writes to it, commits offsets, changes it, deletes it,
and begins anew; what it is not told, it asks for again until it is.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping

from rmqha.broker.aio.replica import BrokerReplica
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.sim.topic_offsets import GroupOffsets, Look
from rmqha.verify.offsets import Process
from rmqha.verify.topic_lives import NameLife, State, TopicContents, Written

Ask = Callable[[RemotingCommand], Awaitable[tuple[RemotingCommand | None, Callable[[], bool]]]]
"""Send a request to somebody who says that it is the master.

Gives the answer, None without one, and who tells whether the request may still arrive: a network
that was cut hands over what it holds, and a process that was paused reads it, however late."""

NO_STATE: State = (-1,)
"""What a request wants that changes neither topic nor group."""

PAUSES_S = 0.005, 0.02, 0.1
RETRY_S = 0.05
QUEUES_MAX = 3
LIFE_CHANGES = 6


class TopicLife:
    """One topic and one group, with the same name.

    Attributes:
        topic, group, contents, offsets: what is known of them.
        counts: what happened, for coverage.

    Args:
        ask: see above.
        look: at the master whom that asks.
        now_s: the loop's time.
    """

    def __init__(
        self, name: str, ask: Ask, dice: random.Random, counts: Counter[str], look: Look,
        now_s: Callable[[], float],
    ) -> None:  # fmt: skip
        self.name = name
        self.topic, self.group = NameLife(), NameLife()
        self.contents = TopicContents()
        self.offsets = GroupOffsets(name, name, look, counts, is_sure=self._is_sure, now_s=now_s)
        self.counts = counts
        self._ask = ask
        self._dice = dice
        self._number = 0
        self._late: list[tuple[str, State, Callable[[], bool]]] = []

    async def run(self, is_over: Callable[[], bool]) -> None:
        """Live until it is over; the last change may stay open."""
        while not is_over():
            for step in self._plan():
                if is_over():
                    return
                await asyncio.sleep(self._dice.choice(PAUSES_S))
                await step(is_over)

    def _plan(self) -> list[Callable[[Callable[[], bool]], Awaitable[None]]]:
        """One life of a topic's name."""
        middle = [self._put, self._put, self._commit, self._alter, self._make_group]
        steps = self._dice.choices(middle, k=self._dice.randint(1, LIFE_CHANGES))
        end = [self._end] if self._dice.random() < 0.7 else []
        return [
            self._alter,
            *steps,
            *end,
            *([self._end_group] if self._dice.random() < 0.3 else []),
        ]

    # -- changes -----------------------------------------------------------------------------------

    async def _sent(
        self, what: str, state: State, command: RemotingCommand
    ) -> RemotingCommand | None:
        """The answer to a request; one without an answer is remembered as long as it may arrive."""
        answer, may_arrive = await self._ask(command)
        if answer is None and may_arrive():
            self._late.append((what, state, may_arrive))
        return answer

    def _late_states(self, what: str) -> list[State]:
        self._late = [one for one in self._late if one[2]()]
        return [state for kind, state, _ in self._late if kind == what]

    async def _change(
        self, life: NameLife, state: State, command: Callable[[], RemotingCommand], what: str,
        is_over: Callable[[], bool],
    ) -> None:  # fmt: skip
        """Ask until it is acknowledged."""
        life.asked(state)
        while not is_over():
            answer = await self._sent("topic" if life is self.topic else "group", state, command())
            if answer is not None and answer.code == ResponseCode.SUCCESS:
                life.acknowledged(state)
                self.counts[what] += 1
                return
            self.counts["change asked for again"] += 1
            await asyncio.sleep(RETRY_S)

    async def _alter(self, is_over: Callable[[], bool]) -> None:
        perm, queues = self._dice.choice((6, 6, 4)), self._dice.randint(1, QUEUES_MAX)
        what = "topic made" if self.topic.known is None else "topic changed"

        def command() -> RemotingCommand:
            fields = {
                "topic": self.name, "defaultTopic": "TBW102", "readQueueNums": str(QUEUES_MAX),
                "writeQueueNums": str(queues), "perm": str(perm),
                "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
            }  # fmt: skip
            return RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, ext_fields=fields)

        await self._change(self.topic, (perm, queues), command, what, is_over)

    async def _end(self, is_over: Callable[[], bool]) -> None:
        def command() -> RemotingCommand:
            return RemotingCommand(
                RequestCode.DELETE_TOPIC_IN_BROKER, ext_fields={"topic": self.name}
            )

        await self._change(self.topic, None, command, "topic deleted", is_over)
        self.contents.committed.clear()
        self.offsets.clear()

    async def _make_group(self, is_over: Callable[[], bool]) -> None:
        retries = self._dice.randint(0, 9)

        def command() -> RemotingCommand:
            body = json.dumps({"groupName": self.name, "retryMaxTimes": retries}).encode()
            return RemotingCommand(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)

        await self._change(self.group, (retries,), command, "group changed", is_over)

    async def _end_group(self, is_over: Callable[[], bool]) -> None:
        def command() -> RemotingCommand:
            fields = {"groupName": self.name, "cleanOffset": "true"}
            return RemotingCommand(RequestCode.DELETE_SUBSCRIPTIONGROUP, ext_fields=fields)

        await self._change(self.group, None, command, "group deleted", is_over)
        self.offsets.clear()

    # -- messages and offsets ------------------------------------------------------------------------

    async def _put(self, is_over: Callable[[], bool]) -> None:
        del is_over
        if self.topic.known is None or self.topic.wanted:
            return
        self._number += 1
        life, queue_id = self.topic.life, self._dice.randrange(self.topic.known[1])
        body = f"{self.name}:{life}:{self._number}".encode()
        fields = {
            "a": "PG", "b": self.name, "c": "NONE", "d": "1", "e": str(queue_id), "f": "0",
            "g": "1700000000000", "h": "0", "i": f"UNIQ_KEY\x01{self.name}{self._number}\x02",
            "j": "0", "k": "false", "m": "false", "n": "broker-a",
        }  # fmt: skip
        command = RemotingCommand(RequestCode.SEND_MESSAGE_V2, ext_fields=fields, body=body)
        answer = await self._sent("put", NO_STATE, command)
        if answer is None or answer.code != ResponseCode.SUCCESS or answer.ext_fields is None:
            return
        offset = int(answer.ext_fields["queueOffset"])
        self.contents.written.append(Written(life, queue_id, offset, body))
        self.counts["message of a life after the first" if life else "message of a first life"] += 1

    async def _commit(self, is_over: Callable[[], bool]) -> None:
        del is_over
        mine = [one for one in self.contents.written if one.life == self.topic.life]
        if not mine or self.topic.known is None or self.topic.wanted:
            return
        one = self._dice.choice(mine)
        offset = one.queue_offset + 1
        before = self.contents.committed.get(one.queue_id, 0)
        self.contents.committed[one.queue_id] = max(before, offset)
        fields = {
            "consumerGroup": self.name, "topic": self.name, "queueId": str(one.queue_id),
            "commitOffset": str(offset),
        }  # fmt: skip
        command = RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, ext_fields=fields)
        number = self.offsets.sent(one.queue_id, offset)
        answer = await self._sent("commit", NO_STATE, command)
        self.counts["offset committed"] += 1
        self.offsets.answered(one.queue_id, number, answer)

    def _is_sure(self) -> bool:
        """Whether nothing that is still on its way can change what the group has committed."""
        return not (
            self.topic.wanted or self.group.wanted or self._late_states("commit")
            or None in self._late_states("topic") or None in self._late_states("group")
        )  # fmt: skip

    # -- the look ------------------------------------------------------------------------------------

    def begins(self, process: Process, replica: BrokerReplica) -> None:
        """A master has taken up its role: look at its offsets.

        Raises:
            InvariantBroken: see ``verify/offsets.py``.
        """
        is_whole = replica.store.dispatched_offset >= replica.store.max_offset
        self.offsets.begins(process, replica, is_whole=is_whole)

    def check(self, master: str, replica: BrokerReplica) -> None:
        """A master has taken up its role, or all is at its end: look at the rest.

        Raises:
            InvariantBroken: see ``verify/topic_lives.py``.
        """
        topic = replica.topics.table.get(self.name)
        group = replica.groups.table.get(self.name)
        found = None if topic is None else (topic.perm, topic.write_queue_nums)
        late = self._late_states("topic")
        self.topic.check(f"topic {self.name}", found, master, late)
        self.group.check(
            f"group {self.name}", None if group is None else (group.retry_max_times,), master,
            self._late_states("group"),
        )  # fmt: skip
        self.counts["name checked at a master"] += 1
        if topic is None or self.topic.wanted or None in late:
            return
        if replica.store.dispatched_offset < replica.store.max_offset:
            return  # consumers do not see all of its log yet
        offsets = replica.offsets.table
        self.contents.check(
            self.name, self.topic.life, read_queues(replica, self.name),
            [
                (queue_id, offset) for queue_id in range(QUEUES_MAX)
                if not self._late_states("commit")
                and (offset := offsets.query(self.name, self.name, queue_id)) is not None
            ],
        )  # fmt: skip
        self.counts["contents checked at a master"] += 1


def read_queues(replica: BrokerReplica, topic: str) -> Mapping[int, Mapping[int, bytes]]:
    """All messages of a topic by queue and queue offset."""
    reader, found = replica.store.reader, {}
    for queue_id in range(QUEUES_MAX):
        messages: dict[int, bytes] = {}
        offset = reader.min_offset(topic, queue_id)
        while offset < reader.max_offset(topic, queue_id):
            unit = reader.unit(topic, queue_id, offset)
            record = None if unit is None else reader.look(unit.physical_offset)
            if record is not None:
                messages[offset] = bytes(record.body)
            offset += 1
        found[queue_id] = messages
    return found


def tables_of(replica: BrokerReplica) -> dict[str, object]:
    """Topics, groups and the messages of the topics that come and go, by name."""
    found: dict[str, object] = {
        f"topic {name}": topic for name, topic in replica.topics.table.items.items()
    }
    found |= {f"group {name}": group for name, group in replica.groups.table.items.items()}
    names = {topic.decode() for topic, _ in replica.store.queues.queues}
    for name in sorted(names):
        if name.startswith("Life"):
            queues = {key: dict(one) for key, one in read_queues(replica, name).items() if one}
            if queues:  # one that a lost tail had begun is as good as none
                found[f"messages of {name}"] = queues
    return found
