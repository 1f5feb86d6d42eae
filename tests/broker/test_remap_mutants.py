"""Faults put into static topics on purpose: the story of remaps must find each, for its own reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from rmqha.broker.pull.aio import logical_pulls
from rmqha.broker.send import request
from rmqha.broker.send.aio import plain_sends, send_requests
from rmqha.broker.topics.metadata_change import Change
from rmqha.statictopic import steps
from tests.broker.remap_story import MOVES
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


def goes_on_taking(patch: pytest.MonkeyPatch) -> None:
    """The old leader takes messages for as long as anybody sends them, and no room is left for them."""

    def still_led(mapping: Any, logical_id: int) -> Any:
        segments = mapping.hosted_queues.get(logical_id, ())
        own = [at for at, one in enumerate(segments) if one.broker_name == mapping.broker_name]
        return segments[: own[-1] + 1] if own else None

    patch.setattr(request, "led_by", still_led)
    patch.setattr(plain_sends, "led_by", still_led)
    patch.setattr(steps, "block_above", lambda end: end + 1)


MUTANTS: dict[str, tuple[Patch, int, str, str]] = {
    "takes undecided": (takes_undecided, 1, "nothing", r"\d+ at \d+"),
    "skips the middle": (skips_the_middle, 1, "nothing", r"queue \d: \["),
    "forgets mappings": (forgets_mappings, 1, "nothing", "is led by"),
    "goes on taking": (goes_on_taking, 1, "nothing", r"\d+ at \d+|offsets go back|queue \d: \["),
}


@pytest.mark.slow
@pytest.mark.turns(3)
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
    monkeypatch.setattr(steps, "block_above", lambda end: end + 1)
    counts = tell(1, 1, "nothing")
    assert counts["acknowledged"] > 200
    assert counts["commands that ended well"] == len(MOVES)
