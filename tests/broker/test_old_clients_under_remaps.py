"""Producers that know no static topics, under remaps while masters die: those of the front as well.

The story is that of ``remap_story``; here producers ask the one broker set that name servers show
such clients, and what they get is read back as such a consumer reads it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from rmqha.base.errors import RmqhaError
from rmqha.broker.aio.replica import BrokerReplica
from rmqha.remoting import fastjson
from rmqha.remoting.command import RemotingCommand
from tests.broker.broker_sets import STATIC
from tests.broker.old_client import JAVA_4_9_8, SHOWN, OldClient
from tests.broker.remap_story import MOVES, QUEUES, SEND_MS, SERVERS, RemapStory


class OldStory(RemapStory):
    """Two sets of three replicas, and producers of 4.9.8.

    Attributes:
        fronts: the addresses that producers were told, in their order.
    """

    def __init__(self, seed: int, **keys: object) -> None:
        super().__init__(seed, **keys)
        self.fronts: list[str] = []

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
        """And an old consumer reads what one of 5.x reads, from any set."""
        super().prove()
        old = OldClient(self)
        old.heartbeat(*self.hosts_of)
        for queue in range(QUEUES):
            expected = [(queue, *one) for one in self.consume(self.leader_now(queue), queue)]
            for name in self.hosts_of:
                assert old.consume(name, queue) == expected
        assert old.route() == (self.fronts[-1], QUEUES) or len(self.hosts_of) > 1


def begin(story: OldStory) -> None:
    """A cluster with its topic and its producers."""
    story.boot_all()
    story.until(story.in_sync, "all in sync")
    story.create()
    story.start_producers()
    story.run_for(300)


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
@pytest.mark.parametrize("fault", list(FAULTS))
def test_queues_when_something_dies_in_a_remap_then_old_producers_lose_and_reorder_nothing(
    fault: str,
) -> None:
    """A front that dies is followed by another; messages that were not answered are sent again."""
    counts: Counter[str] = Counter()
    fronts: set[str] = set()
    for at_call in range(1, 10, 2):
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
    assert counts["faults inside a command"] > 7
    assert counts["commands that were cut short" if fault == "command" else "masters killed"] > 7
    assert counts["acknowledged"] > 2_000
    assert fronts == {"broker-a", "broker-b"} or fault == "command"
