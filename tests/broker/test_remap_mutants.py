"""Faults put into static topics on purpose: the story of remaps must find each, for its own reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from rmqha.broker.pull.aio import logical_pulls
from rmqha.broker.send.aio import send_requests
from rmqha.broker.topics.aio.static_requests import StaticTopicProcessor
from rmqha.broker.topics.metadata import Change
from rmqha.statictopic import steps
from tests.broker.test_remaps_in_simulator import tell

Patch = Callable[[pytest.MonkeyPatch], None]


def takes_undecided(patch: pytest.MonkeyPatch) -> None:
    """A new leader takes messages before it is decided where its queue begins."""
    choose = send_requests.choose_logical

    def chosen(*args: Any) -> Any:
        queue = choose(*args)
        leader = getattr(queue, "leader", None)
        if leader is None or leader.is_decided:
            return queue
        return queue._replace(leader=replace(leader, logic_offset=0))

    patch.setattr(send_requests, "choose_logical", chosen)


def skips_the_middle(patch: pytest.MonkeyPatch) -> None:
    """A reader goes on at the newest segment, whichever one it has read."""

    def newest(segments: Any, item: Any) -> Any:
        last = segments[-1]
        return last if last.gen > item.gen and last.is_decided else None

    patch.setattr(logical_pulls, "next_decided", newest)


def forgets_mappings(patch: pytest.MonkeyPatch) -> None:
    """Records say nothing of mappings, so only the master has them."""
    encode = Change.encode
    patch.setattr(Change, "encode", lambda change: encode(replace(change, mappings=())))


def leaves_no_room(patch: pytest.MonkeyPatch) -> None:
    """The next segment begins where the old one seems to end, and nobody waits for late messages."""

    async def at_once(_: StaticTopicProcessor) -> None:
        """Answer without looking."""

    patch.setattr(StaticTopicProcessor, "_in_queues_and_told", at_once)
    patch.setattr(steps, "block_above", lambda end: end)


MUTANTS: dict[str, tuple[Patch, int, str, str]] = {
    "takes undecided": (takes_undecided, 1, "nothing", r"\d+ at \d+"),
    "skips the middle": (skips_the_middle, 1, "nothing", r"queue \d: \["),
    "forgets mappings": (forgets_mappings, 3, "old master", "is led by|no answer"),
    "leaves no room": (leaves_no_room, 1, "nothing", "queue"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_fault_when_put_in_then_the_story_finds_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A story that passes with one of these proves nothing."""
    change, at_call, fault, words = MUTANTS[name]
    change(monkeypatch)
    with pytest.raises(AssertionError, match=words):
        tell(at_call, at_call, fault)


@pytest.mark.slow
def test_room_when_there_is_none_between_segments_then_waiting_is_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Our order of steps needs no slack; Java's needs its 5,000 to 10,000 offsets."""
    monkeypatch.setattr(steps, "block_above", lambda end: end)
    assert tell(1, 1, "nothing")["acknowledged"] > 200
