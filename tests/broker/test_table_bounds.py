"""Tables of topics and groups fit into a frame, however strangers fill them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.broker.common.aio.config_file import PAUSE_MS_MAX, pause_after
from rmqha.broker.common.versioned_table import COUNT_MAX
from rmqha.broker.naming.messages import registration_body
from rmqha.broker.topics.group_table import GroupConfig, GroupTable
from rmqha.broker.topics.topic_table import TopicConfig, TopicTable
from rmqha.remoting import fastjson
from rmqha.remoting.settings import FRAME_BYTES_MAX

MARGIN = 1 << 20
LONG = 255


@pytest.mark.costly
@pytest.mark.few
@pytest.mark.parametrize("length", [20, LONG])
def test_topics_when_a_stranger_makes_them_then_they_can_still_be_registered(length: int) -> None:
    """60,000 groups in 12 heartbeats made 60,000 retry topics: no name server took them any more."""
    table = TopicTable()
    made = 0
    while table.put(TopicConfig(f"{made:0{length}d}", 65_536, 65_536), 0):
        made += 1
    assert made > 10_000
    assert len(registration_body(table, 0, 6)) < FRAME_BYTES_MAX - MARGIN
    assert len(fastjson.dumps(table.members())) < FRAME_BYTES_MAX - MARGIN
    # What is there can be changed and taken away, and then there is room again.
    assert table.put(TopicConfig(f"{0:0{length}d}", 1, 1), 0)
    assert table.delete(f"{1:0{length}d}", 0)
    assert table.put(TopicConfig(f"{1:0{length}d}", 1, 1), 0)
    assert made <= COUNT_MAX


@pytest.mark.costly
def test_groups_when_a_stranger_makes_them_then_they_can_still_be_copied() -> None:
    """201 of a slave."""
    table = GroupTable()
    made = 0
    while table.put(GroupConfig(f"{made:0{LONG}d}", attributes={"a": "b" * 50}), 0):
        made += 1
    assert made > 5_000
    assert len(fastjson.dumps(table.members())) < FRAME_BYTES_MAX - MARGIN
    assert table.delete(f"{1:0{LONG}d}", 0)
    assert table.put(GroupConfig(f"{1:0{LONG}d}"), 0)


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 3)), max_size=30))
def test_members_when_entries_change_then_as_if_made_anew_and_only_those_are(
    steps: list[tuple[str, int]],
) -> None:
    """A table is written after each change: with 26,000 topics that took the loop half its time."""
    table = TopicTable()
    for name, queues in steps:
        before = table.item_members()
        if queues:
            table.put(TopicConfig(name, queues, queues), 0)
        else:
            table.delete(name, 0)
        after = table.item_members()
        assert list(after.items()) == [
            (one, table.items[one].members()) for one in sorted(table.items)
        ]
        assert all(after[one] is before[one] for one in after.keys() & before.keys() - {name})


def test_pause_when_a_table_takes_long_then_ten_times_as_long() -> None:
    """At most a second: name servers and files are told in time."""
    assert [pause_after(took_ms) for took_ms in (0, 5, 5_000)] == [0, 50, PAUSE_MS_MAX]
