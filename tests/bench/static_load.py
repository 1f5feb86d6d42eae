"""Producers and readers of a static topic: one of each for every logical queue.

They do what Java's clients of 5.x do: look at the route, ask the master of the broker set that leads
the queue, and take ``offsetDelta`` and ``nextBeginOffset`` as they come. After any failure they look
at the route again, sooner than Java's clients would.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from itertools import pairwise
from typing import Any

from rmqha.base.errors import ConnectFailed, RmqhaError
from rmqha.remoting import fastjson
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.command import RemotingCommand
from rmqha.testing.real import wire
from tests.bench.static_ledger import Ledger

SEND_MS = 3_000
PULL_MS = 3_000
HELD_MS = 1_000
ROUTE_MS = 1_000
AGAIN_S = 0.05
ROUTE_KEPT_S = 0.05
"""Failures that come together ask the name server once."""
END_S = 60.0
_MAY_BE_WRITTEN = frozenset({1, 10, 11, 12})
_SUSPEND, _WITH_SUBSCRIPTION = 2, 4


class Leaders:
    """Who leads the logical queues, as the name server tells it."""

    def __init__(self, client: RemotingClient, name_server: str, topic: str) -> None:
        self._client, self._name_server, self._topic = client, name_server, topic
        self._addresses: dict[int, str] = {}
        self._asked_at = 0.0
        self._lock = asyncio.Lock()

    def of(self, queue: int) -> str:
        """The master's address; empty if nobody knows."""
        return self._addresses.get(queue, "")

    async def look(self) -> None:
        """Ask, unless somebody has just done so."""
        async with self._lock:
            if time.monotonic() - self._asked_at < ROUTE_KEPT_S:
                return
            with contextlib.suppress(RmqhaError):
                await self._ask()
            self._asked_at = time.monotonic()

    async def _ask(self) -> None:
        fields = {"topic": self._topic, "acceptStandardJsonOnly": "true"}
        command = RemotingCommand(wire.GET_ROUTE, ext_fields=fields)
        answer = await self._client.invoke(self._name_server, command, ROUTE_MS)
        if answer.code != wire.SUCCESS:
            return
        route: Any = fastjson.loads(answer.body)
        masters = {one["brokerName"]: one["brokerAddrs"].get("0") for one in route["brokerDatas"]}
        newest: dict[int, tuple[int, str]] = {}
        for name, info in (route.get("topicQueueMappingByBroker") or {}).items():
            for text in info.get("currIdMap") or {}:
                mine = (info["epoch"], name)
                newest[int(text)] = max(newest.get(int(text), mine), mine)
        self._addresses = {queue: masters.get(name) or "" for queue, (_, name) in newest.items()}


class StaticLoad:
    """The tasks; everything lives in one event loop.

    Args:
        pause_s: of a producer after each acknowledgement.

    Attributes:
        ledger: what producers were told.
        acked_at: moments of acknowledgements, by queue.
        live: what the readers that read meanwhile have found: offset and number, by queue.
        counts: answers other than success.
    """

    def __init__(
        self, client: RemotingClient, name_server: str, topic: str, queues: int, pause_s: float
    ) -> None:
        self._client, self._topic, self._pause_s = client, topic, pause_s
        self.queues = range(queues)
        self._leaders = Leaders(client, name_server, topic)
        self.ledger = Ledger({one: [] for one in self.queues}, {one: set() for one in self.queues})
        self.acked_at: dict[int, list[float]] = {one: [] for one in self.queues}
        self.live: dict[int, list[tuple[int, int]]] = {one: [] for one in self.queues}
        self.counts: Counter[str] = Counter()
        self._sending = self._reading = True
        self._producers: list[asyncio.Task[None]] = []
        self._readers: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Send and read in the background."""
        await self._leaders.look()
        self._producers = [asyncio.create_task(self._produce(one)) for one in self.queues]
        self._readers = [asyncio.create_task(self._follow(one)) for one in self.queues]

    async def stop(self) -> dict[int, list[tuple[int, int]]]:
        """End the producers, let the readers come to the end, and read all queues anew.

        Returns:
            What was read from offset 0, as ``live``.
        """
        self._sending = False
        _, left = await asyncio.wait(self._producers, timeout=END_S)
        self.counts["producers without an answer at the end"] = len(left)
        for task in left:
            task.cancel()
        found = dict(
            zip(self.queues, await asyncio.gather(*map(self._drain, self.queues)), strict=True)
        )
        deadline = time.monotonic() + END_S
        while any(len(self.live[one]) < len(found[one]) for one in self.queues):
            if time.monotonic() > deadline:
                break
            await asyncio.sleep(AGAIN_S)
        self._reading = False
        await asyncio.wait(self._readers, timeout=END_S)
        return found

    def longest_pause_s(self, begun: float, ended: float) -> float:
        """The longest time that a queue was without acknowledgements around two moments."""
        pauses = [0.0]
        for moments in self.acked_at.values():
            near = [one for one in moments[-20_000:] if one >= begun - 1.0]
            near += [ended] if not near or near[-1] < ended else []
            pauses += [
                later - earlier for earlier, later in pairwise(near)
                if later >= begun and earlier <= ended
            ]  # fmt: skip
        return max(pauses)

    # -- producers -----------------------------------------------------------------------------------

    async def _produce(self, queue: int) -> None:
        number = 0
        while self._sending:
            answer, words = None, ""
            try:
                answer = await self._send(queue, number)
            except RmqhaError as error:
                if not isinstance(error, ConnectFailed):
                    self.ledger.resent[queue].add(number)
                words = type(error).__name__
            if answer is not None and answer.code == wire.SUCCESS:
                self.ledger.told[queue].append((number, int(answer.ext_fields["queueOffset"])))
                self.acked_at[queue].append(time.monotonic())
                number += 1
                await asyncio.sleep(self._pause_s)
                continue
            if answer is not None:
                words = f"code {answer.code}"
                if answer.code in _MAY_BE_WRITTEN:
                    self.ledger.resent[queue].add(number)
            self.counts[f"send: {words}"] += 1
            await asyncio.sleep(AGAIN_S)
            await self._leaders.look()

    async def _send(self, queue: int, number: int) -> RemotingCommand:
        fields = {
            "a": "PG", "b": self._topic, "c": "TBW102", "d": "4", "e": str(queue), "f": "0",
            "g": str(int(time.time() * 1000)), "h": "0", "j": "0", "k": "false", "m": "false",
            "i": f"UNIQ_KEY\x01U{queue}x{number}\x02WAIT\x01true\x02",
        }  # fmt: skip
        command = RemotingCommand(310, ext_fields=fields, body=b"%d-%d" % (queue, number))
        return await self._client.invoke(self._leaders.of(queue), command, SEND_MS)

    # -- readers -------------------------------------------------------------------------------------

    async def _pull(self, queue: int, offset: int, held_ms: int) -> RemotingCommand:
        fields = {
            "consumerGroup": "CG", "topic": self._topic, "queueId": str(queue),
            "queueOffset": str(offset), "maxMsgNums": "32", "commitOffset": "0",
            "sysFlag": str(_WITH_SUBSCRIPTION | (_SUSPEND if held_ms else 0)),
            "suspendTimeoutMillis": str(held_ms), "subscription": "*", "subVersion": "0",
            "expressionType": "TAG", "bname": "__syslo__global__",
        }  # fmt: skip
        command = RemotingCommand(wire.PULL_MESSAGE, ext_fields=fields)
        address = self._leaders.of(queue)
        answer = await self._client.invoke(address, command, PULL_MS + held_ms)
        if answer.code not in (
            wire.SUCCESS, wire.PULL_NOT_FOUND, wire.PULL_RETRY_IMMEDIATELY, wire.PULL_OFFSET_MOVED,
        ):  # fmt: skip
            raise wire.Refused(address, wire.PULL_MESSAGE, wire.Answer(answer.code, {}, b"", ""))
        return answer

    def _messages(self, queue: int, answer: RemotingCommand) -> list[tuple[int, int]]:
        """Logical offset and number of each message in an answer."""
        delta = int(answer.ext_fields.get("offsetDelta", "0"))
        found = []
        for one in wire.parse_messages(answer.body) if answer.code == wire.SUCCESS else ():
            owner, _, number = one.body.partition(b"-")
            if int(owner) != queue:
                self.counts["read in another queue"] += 1
            found.append((one.queue_offset + delta, int(number)))
        return found

    async def _follow(self, queue: int) -> None:
        """Read what comes, for as long as it comes."""
        offset = 0
        while self._reading:
            try:
                answer = await self._pull(queue, offset, HELD_MS)
            except (RmqhaError, wire.Refused) as error:
                code = f"code {error.answer.code}" if isinstance(error, wire.Refused) else ""
                self.counts[f"pull: {code or type(error).__name__}"] += 1
                await asyncio.sleep(AGAIN_S)
                await self._leaders.look()
                continue
            self.live[queue] += self._messages(queue, answer)
            following = int(answer.ext_fields["nextBeginOffset"])
            if answer.code == wire.PULL_OFFSET_MOVED:
                self.counts["pull: sent elsewhere"] += 1
            if following == offset:
                # Java's brokers hold no pull at the end of an older segment.
                await asyncio.sleep(0.005)
            offset = following

    async def _drain(self, queue: int) -> list[tuple[int, int]]:
        """Everything from offset 0 to the end; empty where nobody leads the queue."""
        found: list[tuple[int, int]] = []
        offset, deadline = 0, time.monotonic() + END_S
        while time.monotonic() < deadline:
            try:
                answer = await self._pull(queue, offset, 0)
                end = await self._end(queue) if answer.code == wire.PULL_NOT_FOUND else -1
            except (RmqhaError, wire.Refused):
                await asyncio.sleep(AGAIN_S)
                await self._leaders.look()
                continue
            found += self._messages(queue, answer)
            following = int(answer.ext_fields["nextBeginOffset"])
            if answer.code == wire.PULL_NOT_FOUND and following >= end:
                return found
            if following != offset:
                deadline = time.monotonic() + END_S
            else:
                await asyncio.sleep(AGAIN_S)
            offset = following
        self.counts["queues that could not be read to their end"] += 1
        return found

    async def _end(self, queue: int) -> int:
        fields = {"topic": self._topic, "queueId": str(queue), "bname": "__syslo__global__"}
        command = RemotingCommand(30, ext_fields=fields)
        answer = await self._client.invoke(self._leaders.of(queue), command, PULL_MS)
        if answer.code != wire.SUCCESS:
            raise wire.Refused("", 30, wire.Answer(answer.code, {}, b"", ""))
        return int(answer.ext_fields["offset"])
