"""Where a delivery of a static topic goes: the rules, without a broker."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.broker.deferred.delays import DelayRules, place
from rmqha.broker.deferred.logical_queues import (
    AGAIN_MS,
    Elsewhere,
    delivered_to,
    led_elsewhere,
    redirected,
    send_fields,
)
from rmqha.broker.send.request import SendRequest, parse_send
from rmqha.statictopic.mapping import LogicQueueMappingItem, Segments
from rmqha.store import properties as props
from rmqha.store.record import Message
from tests.broker.replicas import NAME, TOPIC
from tests.broker.test_deferred_static_topics import ELSEWHERE, led, mapping, moved

RULES = DelayRules((1_000, 90_000, 60_000), timers=True, precision_ms=1_000, delay_max_ms=100_000)


@pytest.mark.parametrize(
    ("levels_ms", "least_ms", "level"),
    [((1, 90, 60), 60, 2), ((1, 5, 3), 60, 2), ((100,), 60, 1), ((), 60, 1)],
)
def test_level_when_one_is_long_enough_then_the_first_of_these_and_else_the_longest(
    levels_ms: tuple[int, ...], least_ms: int, level: int
) -> None:
    """Levels need not be in order of their lengths."""
    assert level == RULES._replace(levels_ms=levels_ms).level_of(least_ms)


SEGMENTS = st.sampled_from([led, moved])


@given(st.lists(SEGMENTS, max_size=5), st.sets(st.integers(0, 4)), st.integers(0, 9))
def test_queue_when_one_is_chosen_then_it_is_a_decided_leader_s(
    kinds: list[Callable[[int], Segments]], undecided: set[int], queue_id: int
) -> None:
    """Its own if that is one; None only where there is none."""
    queues = [
        led(one, decided=one not in undecided) if kind is led else moved(one)
        for one, kind in enumerate(kinds)
    ]
    good = {one for one, kind in enumerate(kinds) if kind is led and one not in undecided}
    chosen = delivered_to(mapping(*queues), queue_id)
    if not good:
        assert chosen is None
    elif queue_id in good:
        assert queue_id == chosen
    else:
        assert chosen in good


def test_message_when_it_waits_again_then_it_keeps_what_it_is_and_where_it_belongs() -> None:
    """However often: the level is that of the new wait, and the rest is as it was."""
    host = bytes(8)
    sent = Message(TOPIC, 1, b"x", props.encode({"KEYS": "k", "DELAY": "1"}), 5, host, host)
    placed = place(sent, RULES, 0)
    assert isinstance(placed, Message)
    due = sent._replace(properties=placed.properties)
    for _ in range(3):
        again = redirected(due, mapping(moved(1)), RULES, AGAIN_MS)
        assert ("SCHEDULE_TOPIC_XXXX", 1) == (again.topic, again.queue_id)
        values = props.decode(again.properties)
        assert {
            "KEYS": "k", "DELAY": "2", "REAL_TOPIC": TOPIC, "REAL_QID": "1",
        } == values  # fmt: skip
        due = due._replace(properties=again.properties)
    last = redirected(due, mapping(led(1)), RULES, AGAIN_MS)
    assert (TOPIC, 1) == (last.topic, last.queue_id)


@pytest.mark.parametrize(
    ("queue_id", "avoided", "place"),
    [
        (0, set(), Elsewhere(ELSEWHERE, 0)),
        (3, set(), Elsewhere("third-set", 2)),
        (3, {"third-set"}, Elsewhere(ELSEWHERE, 0)),
        (8, set(), Elsewhere(ELSEWHERE, 0)),
        (9, set(), Elsewhere("third-set", 2)),
        (0, {ELSEWHERE, "third-set"}, None),
    ],
)
def test_queue_when_others_lead_all_then_the_message_s_own_one_and_else_any_that_can_be_reached(
    queue_id: int, avoided: set[str], place: Elsewhere | None
) -> None:
    """A queue that this set leads is none of them, decided or not."""
    third = (
        LogicQueueMappingItem(0, 3, NAME, 0), LogicQueueMappingItem(1, 1, "third-set", 10_000),
    )  # fmt: skip
    assert place == led_elsewhere(
        mapping(moved(0), led(7, decided=False), third), queue_id, avoided
    )


def test_request_when_a_message_is_sent_to_another_set_then_it_waits_for_nothing_there() -> None:
    """It was delayed and decided here; what consumers go by stays."""
    host = bytes(8)
    values = {
        "KEYS": "k", "UNIQ_KEY": "U", "PGROUP": "PG", "DELAY": "2", "REAL_TOPIC": TOPIC,
        "REAL_QID": "1", "TIMER_DELIVER_MS": "9", "TIMER_OUT_MS": "8", "TRAN_MSG": "true",
    }  # fmt: skip
    message = Message(TOPIC, 1, b"x", props.encode(values), 5, host, host, 0x109, 3, 2)
    fields = send_fields(message, Elsewhere(ELSEWHERE, 4))
    kept = {"KEYS": "k", "UNIQ_KEY": "U", "PGROUP": "PG"}
    assert kept == props.decode(fields["properties"].encode())
    parsed = parse_send(10, fields)
    assert isinstance(parsed, SendRequest)
    assert (TOPIC, 4, 0x101, 3, 2, 5) == (
        parsed.topic, parsed.queue_id, parsed.sys_flag, parsed.flag, parsed.reconsume_times,
        parsed.born_timestamp,
    )  # fmt: skip
    assert ELSEWHERE == fields["bname"]
