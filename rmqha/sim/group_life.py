"""A group that stays for a whole story and commits offsets, back and forth.

Topics that come and go do so within a second, which is what slaves may be behind.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable

from rmqha.broker.aio.replica import BrokerReplica
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.sim.topic_lives import Ask
from rmqha.sim.topic_offsets import GroupOffsets, Look
from rmqha.verify.offsets import Process

GROUP, QUEUE = "Committing", 0
PAUSES_S = 0.05, 0.2, 0.8


class GroupLife:
    """Its one consumer.

    Args:
        ask, look: see ``topic_lives.py``.
        end: of the queue: a message before it was acknowledged.
        now_s: the loop's time.
    """

    def __init__(
        self, topic: str, ask: Ask, dice: random.Random, counts: Counter[str], look: Look,
        end: Callable[[], int], now_s: Callable[[], float],
    ) -> None:  # fmt: skip
        self.offsets = GroupOffsets(GROUP, topic, look, counts, is_sure=self._is_sure, now_s=now_s)
        self._topic = topic
        self._ask = ask
        self._dice = dice
        self._end = end
        self._late: list[Callable[[], bool]] = []

    async def run(self, is_over: Callable[[], bool]) -> None:
        """Make the group, and commit until it is over."""
        is_made = False
        while not is_over():
            await asyncio.sleep(self._dice.choice(PAUSES_S))
            if is_over():
                break
            if is_made:
                await self._commit(self._dice.randint(0, self._end()))
            else:
                is_made = await self._made()

    async def _made(self) -> bool:
        body = json.dumps({"groupName": GROUP}).encode()
        command = RemotingCommand(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
        answer, _ = await self._ask(command)
        return answer is not None and answer.code == ResponseCode.SUCCESS

    async def _commit(self, offset: int) -> None:
        fields = {
            "consumerGroup": GROUP, "topic": self._topic, "queueId": str(QUEUE),
            "commitOffset": str(offset),
        }  # fmt: skip
        command = RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, ext_fields=fields)
        number = self.offsets.sent(QUEUE, offset)
        answer, may_arrive = await self._ask(command)
        if answer is None and may_arrive():
            self._late.append(may_arrive)
        self.offsets.answered(QUEUE, number, answer)

    def _is_sure(self) -> bool:
        """Whether no commit is on its way that was given up."""
        self._late = [one for one in self._late if one()]
        return not self._late

    def begins(self, process: Process, replica: BrokerReplica) -> None:
        """A master has taken up its role: look at its offsets.

        Raises:
            InvariantBroken: see ``verify/offsets.py``.
        """
        self.offsets.begins(process, replica)
