"""Java's clients and its admin library on static topics, in one JVM; answers as Python values.

==============================  ================================================================
servers ADDRESS                 the name server of everything below; starts the admin library
producer NAME                   start a producer
known NAME TOPIC                the queues that it may send to, as ``broker:queue``
refresh NAME TOPIC              have it and the admin library ask for the route
send NAME TOPIC COUNT PREFIX    COUNT messages to each of them: ``queue:offset:broker:body``
push NAME GROUP TOPIC           start a push consumer, from the first offset on
got NAME                        what it has received since: ``queue:offset:broker:body``
stop NAME                       shut a producer or consumer down
leaders TOPIC                   which broker set each logical queue is asked at: ``queue:set``
ends TOPIC                      ``queue:min:max``, and min and max of the topic's table
group GROUP TOPIC               ``queue:broker:end:consumed:last`` of a group
maps TOPIC                      how many queues Java's checks find, and what each broker knows
raw TOPIC                       what each broker knows, unchecked
undecided TOPIC SET             a remap that ends before it is decided where queues go on
==============================  ================================================================
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from rmqha.testing.real import wire
from tests.interop.client_peer import ClientPeer

SOURCE = Path(__file__).parent / "java" / "StaticPeer.java"


class Passed(NamedTuple):
    """One message as a producer or a consumer was told of it."""

    queue_id: int
    queue_offset: int
    broker_name: str
    body: str


class Ends(NamedTuple):
    """The first and the next offset of a queue, asked singly and read from the topic's table."""

    min_offset: int
    max_offset: int
    table_min_offset: int
    table_max_offset: int


class Consumed(NamedTuple):
    """How far a group is in a queue; ``last_ms`` is when what it consumed last was stored."""

    broker_name: str
    max_offset: int
    consumed: int
    last_ms: int


class Segment(NamedTuple):
    """One part of a logical queue."""

    gen: int
    broker_name: str
    queue_id: int
    logic_offset: int


class Host(NamedTuple):
    """What one broker set knows of a topic."""

    read_queues: int
    write_queues: int
    epoch: int
    total_queues: int
    hosted: dict[int, list[Segment]]


class StaticPeer(ClientPeer):
    """The JVM; its clients use one name server."""

    def __init__(self, home: Path) -> None:
        super().__init__(home, name="static", source=SOURCE)

    def passed(self, line: str) -> list[Passed]:
        """The messages that ``send`` or ``got`` tells of."""
        found = []
        for text in filter(None, self.ask(line).split(",")):
            queue_id, offset, name, body = text.split(":", 3)
            found.append(Passed(int(queue_id), int(offset), name, body))
        return found

    def leaders(self, topic: str) -> dict[int, str]:
        """The broker set of each logical queue, as Java's clients take it from the route."""
        pairs = [one.split(":") for one in filter(None, self.ask(f"leaders {topic}").split(","))]
        return {int(queue): name for queue, name in pairs}

    def ends(self, topic: str) -> dict[int, Ends]:
        """Where each logical queue begins and ends."""
        rows = [[int(word) for word in one.split(":")] for one in self._rows(f"ends {topic}")]
        return {queue: Ends(*rest) for queue, *rest in rows}

    def group(self, group: str, topic: str) -> dict[int, Consumed]:
        """How far a group is in each logical queue."""
        found = {}
        for row in self._rows(f"group {group} {topic}"):
            queue, name, *rest = row.split(":")
            found[int(queue)] = Consumed(name, *map(int, rest))
        return found

    def _rows(self, line: str) -> list[str]:
        return list(filter(None, self.ask(line).split(",")))

    def hosts(self, topic: str, queues: int) -> dict[str, Host]:
        """What each broker set knows; Java's checks of it must pass and find so many queues."""
        count, _, text = self.ask(f"maps {topic}").partition(" ")
        assert int(count) == queues, text
        return _hosts(text)

    def unchecked_hosts(self, topic: str) -> dict[str, Host]:
        """The same in the midst of a change, when it need not be right."""
        return _hosts(self.ask(f"raw {topic}"))


def _hosts(text: str) -> dict[str, Host]:
    return {name: _host(one) for name, one in wire.loads(text.encode()).items()}


def written(text: str) -> dict[str, Host]:
    """What the file of a plan, which mqadmin names last, has for each broker set."""
    plan = Path(re.findall(r"(/\S+\.after)", text)[-1])
    configs = wire.loads(plan.read_bytes())["brokerConfigMap"]
    return {name: _host(one) for name, one in configs.items()}


def _host(config: Any) -> Host:
    detail = config["mappingDetail"]
    hosted = {
        int(queue): [
            Segment(one["gen"], one["bname"], one["queueId"], one["logicOffset"]) for one in items
        ]
        for queue, items in detail["hostedQueues"].items()
    }
    return Host(
        config["readQueueNums"], config["writeQueueNums"], detail["epoch"], detail["totalQueues"],
        hosted,
    )  # fmt: skip
