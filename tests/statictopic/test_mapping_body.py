"""Mappings as bodies: read in one go, they are what they are read as one member at a time."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.base.errors import RemoteProtocolError
from rmqha.remoting import fastjson
from rmqha.statictopic import mapping_body
from rmqha.statictopic.mapping import (
    QUEUES_MAX,
    SEGMENTS_MAX,
    LogicQueueMappingItem,
    TopicQueueMappingDetail,
)
from rmqha.statictopic.mapping_body import decode_detail, encode_detail
from tests.statictopic.examples import DETAILS, detail, item

NUMBERS = [-2, -1, 0, QUEUES_MAX, QUEUES_MAX + 1, (1 << 31) - 1, 1 << 31, (1 << 63) - 1, 1 << 63]
STRANGE = st.sampled_from([*NUMBERS, 1.0, True, False, None, "", "1", "b", [], {}, [None], [[{}]]])
KEYS = st.sampled_from(["0", "7", "-0", "+7", "07", "-1", " 1", "1.0", "65535", "65536", "x", ""])


def one_by_one(body: bytes) -> TopicQueueMappingDetail | None:
    """What a body is, looked at one member at a time; None for one that is refused."""
    try:
        return TopicQueueMappingDetail.of(fastjson.loads(body))
    except RemoteProtocolError:
        return None


def in_one_go(body: bytes) -> TopicQueueMappingDetail | None:
    """The same, as brokers read it."""
    try:
        return decode_detail(body)
    except RemoteProtocolError:
        return None


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """A mapping, often with a member that is strange, misses, or is nobody's."""
    members: dict[str, Any] = json.loads(fastjson.dumps(draw(DETAILS).members()))
    queues = members["hostedQueues"]
    for key in draw(st.lists(KEYS, max_size=2)):
        queues[key] = [item(0, "a", 1, 0).members()]
    items = [one for segments in queues.values() for one in segments]
    for _ in range(draw(st.integers(0, 2))):
        place = draw(st.sampled_from([members, queues, *items]))
        name = draw(st.sampled_from([*place, "future"]))
        if name in place and draw(st.booleans()):
            del place[name]
        else:
            place[name] = draw(STRANGE)
        items = [one for one in items if isinstance(one, dict) and one]
    return json.dumps(members).encode()


@pytest.mark.costly
@given(body=bodies())
def test_body_when_read_in_one_go_then_it_is_what_its_members_say(body: bytes) -> None:
    """A broker would take another mapping than the one it was told, or refuse a right one."""
    assert in_one_go(body) == one_by_one(body)


@given(one=DETAILS)
def test_body_when_written_in_one_go_then_it_has_the_same_members(
    one: TopicQueueMappingDetail,
) -> None:
    """Java's brokers read it, by name."""
    body = encode_detail(one)
    assert json.loads(body) == json.loads(fastjson.dumps(one.members()))
    assert decode_detail(body) == one


def test_body_when_as_usual_then_it_is_not_looked_at_member_by_member(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That would take four times as long, while producers wait."""
    one = detail("a", {0: (item(0, "a", 0, 0), item(1, "b", 0)), 10: (item(0, "a", 1, 0),)})
    with monkeypatch.context() as patch:
        patch.setattr(mapping_body.fastjson, "loads", lambda _: pytest.fail("member by member"))
        assert decode_detail(encode_detail(one)) == one
        assert decode_detail(fastjson.dumps(one.members())) == one
    assert decode_detail(fastjson.dumps_bare(one.members())) == one


@pytest.mark.parametrize("key", ["-0", "00", "+0"])
def test_body_when_a_queue_has_two_keys_then_it_is_refused(key: str) -> None:
    """Which of its lists counts would depend on who reads."""
    members = json.loads(fastjson.dumps(detail("a", {0: (item(0, "a", 0, 0),)}).members()))
    members["hostedQueues"][key] = [item(0, "a", 1, 0).members()]
    with pytest.raises(RemoteProtocolError, match="under two keys"):
        decode_detail(json.dumps(members).encode())


@pytest.mark.parametrize("count", [SEGMENTS_MAX, SEGMENTS_MAX + 1])
def test_body_when_a_queue_has_too_many_segments_then_it_is_refused(count: int) -> None:
    """Also where it is read in one go."""
    segments = (LogicQueueMappingItem(0, 0, "a", 0),) * count
    body = encode_detail(detail("a", {0: segments}))
    assert (in_one_go(body) is None) == (count > SEGMENTS_MAX)
