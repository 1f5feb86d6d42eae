"""Remaps while somebody does not reach somebody else, and by Java's rule: what was promised stays."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.broker.partition_story import (
    CALLS_MAX,
    JAVA_RULE,
    LONG_MS,
    PARTITIONS,
    ROLES,
    SHORT_MS,
    WAYS,
    PartitionStory,
)

UNPROBED = {"activeProbeTimeoutMillis": "0"}
ALL = [f"{what}, {way}" for what in PARTITIONS for way in WAYS]


def tell(what: str, at_call: int, lasts_ms: int, **keys: Any) -> Counter[str]:
    """Three remaps, each with another way in which the same hosts do not reach each other."""
    with PartitionStory(at_call, **keys) as story:
        story.play(
            at_call,
            lambda move: story.part(what, WAYS[(move + at_call) % len(WAYS)], move, lasts_ms),
        )
        return story.counts


def tell_all(at_calls: tuple[int, ...], lasts_ms: int, **keys: Any) -> Counter[str]:
    """One story for each pair of hosts and each of these calls."""
    counts: Counter[str] = Counter()
    for at, what in enumerate(PARTITIONS):
        for at_call in at_calls:
            counts += tell(what, 1 + (at_call - 1 + at) % CALLS_MAX, lasts_ms, **keys)
    return counts


def tell_kills(how: str, at_call: int, loser: int, **keys: object) -> Counter[str]:
    """Three remaps with a death: of the old leader (0) or the new one (1) of each."""
    with PartitionStory(at_call, **keys) as story:
        story.play(at_call, lambda move: getattr(story, how)(ROLES[move][loser]))
        return story.counts


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_queues_when_somebody_is_cut_off_at_any_step_then_no_message_is_lost_or_reordered() -> None:
    """For longer than controllers, leases and commands wait."""
    counts = tell_all((1, 4), LONG_MS)
    assert [one for one in ALL if not counts[one]] == []
    assert counts["masters elected"] > 3
    assert counts["commands that were cut short"] > 3
    assert counts["sends that failed"] > 50
    assert counts["acknowledged"] > 10_000


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_java_rule_when_no_master_is_replaced_then_no_message_is_lost_or_reordered() -> None:
    """What a master acknowledges is in its log, and that stays where it is."""
    counts = tell_all((4,), SHORT_MS, **JAVA_RULE)
    assert [one for one in ALL if not counts[one]] == []
    assert counts["masters elected"] == counts["acknowledged and lost"] == 0
    assert counts["acknowledged"] > 10_000


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_java_rule_when_a_master_is_cut_off_then_its_successors_log_decides_what_stays() -> None:
    """What a master acknowledges while it has its lease may be lost, and nothing later."""
    # Controllers that ask a silent master leave it a second, in which too little is lost to be seen.
    counts = tell_all((4,), LONG_MS, controllers=UNPROBED, **JAVA_RULE)
    assert [one for one in ALL if not counts[one]] == []
    assert counts["masters elected"] > 3
    assert counts["acknowledged and lost"] > 0
    assert counts["acknowledged"] > 10_000


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.turns(2)
@pytest.mark.parametrize("loser", [0, 1], ids=["old leader", "new leader"])
def test_java_rule_when_a_master_dies_whose_slaves_have_all_then_nothing_is_lost(
    loser: int,
) -> None:
    """Survivors hold it, the mappings too."""
    counts: Counter[str] = Counter()
    for at_call in range(1, CALLS_MAX + 1):
        counts += tell_kills("kill_when_held", at_call, loser, **JAVA_RULE)
    assert counts["masters killed whose slaves had all"] > 15
    assert counts["masters elected"] > 15
    assert counts["commands that were cut short"] > 5
    assert counts["acknowledged and lost"] == 0
    assert counts["acknowledged"] > 5_000


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.turns(2)
@pytest.mark.parametrize("loser", [0, 1], ids=["old leader", "new leader"])
def test_java_rule_when_a_master_dies_whose_slaves_lag_then_only_what_they_lack_is_lost(
    loser: int,
) -> None:
    """What is lost may be a mapping: the next command puts it right."""
    counts: Counter[str] = Counter()
    for at_call in range(1, CALLS_MAX + 1):
        counts += tell_kills("kill_behind", at_call, loser, **JAVA_RULE)
    assert counts["masters killed whose slaves lagged"] > 15
    assert counts["masters elected"] > 15
    assert counts["acknowledged and lost"] > 50
    assert counts["acknowledged"] > 4_000
