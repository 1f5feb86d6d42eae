"""Messages that the cluster's client sends in one request: how they go, and where they are said to be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from rmqha.remoting.command import RemotingCommand
from rmqha.runtime.aio.clock import SystemClock
from rmqha.runtime.aio.net import TcpNetwork
from rmqha.store.batches import split_client_batch
from rmqha.testing.client import ClusterClient
from rmqha.testing.histories import ClusterHistory
from rmqha.testing.settings import Plan
from rmqha.testing.topics import Queues
from rmqha.testing.workload import Workload
from tests.store.harness import message

BODIES = [b"seven", b"", b"nine" * 100]


class OneMaster(ClusterClient):
    """Nobody but a master that answers what it is told to.

    Attributes:
        asked: code, fields and body of each request.
        answers: to the next ones.
        at_last: called before the last of them.
    """

    def __init__(self, history: ClusterHistory | None = None) -> None:
        super().__init__(Plan((), (), ()), TcpNetwork(), SystemClock(), history)
        self.asked: list[tuple[int, dict[str, str], bytes]] = []
        self.answers: list[RemotingCommand] = []
        self.at_last: Callable[[], None] = lambda: None

    async def master(self) -> str:
        return "m:1"

    async def create_topic(self, address: str, topic: str, queues: int = 4) -> Queues:
        """There is every topic."""
        return Queues(queues, queues)

    async def ask(
        self, address: str, code: int, fields: dict[str, str] | None = None, body: bytes = b"",
        timeout_ms: int = 0,
    ) -> RemotingCommand:  # fmt: skip
        self.asked.append((code, fields or {}, body))
        if len(self.answers) == 1:
            self.at_last()
        return self.answers.pop(0)


def stored(queue: int, offset: int, count: int) -> RemotingCommand:
    """A master's answer to messages that it took."""
    ids = ",".join(f"id{number}" for number in range(count))
    fields: dict[str, Any] = {"queueId": str(queue), "queueOffset": str(offset), "msgId": ids}
    return RemotingCommand(0, ext_fields=fields)


async def test_several_when_sent_then_one_request_and_places_one_behind_the_other() -> None:
    client = OneMaster()
    client.answers = [stored(2, 40, 3)]
    acked = await client.send_together(7, BODIES, "t", 1)
    ((code, fields, body),) = client.asked
    assert (code, fields["b"], fields["m"], fields["e"]) == (320, "t", "true", "2")
    found = split_client_batch(message(0, body=body), messages_max=3)
    assert [one.body for one in found] == BODIES
    assert [b"KEYS\x01%d\x02" % n in one.properties for n, one in enumerate(found, 7)] == [True] * 3
    places = [(one.body, one.queue_id, one.queue_offset, one.message_id) for one in acked]
    assert places == [
        (BODIES[0], 2, 40, "id0"), (BODIES[1], 2, 41, "id1"), (BODIES[2], 2, 42, "id2"),
    ]  # fmt: skip


async def test_one_when_sent_then_as_a_message_that_goes_alone() -> None:
    client = OneMaster()
    client.answers = [stored(3, 5, 1)]
    acked = await client.send_once(7, b"seven", "t", 1)
    ((code, fields, body),) = client.asked
    assert (code, fields["m"], fields["e"], body) == (310, "false", "3", b"seven")
    assert acked is not None
    assert (acked.queue_id, acked.queue_offset, acked.message_id) == (3, 5, "id0")


async def test_several_when_refused_then_none_is_acknowledged_and_all_are_told_to_have_failed(
    tmp_path: Path,
) -> None:
    client = OneMaster(ClusterHistory(tmp_path / "history", "test"))
    client.answers = [RemotingCommand(14, remark="busy"), stored(0, 9, 2)]
    assert await client.send_together(7, BODIES[:2], "t", 1) == []
    assert "busy" in client.last_refusal
    assert len(await client.send_together(7, BODIES[:2], "t", 2)) == 2
    await client.close()
    lines = [msgspec.json.decode(one) for one in (tmp_path / "history").read_bytes().splitlines()]
    told = [(one["op"], one["key"], one["attempt"]) for one in lines if "attempt" in one]
    expected = []
    for attempt, end in ((1, "fail"), (2, "ack")):
        expected += [("send", key, attempt) for key in "78"] + [(end, key, attempt) for key in "78"]
    assert told == expected


async def test_workload_when_several_go_together_then_the_ledger_knows_each() -> None:
    client = OneMaster()
    client.answers = [RemotingCommand(14, remark="busy"), stored(0, 9, 3), stored(1, 0, 3)]
    workload = Workload(client, "t", 0, 0, batch=3)
    client.at_last = lambda: setattr(workload, "_is_ending", True)
    await workload._send()
    assert (workload.ledger.acknowledged, workload.ledger.refused) == (6, 1)
    assert [pending for pending in workload.ledger._pending if pending] == [
        {9: 0, 10: 1, 11: 2}, {0: 3, 1: 4, 2: 5},
    ]  # fmt: skip
