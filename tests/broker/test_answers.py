"""Long requests: one part of one of them in a turn of the loop, in the order in which they came."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any

import pytest

from rmqha.base.errors import DiskFailed
from rmqha.base.ids import ConnectionId
from rmqha.broker.common.aio import answers
from rmqha.broker.common.aio.answers import LONG_BYTES_MAX, LONG_REQUESTS_MAX, Answers
from rmqha.remoting.command import FLAG_ONEWAY, RemotingCommand
from rmqha.runtime.aio.tasks import Tasks
from rmqha.runtime.logs import Logger


class Peer:
    """A connection that keeps what is sent, and knows whether it is read."""

    def __init__(self, number: int = 1) -> None:
        self.id = ConnectionId(number)
        self.sent: list[tuple[int, int]] = []
        self.waits = False

    def send(self, answer: RemotingCommand) -> None:
        self.sent.append((answer.opaque, answer.code))

    def wait(self, behind: list[RemotingCommand]) -> None:
        assert behind == []
        self.waits = True

    def resume(self) -> None:
        self.waits = False


class Port:
    """Answers, and what was done in each turn of the loop."""

    def __init__(self) -> None:
        log = Logger(node="test")
        self.failed: list[BaseException] = []
        self.tasks = Tasks(log, self.failed.append)
        self.answers = Answers(self.tasks, log)
        self.done: list[str] = []
        self.number = 0

    def ask(
        self, peer: Any, name: str, parts: int, *, error: Exception | None = None, flag: int = 0,
        body: bytes = b"",
    ) -> RemotingCommand | None:  # fmt: skip
        """Take a request of so many parts."""
        self.number += 1
        request = RemotingCommand(41, self.number, flag, body=body)
        return self.answers.finish(self.work(name, parts, error, request), peer, request)

    def work(
        self, name: str, parts: int, error: Exception | None, request: RemotingCommand
    ) -> Generator[None, None, RemotingCommand]:
        """What is done."""
        for part in range(parts):
            if part:
                yield
            self.done.append(name)
        if error is not None:
            raise error
        return request.reply(0)

    async def turns(self, count: int = 99) -> None:
        """Let the loop go round."""
        for _ in range(count):
            await asyncio.sleep(0)
            self.done.append("|")
            if not len(self.answers):
                break
        await asyncio.sleep(0)


async def test_request_when_it_is_short_then_it_is_answered_at_once() -> None:
    """As most are; nobody waits for it."""
    port, peer = Port(), Peer()
    answer = port.ask(peer, "a", 1)
    assert answer is not None
    assert (answer.code, peer.waits, len(port.answers)) == (0, False, 0)


async def test_requests_when_many_are_long_then_a_turn_is_for_one_part_of_one() -> None:
    """60 clients' locks stood between the loop and everybody else: a part of each in every turn."""
    port, peers = Port(), [Peer(number) for number in range(3)]
    for peer, name in zip(peers, "abc", strict=True):
        assert port.ask(peer, name, 3) is None
    assert port.done == ["a", "b", "c"]
    port.done.clear()
    await port.turns()
    assert "".join(port.done).strip("|") == "a|a|b|b|c|c"
    assert [peer.sent for peer in peers] == [[(1, 0)], [(2, 0)], [(3, 0)]]


async def test_request_when_a_long_one_came_before_it_then_it_waits_and_others_do_not() -> None:
    """The shorter word of a client overtook its longer one, and was undone by it."""
    port, peer, other = Port(), Peer(), Peer(2)
    assert port.ask(peer, "a", 3) is None
    assert port.ask(peer, "b", 1) is None
    assert port.ask(other, "c", 1) is not None
    assert port.done == ["a", "c"]
    in_order = port.answers.in_order
    last = RemotingCommand(35, 9)
    assert in_order(lambda _, request: request.reply(5), peer, last) is None  # type: ignore[arg-type]
    at_once = in_order(lambda _, request: request.reply(5), other, last)  # type: ignore[arg-type]
    assert at_once is not None
    assert (peer.waits, other.waits) == (True, False)
    await port.turns()
    assert peer.sent == [(1, 0), (2, 0), (9, 5)]
    assert not peer.waits, "it is read on"
    assert port.ask(peer, "d", 1) is not None


async def test_request_when_the_first_of_two_before_it_is_done_then_it_waits_for_the_other() -> (
    None
):
    """Only the last of what a connection asked sets it free."""
    port, peer = Port(), Peer()
    port.ask(peer, "a", 2)
    port.ask(peer, "b", 9)
    while not peer.sent:
        await port.turns(1)
    assert (len(port.answers), peer.waits) == (1, True)
    assert port.ask(peer, "c", 1) is None
    await port.turns()
    assert [number for number, _ in peer.sent] == [1, 2, 3]
    assert not peer.waits


async def test_request_when_it_fails_in_its_turn_then_it_is_told_and_the_next_goes_on() -> None:
    """Somebody else's locks have nothing to do with it."""
    port, peer, other = Port(), Peer(), Peer(2)
    port.ask(peer, "a", 2, error=ValueError("broken"))
    port.ask(other, "b", 2)
    await port.turns()
    assert (peer.sent, other.sent) == ([(1, 1)], [(2, 0)])
    assert (peer.waits, port.failed) == (False, [])


@pytest.mark.parametrize("error", [None, ValueError("broken")])
async def test_request_when_it_wants_no_answer_then_it_gets_none(error: Exception | None) -> None:
    """The number of the answer may be that of another request by then."""
    port, peer = Port(), Peer()
    port.ask(peer, "a", 2, error=error, flag=FLAG_ONEWAY)
    await port.turns()
    assert peer.sent == []


@pytest.mark.parametrize("bound", ["count", "bytes"])
async def test_requests_when_too_many_wait_then_the_next_asks_again(
    monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    """Each keeps its body, of up to 16 MiB, and what was read of it."""
    assert (LONG_REQUESTS_MAX, LONG_BYTES_MAX) == (1_024, 64 << 20)
    name, most = ("LONG_REQUESTS_MAX", 2) if bound == "count" else ("LONG_BYTES_MAX", 25)
    monkeypatch.setattr(answers, name, most)
    port, peers = Port(), [Peer(number) for number in range(3)]
    body = b"x" * 10
    assert port.ask(peers[0], "a", 2, body=body) is None
    assert port.ask(peers[1], "b", 2, body=body) is None
    refused = port.ask(peers[2], "c", 2, body=body)
    assert refused is not None
    assert (refused.code, peers[2].waits) == (2, False)
    assert port.ask(peers[2], "c", 1, body=body) is not None, "a short one waits for nobody"
    await port.turns()
    assert port.ask(peers[2], "c", 2, body=body) is None
    await port.turns()
    assert peers[2].sent == [(5, 0)]


@pytest.mark.parametrize("steps", [0, 1])
async def test_requests_when_their_broker_ends_then_nothing_is_left_of_them(steps: int) -> None:
    """Before the first turn as well as between two."""
    port, peer, other = Port(), Peer(), Peer(2)
    port.ask(peer, "a", 3)
    port.ask(other, "b", 3)
    for _ in range(steps):
        await asyncio.sleep(0)
    await port.tasks.close()
    await asyncio.sleep(0)
    assert (len(port.answers), port.answers._bytes, dict(port.answers._of)) == (0, 0, {})
    assert (peer.sent, other.sent, peer.waits) == ([], [], False)


async def test_requests_when_the_disk_fails_then_the_broker_is_told() -> None:
    """That is no matter between it and one client; the others are as they were until it ends."""
    port, peer, other = Port(), Peer(), Peer(2)
    port.ask(peer, "a", 2, error=DiskFailed("gone"))
    port.ask(other, "b", 2)
    await port.turns()
    assert [type(error) for error in port.failed] == [DiskFailed]
    assert (len(port.answers), peer.waits, other.waits) == (0, False, False)
    assert (peer.sent, other.sent) == ([], [(2, 0)])
