"""One story of remaps: producers that keep an order, commands that die, masters that die, and a proof.

A producer of each logical queue sends 0, 1, 2 .. and goes on only when it was told that a number is
taken; what it was not told of it sends again. So a queue, read from its beginning, must have every
number, in order, and each number that was acknowledged at the offset that was told. Numbers may come
again where an answer was lost, and nowhere else.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from rmqha.admin.commands import logical_queues, remapping_static_topic, update_static_topic
from rmqha.admin.report import Report
from rmqha.admin.spec import Here
from rmqha.base.errors import RmqhaError
from rmqha.broker.aio.replica import BrokerReplica
from rmqha.client.aio.exchanges import ExchangeClient
from rmqha.client.exchange import Exchange
from rmqha.remoting import fastjson
from rmqha.remoting.command import RemotingCommand
from rmqha.sim.clock import SimClock
from tests.broker.broker_sets import STATIC, SetsCluster
from tests.broker.replicas import NAME_SERVER, send_fields

QUEUES = 4
SERVERS = (f"{NAME_SERVER}:9876",)
SEND_MS = 1_000
AGAIN_MS = 40
MOVES = (("broker-b",), ("broker-a",), ("broker-a", "broker-b"))


class Abandoned(Exception):
    """A command was ended before it was done."""


class RemapStory(SetsCluster):
    """Two sets of three replicas and a static topic that moves between them.

    Attributes:
        counts: what happened, for those who want to know whether anything did.
        told: number and offset of each acknowledged message, by logical queue.
        resent: numbers that were sent again without an answer, by logical queue.
    """

    def __init__(self, seed: int, **keys: object) -> None:
        super().__init__(seed, sets=2, replicas=3, **keys)
        self.counts: Counter[str] = Counter()
        self.told: dict[int, list[tuple[int, int]]] = {queue: [] for queue in range(QUEUES)}
        self.resent: dict[int, set[int]] = {queue: set() for queue in range(QUEUES)}
        self._sending = True
        self._busy = 0
        self._pause_ms = 0
        self._before_call: Callable[[int], None] = lambda _: None
        self._operator, self._operator_context = self._client, self._client_context

    # -- the operator --------------------------------------------------------------------------------

    def command(self, make: Callable[[Here], Exchange[Report]]) -> Report:
        """Run a command of mqadmin to its end; raises what it raises."""
        here = Here(self.wall_ms(), self.rng.getrandbits(64))
        calls = 0

        def watched(exchange: Exchange[Any]) -> Exchange[Any]:
            nonlocal calls
            answer: Any = None
            error: BaseException | None = None
            while True:
                try:
                    call = exchange.send(answer) if error is None else exchange.throw(error)
                except StopIteration as end:
                    return end.value
                calls += 1
                self._before_call(calls)
                answer, error = None, None
                try:
                    answer = yield call
                except RmqhaError as raised:
                    error = raised

        async def run() -> Report:
            client = ExchangeClient(self._operator)
            report: Report = await client.run(watched(make(here)))
            while report.then is not None:
                report = await client.run(watched(report.then))
            if report.failures:
                raise report.failures[0]
            return report

        task = self.loop.create_task(run(), context=self._operator_context.copy())
        self.until(task.done, "the command's end", limit_ms=120_000)
        return task.result()

    def create(self) -> None:
        """Four logical queues on the first set."""
        self.command(
            lambda here: update_static_topic.run(
                SERVERS, STATIC, QUEUES, ("broker-a",), (), None, False, False, here
            )
        )

    def remap(self, brokers: tuple[str, ...]) -> None:
        """Have these sets lead all queues."""
        self.command(
            lambda here: remapping_static_topic.run(
                SERVERS, STATIC, brokers, (), None, False, False, here
            )
        )

    def finish(self) -> None:
        """What an operator types who knows nothing of what was under way, until it succeeds."""
        for _ in range(60):
            try:
                self.command(
                    lambda here: logical_queues.run_mapping(
                        SERVERS, STATIC, ("broker-a", "broker-b"), (), False, False, here
                    )
                )
            except RmqhaError:
                self.counts["commands that failed"] += 1
                self.run_for(500)
            else:
                return
        raise AssertionError("no command could finish what another one has left")

    def remap_with(self, brokers: tuple[str, ...], at_call: int, then: Callable[[], None]) -> None:
        """Remap, and let something happen before a call of the command."""

        def before(number: int) -> None:
            if number == at_call:
                self.counts["faults inside a command"] += 1
                then()

        self._before_call = before
        try:
            self.remap(brokers)
            self.counts["commands that ended well"] += 1
        except (RmqhaError, Abandoned):
            self.counts["commands that were cut short"] += 1
        finally:
            self._before_call = lambda _: None

    def abandon(self) -> None:
        """The operator's shell is closed."""
        raise Abandoned

    def kill_master(self, name: str, back_ms: int = 3_000) -> None:
        """End a set's master; it comes back later."""
        master = self.master_of(name)
        if master is None:
            return
        host = self.host_of(master)
        self.counts["masters killed"] += 1
        self.kill(host)
        self.loop.call_later(back_ms / 1000, self.boot, host)

    # -- producers -----------------------------------------------------------------------------------

    def start_producers(self) -> None:
        """One for each logical queue."""
        for queue in range(QUEUES):
            self._busy += 1
            self.loop.create_task(self._produce(queue), context=self._client_context.copy())

    def stop_producers(self) -> None:
        """Until each has an answer to its last message."""
        self._sending = False
        self.until(lambda: not self._busy, "the last answers")

    async def _produce(self, queue: int) -> None:
        clock, number, name = SimClock(self.loop), 0, "broker-a"
        while self._sending:
            master = self._asked(queue, name)
            command = self._message(queue, number)
            try:
                address = "" if master is None else master.config.address
                answer = await self._client.invoke(address, command, SEND_MS)
            except RmqhaError:
                self.resent[queue].add(number)
                answer = None
            if answer is not None and answer.code == 0:
                self._took(queue, number, answer.ext_fields or {})
                number += 1
                if self._pause_ms:
                    await clock.sleep(self._pause_ms)
                continue
            if answer is not None and answer.code in (1, 10, 11, 12):
                # It may be written; 1 says that a leader was asked in vain.
                self.resent[queue].add(number)
            self.counts["sends that failed"] += 1
            await clock.sleep(AGAIN_MS)
            name = await self._leader(queue) or name
        self._busy -= 1

    def _message(self, queue: int, number: int) -> RemotingCommand:
        """A message of a logical queue."""
        fields = send_fields(number, STATIC) | {"e": str(queue)}
        return RemotingCommand(310, ext_fields=fields, body=b"%d-%d" % (queue, number))

    def _took(self, queue: int, number: int, fields: Mapping[str, str]) -> None:
        """A message is acknowledged."""
        self.told[queue].append((number, int(fields["queueOffset"])))

    def _asked(self, queue: int, name: str) -> BrokerReplica | None:
        """The replica of a set that a producer sends to."""
        del queue
        return self.master_of(name)

    async def _leader(self, queue: int) -> str | None:
        """The broker set that leads a queue, as the name server tells it."""
        fields = {"topic": STATIC, "acceptStandardJsonOnly": "true"}
        with contextlib.suppress(RmqhaError):
            command = RemotingCommand(105, ext_fields=fields)
            answer = await self._client.invoke(SERVERS[0], command, SEND_MS)
            route = fastjson.loads(answer.body) if answer.code == 0 else {}
            infos = route.get("topicQueueMappingByBroker") or {} if isinstance(route, dict) else {}
            led = [
                (info["epoch"], name) for name, info in infos.items()
                if str(queue) in info["currIdMap"]
            ]  # fmt: skip
            return max(led)[1] if led else None
        return None

    # -- the proof -----------------------------------------------------------------------------------

    def leader_now(self, queue: int) -> str:
        """The broker set that leads a queue; exactly one."""
        led = [
            name for name in self.hosts_of
            if (master := self.master_of(name)) is not None
            and (mapping := master.mappings.table.get(STATIC)) is not None
            and queue in mapping.curr_id_map
        ]  # fmt: skip
        assert len(led) == 1, f"queue {queue} is led by {led}"
        return led[0]

    def _may_be_lost(self, queue: int, number: int) -> bool:
        """Whether the rule of acknowledgements lets a message go that was acknowledged."""
        del queue, number
        return False

    def prove(self) -> None:
        """Nothing acknowledged is lost, twice, or out of its order.

        Raises:
            AssertionError: something is.
        """
        self.until(self.in_sync, "all in sync")
        for queue in range(QUEUES):
            found = self.consume(self.leader_now(queue), queue)
            offsets = [offset for offset, _ in found]
            assert offsets == sorted(set(offsets)), f"queue {queue}: offsets go back"
            numbers = [int(body.split(b"-")[1]) for _, body in found]
            assert all(body.startswith(b"%d-" % queue) for _, body in found), queue
            by_offset = dict(zip(offsets, numbers, strict=True))
            lost = {
                number for number, offset in self.told[queue]
                if by_offset.get(offset) != number and self._may_be_lost(queue, number)
            }  # fmt: skip
            # Of a lost message a copy that was sent before may have arrived at any time.
            first = [one for one in dict.fromkeys(numbers) if one not in lost]
            whole = [one for one in range(max(first, default=-1) + 1) if one not in lost]
            assert first == whole, f"queue {queue}: {first[:50]}"
            for number, offset in self.told[queue]:
                found_there = by_offset.get(offset) == number
                assert found_there or number in lost, f"queue {queue}: {number} at {offset}"
            again = {number for number, count in Counter(numbers).items() if count > 1}
            assert again <= self.resent[queue], f"queue {queue}: twice {again}"
        self.counts["acknowledged"] += sum(map(len, self.told.values()))
