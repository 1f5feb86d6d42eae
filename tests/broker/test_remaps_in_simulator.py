"""Remaps under load while commands and masters die at every step: nothing lost, twice or reordered."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.broker.remap_story import MOVES, RemapStory

CALLS = range(1, 10)
"""Of one remap; what were to happen before a later one would not."""


def tell(seed: int, at_call: int, fault: str) -> Counter[str]:
    """Three remaps with one kind of fault before one call of each."""
    with RemapStory(seed) as story:
        story.boot_all()
        story.until(story.in_sync, "all in sync")
        story.create()
        story.start_producers()
        story.run_for(300)
        for brokers in MOVES:
            happens = {
                "abandoned": story.abandon,
                "old master": lambda: story.kill_master("broker-a"),
                "new master": lambda: story.kill_master("broker-b"),
                "nothing": lambda: None,
            }[fault]
            story.remap_with(brokers, at_call, happens)
            story.run_for(200)
            story.finish()
            story.run_for(300)
        # No command comes behind these, so what they leave is what the log has.
        for name in story.hosts_of:
            story.kill_master(name)
        story.until(lambda: all(map(story.master_of, story.hosts_of)), "masters")
        story.run_for(300)
        story.stop_producers()
        story.prove()
        return story.counts


@pytest.mark.slow
def test_queues_when_remapped_under_load_then_every_message_is_there_once_and_in_order() -> None:
    """Messages wait, and are passed on."""
    counts = tell(1, 1, "nothing")
    assert counts["commands that ended well"] == len(MOVES)
    assert counts["acknowledged"] > 200


@pytest.mark.slow
def test_producers_when_queues_are_remapped_then_none_is_refused() -> None:
    """While no master dies: messages for an undecided queue wait, others are passed on."""
    with RemapStory(2) as story:
        story.boot_all()
        story.until(story.in_sync, "all in sync")
        story.create()
        story.start_producers()
        for brokers in MOVES:
            story.run_for(200)
            story.remap(brokers)
        story.run_for(200)
        story.stop_producers()
        story.prove()
        assert story.counts["acknowledged"] > 200
        assert story.counts["sends that failed"] == 0


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.turns(3)
@pytest.mark.parametrize("fault", ["abandoned", "old master", "new master"])
def test_queues_when_something_dies_at_any_step_then_no_message_is_lost_or_reordered(
    fault: str,
) -> None:
    """What is left is finished by whatever command comes next."""
    counts: Counter[str] = Counter()
    for at_call in CALLS:
        counts += tell(at_call, at_call, fault)
    assert counts["faults inside a command"] > 15
    assert counts["commands that were cut short" if fault == "abandoned" else "masters killed"] > 15
    assert counts["acknowledged"] > 5_000
