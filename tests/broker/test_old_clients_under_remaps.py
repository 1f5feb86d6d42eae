"""Clients that know no static topics, under remaps while masters die: those of the front as well.

The story is that of ``remap_story``; here producers ask the one broker set that name servers show
such clients, and consumers read along there, waiting for what comes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from rmqha.base.errors import RmqhaError
from rmqha.broker.aio.replica import BrokerReplica
from rmqha.remoting import fastjson
from rmqha.remoting.command import RemotingCommand
from rmqha.sim.clock import SimClock
from tests.broker.broker_sets import STATIC
from tests.broker.old_client import JAVA_4_9_8, SHOWN, OldClient, read_records
from tests.broker.remap_story import AGAIN_MS, MOVES, QUEUES, SEND_MS, SERVERS, RemapStory


class OldStory(RemapStory):
    """Two sets of three replicas, and producers and consumers of 4.9.8.

    Attributes:
        fronts: the addresses that they were told, in their order.
        got: what was consumed of each queue: queue and offset by the record, and body.
    """

    def __init__(self, seed: int, **keys: object) -> None:
        super().__init__(seed, **keys)
        self.fronts: list[str] = []
        self.got: dict[int, list[tuple[int, int, bytes]]] = {queue: [] for queue in range(QUEUES)}
        self._old = OldClient(self)

    def start_consumers(self) -> None:
        """One for each logical queue; they go on until the end."""
        for queue in range(QUEUES):
            self.loop.create_task(self._consume(queue), context=self._client_context.copy())

    async def _consume(self, queue: int) -> None:
        clock, offset = SimClock(self.loop), 0
        while True:
            # The subscription comes along: a front that dies would be told it 30 s later.
            fields = self._old.pull_fields(
                queue, offset, sysFlag="6", suspendTimeoutMillis="1000", subscription="*",
                expressionType="TAG",
            )  # fmt: skip
            command = RemotingCommand(11, version=JAVA_4_9_8, ext_fields=fields)
            try:
                address = self.fronts[-1] if self.fronts else ""
                answer = await self._client.invoke(address, command, 3 * SEND_MS)
            except RmqhaError:
                answer = None
            if answer is None or answer.code not in (0, 19, 20, 21):
                self.counts["pulls that failed"] += 1
                await clock.sleep(AGAIN_MS)
                await self._leader(queue)
                continue
            self.got[queue] += [one[:3] for one in read_records(answer.body)]
            offset = int((answer.ext_fields or {})["nextBeginOffset"])

    def _message(self, queue: int, number: int) -> RemotingCommand:
        message = super()._message(queue, number)
        message.version, message.language = JAVA_4_9_8, "JAVA"
        return message

    def _asked(self, queue: int, name: str) -> BrokerReplica | None:
        del queue, name
        found = [one for one in self.replicas.values() if one.config.address in self.fronts[-1:]]
        return found[0] if found else None

    async def _leader(self, queue: int) -> str | None:
        """Look at the route; it names no set of any queue."""
        del queue
        command = RemotingCommand(105, version=JAVA_4_9_8, ext_fields={"topic": STATIC})
        try:
            answer = await self._client.invoke(SERVERS[0], command, SEND_MS)
        except RmqhaError:
            return None
        route = fastjson.loads(answer.body) if answer.code == 0 else {}
        assert isinstance(route, dict)
        for one in route.get("brokerDatas", ()):
            address = one["brokerAddrs"].get("0")
            if one["brokerName"] == SHOWN and address and address not in self.fronts[-1:]:
                self.fronts.append(address)
        return None

    def prove(self) -> None:
        """And old consumers read what one of 5.x reads: along with all that happened, and anew."""
        super().prove()
        self._old.heartbeat(*self.hosts_of)
        for queue in range(QUEUES):
            expected = [(queue, *one) for one in self.consume(self.leader_now(queue), queue)]
            for name in self.hosts_of:
                assert self._old.consume(name, queue) == expected
            self.until(lambda q=queue, all_=expected: len(self.got[q]) >= len(all_), "all of it")
            assert self.got[queue] == expected
        address, count = self._old.route()
        assert count == QUEUES
        assert address in [one.config.address for one in self.replicas.values()]


def begin(story: OldStory) -> None:
    """A cluster with its topic and its producers."""
    story.boot_all()
    story.until(story.in_sync, "all in sync")
    story.create()
    story.start_producers()
    story.start_consumers()
    story.run_for(300)


@pytest.mark.slow
def test_producers_when_queues_are_remapped_then_no_old_one_is_refused() -> None:
    """While no master dies, whichever set serves them: of no message is anything to be noticed."""
    with OldStory(12) as story:
        begin(story)
        failed = story.counts["sends that failed"]
        assert failed == QUEUES  # none knew a front before it asked
        for brokers in MOVES:
            story.remap(brokers)
            story.run_for(200)
        story.stop_producers()
        story.prove()
        assert story.counts["acknowledged"] > 200
        assert story.counts["sends that failed"] == failed


CALLS = (1, 4, 7)
"""Of one remap; all of them are in ``test_remaps_in_simulator``."""

FAULTS: dict[str, Callable[[OldStory], None]] = {
    "front": lambda story: story.kill_master(set_of(story, story.fronts[-1])),
    "old leader": lambda story: story.kill_master("broker-a"),
    "new leader": lambda story: story.kill_master("broker-b"),
    "command": lambda story: story.abandon(),
}


def set_of(story: OldStory, address: str) -> str:
    """The broker set of an address."""
    host = address.partition(":")[0]
    return next(name for name, hosts in story.hosts_of.items() if host in hosts)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.turns(2)
@pytest.mark.parametrize("fault", list(FAULTS))
def test_queues_when_something_dies_in_a_remap_then_old_clients_lose_and_reorder_nothing(
    fault: str,
) -> None:
    """A front that dies is followed by another; messages that were not answered are sent again."""
    counts: Counter[str] = Counter()
    fronts: set[str] = set()
    for at_call in CALLS:
        with OldStory(at_call) as story:
            begin(story)
            for brokers in MOVES:
                story.remap_with(brokers, at_call, lambda story=story: FAULTS[fault](story))
                story.run_for(200)
                story.finish()
                story.run_for(300)
            story.stop_producers()
            story.prove()
            counts += story.counts
            fronts.update(set_of(story, one) for one in story.fronts)
    assert counts["faults inside a command"] > 5
    assert counts["commands that were cut short" if fault == "command" else "masters killed"] > 5
    assert counts["acknowledged"] > 1_000
    assert fronts == {"broker-a", "broker-b"} or fault == "command"
