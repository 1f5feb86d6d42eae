"""The rules of pop without a broker: keys, check points, kept offsets, who waits, who gets what."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.base.errors import RemoteProtocolError
from rmqha.base.ids import ConnectionId
from rmqha.broker.common.json_members import MessageQueue
from rmqha.broker.groups.request_modes import (
    POP,
    AssignmentRequest,
    RequestMode,
    RequestModes,
    assign,
    route_queues,
)
from rmqha.broker.pop.check_points import (
    REVIVE_DELAY_MS,
    Acks,
    CheckPoint,
    ReviveQueue,
    read_record,
)
from rmqha.broker.pop.held import HeldPops
from rmqha.broker.pop.offsets import PopOffsets
from rmqha.broker.pop.request import (
    Handed,
    PopKey,
    batch_acks,
    encode_key,
    msg_offset_info,
    parse_key,
    read_batch,
    retry_mark,
    start_offset_info,
)
from rmqha.store import properties as props

FROM_JAVA = (
    b'{"bm":0,"bn":"broker-a","c":"Popped3","d":[0],"it":5000,"n":1,"pt":1795278704615,"q":3,'
    b'"reviveTime":1795278709615,"ro":0,"so":0,"t":"Popped3"}'
)
"""A check point in the log of a Java 5.3.3 broker."""

NUMBER = st.integers(0, 2**62)
SMALL = st.integers(0, 2**31 - 1)
WORD = st.text("ABCabc019_-%|", min_size=1, max_size=20)


def test_check_point_when_written_then_it_is_javas_to_the_byte() -> None:
    """Java replicas of the same set read it."""
    point = CheckPoint.decode(FROM_JAVA, "other")
    assert point == CheckPoint("Popped3", "Popped3", 3, 0, 1795278704615, 5000, "broker-a", (0,))
    assert point.encode() == FROM_JAVA


def test_check_point_when_it_is_of_an_old_release_then_its_offsets_follow_each_other() -> None:
    """Before "d" there was a count only; a name of a broker may miss, too."""
    body = b'{"bm":0,"c":"G","it":5,"n":3,"pt":7,"q":1,"so":40,"t":"T"}'
    assert CheckPoint.decode(body, "own").offsets == (40, 41, 42)
    assert CheckPoint.decode(body, "own").broker_name == "own"


@given(
    key=st.builds(
        PopKey, NUMBER, NUMBER, NUMBER, SMALL, st.sampled_from("012"), WORD, SMALL, NUMBER
    )
)
def test_keys_when_sent_back_then_they_are_understood(key: PopKey) -> None:
    """Clients keep the text and send it with every acknowledgement."""
    assert parse_key(encode_key(key)) == key


@pytest.mark.parametrize("more", [" 4711", " -1", " x y z", " "])
def test_keys_when_a_proxy_adds_parts_then_the_first_eight_count(more: str) -> None:
    """The proxy's receipt handle ends with the offset in the commit log; Java reads on past it."""
    key = PopKey(7, 1795278704615, 60_000, 3, "0", "broker-a", 2, 9)
    assert parse_key(encode_key(key) + more) == key


def test_keys_when_parts_are_missing_then_they_are_refused() -> None:
    """What is used must be there."""
    with pytest.raises(RemoteProtocolError, match="7 parts, there should be 8"):
        parse_key("7 1795278704615 60000 3 0 broker-a 2")


@given(text=st.text(max_size=60))
def test_keys_when_they_are_garbage_then_they_are_refused_as_such(text: str) -> None:
    """Anybody can send 200051."""
    try:
        assert len(encode_key(parse_key(text)).split(" ")) == 8
    except RemoteProtocolError:
        pass


@given(body=st.binary(max_size=80) | st.recursive(
    st.none() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["acks", "b", "so", "t", "c", "r", "q"]), inner, max_size=4),
    max_leaves=8,
).map(lambda value: json.dumps(value).encode()))  # fmt: skip
def test_batches_when_they_are_garbage_then_they_are_refused_as_such(body: bytes) -> None:
    """The body of 200151."""
    try:
        batch_acks(read_batch(body)[1])
    except RemoteProtocolError:
        pass


def test_infos_when_several_queues_are_in_an_answer_then_each_is_named_once() -> None:
    """Java's client refuses a text that names a queue twice."""
    handed = [Handed("%RETRY%G_T", 0, 4, (4,)), Handed("T", 0, 7, (7, 9)), Handed("T", 1, 0, (0,))]
    assert start_offset_info(handed) == "1 0 4;0 0 7;0 1 0"
    assert msg_offset_info(handed) == "1 0 4;0 0 7,9;0 1 0"
    assert retry_mark("%RETRY%G+T") == "2"


# -- reviving --------------------------------------------------------------------------------------


def point(number: int, due_ms: int, count: int) -> CheckPoint:
    """A check point of its own."""
    offsets = tuple(range(number * 100, number * 100 + count))
    return CheckPoint("T", "G", 0, number * 100, due_ms - 1_000, 1_000, "b", offsets)


@pytest.mark.costly
@settings(max_examples=60)
@given(data=st.data())
def test_revive_when_records_are_read_in_any_mix_then_exactly_the_unacknowledged_are_due(
    data: st.DataObject,
) -> None:
    """And the kept offset never passes a check point that is not done."""
    points = [point(n, 1_000 * n, data.draw(st.integers(1, 4))) for n in range(1, 6)]
    queue = ReviveQueue(0, 100)
    acked: dict[int, set[int]] = {}
    records: list[CheckPoint | Acks | None] = []
    for one in points:
        records.append(one)
        offsets = data.draw(st.sets(st.sampled_from(one.offsets)))
        acked[one.start_offset] = offsets
        if offsets:
            records.append(Acks(*one.key, tuple(sorted(offsets))))
        if data.draw(st.booleans()):
            records.append(None)
    starts = {one.start_offset: records.index(one) for one in points}
    for record in records:
        queue.add(record, 1 << 50)
    done: set[int] = set()
    for now_ms in sorted(data.draw(st.lists(st.integers(0, 12_000), max_size=6))):
        for due in queue.due(now_ms, 1_000):
            start = due.point.start_offset
            assert due.point.revive_ms + REVIVE_DELAY_MS < now_ms
            assert set(due.offsets) == set(due.point.offsets) - acked[start]
            if data.draw(st.booleans()):
                queue.done(due)
                done.add(start)
        left = [at for start, at in starts.items() if start not in done]
        assert queue.kept == (min(left) if left else len(records)) - 1
    for due in queue.due(100_000, 1_000):
        queue.done(due)
    assert len(queue) == 0
    assert queue.kept == len(records) - 1


def test_revive_when_very_many_are_due_then_the_oldest_come_first() -> None:
    """After a long outage half a million are: looking through them for each few took seconds."""
    queue = ReviveQueue(0, 100)
    points = [point(n, 1_000 + n, 1) for n in range(9)]
    for one in points:
        queue.add(one, 1 << 50)
    for first in range(0, 9, 3):
        due = queue.due(10**9, 3)
        assert [one.point for one in due] == points[first : first + 3]
        for one in due:
            queue.done(one)
    assert queue.due(10**9, 3) == []


def test_revive_when_it_begins_again_then_old_acknowledgements_are_harmless() -> None:
    """After a failover reading begins at a kept offset: what belongs to earlier ones is passed."""
    one = point(1, 1_000, 2)
    queue = ReviveQueue(7, 10)
    queue.add(Acks(*one.key, one.offsets), 1 << 50)
    assert queue.due(10**9, 9) == []
    assert queue.kept == 7


def test_revive_when_too_many_wait_then_no_more_are_read() -> None:
    """popCheckPointsMax."""
    queue = ReviveQueue(0, 2)
    for number in (1, 2):
        assert not queue.is_full
        queue.add(point(number, 1_000, 1), 1 << 50)
    assert queue.is_full


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"t":1,"c":"G"}', b'{"t":"T"}', b'{"d":["x"]}']
)
@pytest.mark.parametrize("tag", ["ck", "ack", "bAck"])
def test_revive_records_when_malformed_then_they_are_refused_or_harmless(
    tag: str, body: bytes
) -> None:
    """Nothing in the log may stop the service."""
    encoded = props.encode({"TAGS": tag})
    with pytest.raises(RemoteProtocolError):
        read_record(encoded, body, "b")
    assert read_record(props.encode({"TAGS": "other"}), body, "b") is None


# -- kept offsets ----------------------------------------------------------------------------------


@pytest.mark.costly
@settings(max_examples=80)
@given(st.lists(st.tuples(st.integers(0, 2), st.booleans(), st.booleans()), max_size=40))
def test_offsets_when_kept_then_their_check_points_are_safe(
    steps: list[tuple[int, bool, bool]],
) -> None:
    """At no time is an offset kept that passes a check point that could be lost."""
    offsets = PopOffsets()
    kept: dict[Any, int] = {}
    at: dict[Any, int] = {}
    unsafe: list[tuple[Any, int, int]] = []
    end = 0
    for queue, wanted, settles in steps:
        key = ("G", "T", queue)
        at[key] = at.get(key, 0) + 1
        if wanted:
            end += 10
            unsafe.append((key, at[key], end))
        if offsets.moved(key, at[key], end if wanted else 0):
            assert not any(one == key for one, _, _ in unsafe)
            kept[key] = at[key]
        assert max(offsets.at(key) or 0, kept.get(key, 0)) == at[key]
        if settles:
            unsafe = [one for one in unsafe if one[2] > end - 10]
            kept |= dict(offsets.settled(end - 10))
        for one, offset, _ in unsafe:
            assert kept.get(one, 0) < offset
    kept |= dict(offsets.settled(end))
    assert kept == at
    assert len(offsets) == 0


def test_offsets_when_an_operator_resets_then_older_pops_move_nothing() -> None:
    """Otherwise the reset would be undone a moment later."""
    offsets = PopOffsets()
    offsets.moved(("G", "T", 0), 5, 10)
    offsets.moved(("G", "T", 1), 7, 20)
    offsets.reset(("G", "T", 0))
    assert offsets.settled(20) == [(("G", "T", 1), 7)]


# -- held pops -------------------------------------------------------------------------------------


def test_held_pops_when_several_wait_for_one_queue_then_it_is_watched_until_the_last_leaves() -> (
    None
):
    """A queue that nobody waits for costs the dispatcher nothing."""
    held: HeldPops[str] = HeldPops(10, 2)
    one, other = ConnectionId(1), ConnectionId(2)
    queues = [(b"T", 0), (b"T", 1)]
    assert held.hold(one, (b"T@G", -1), "a", 50, queues) == queues
    assert held.hold(other, (b"T@H", -1), "b", 60, [*queues, (b"R", 0)]) == [(b"R", 0)]
    assert [h.asked for h in held.waiting_for([(b"T", 1)])] == ["a", "b"]
    assert [h.asked for h in held.waiting_for([(b"R", 0), (b"X", 0)])] == ["b"]
    assert held.closed(other) == [(b"R", 0)]
    assert held.hold(one, (b"T@G", -1), "c", 40, queues) == []
    assert held.is_full((b"T@G", -1))
    (first, second) = held.waiting_for([(b"T", 0)])
    assert held.drop(first) == []
    assert held.drop(second) == queues
    assert held.next_deadline_ms is None


class Counted(tuple[bytes, int]):
    """A queue that counts how often any of them is compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return super().__eq__(other)

    __hash__ = tuple.__hash__


def test_held_pops_when_the_topic_has_very_many_queues_then_each_is_looked_up_once() -> None:
    """Comparing each with all others took 3 s of the loop for every pop at 16,384 queues."""
    count = 500
    held: HeldPops[str] = HeldPops(10, 10)
    for number in range(3):
        queues = [Counted((b"T", queue)) for queue in range(count)]
        Counted.compared = 0
        found = held.hold(ConnectionId(number), (b"T@G", -1), "a", 50, queues)
        assert len(found) == (0 if number else count)
        assert Counted.compared <= 4 * count
    assert len(held.waiting_for([(b"T", count - 1)])) == 3


def test_held_pops_when_the_topic_has_grown_meanwhile_then_all_wait_for_the_new_queues() -> None:
    """They ask the same question, and are given up together with the last who asks it."""
    held: HeldPops[str] = HeldPops(10, 10)
    one, other, key = ConnectionId(1), ConnectionId(2), (b"T@G", -1)
    assert held.hold(one, key, "a", 50, [(b"T", 0)]) == [(b"T", 0)]
    assert held.hold(other, key, "b", 60, [(b"T", 0), (b"T", 1), (b"T", 1)]) == [(b"T", 1)]
    assert [h.asked for h in held.waiting_for([(b"T", 1)])] == ["a", "b"]
    assert held.closed(one) == []
    assert held.closed(other) == [(b"T", 0), (b"T", 1)]


# -- assignments -----------------------------------------------------------------------------------


@given(
    queues=st.integers(1, 20), clients=st.integers(1, 8),
    strategy=st.sampled_from(["AVG", "AVG_BY_CIRCLE"]),
)  # fmt: skip
def test_assignments_when_clients_pull_then_every_queue_has_one_owner(
    queues: int, clients: int, strategy: str
) -> None:
    """What clients would compute themselves, so that both kinds can share a group."""
    all_queues = [MessageQueue("T", "b", number) for number in range(queues)]
    names = [f"c{number}" for number in range(clients)]
    found = []
    for name in names:
        asked = AssignmentRequest("T", "G", name, strategy, "CLUSTERING")
        part = assign(asked, RequestMode("T", "G"), all_queues, names)
        assert part is not None
        assert abs(len(part) - queues / clients) < 1
        found += part
    assert sorted(found) == sorted(all_queues)


def test_assignments_when_clients_pop_then_everybody_pops_from_every_broker() -> None:
    """Or from its own queues and those of some neighbours."""
    queues = [MessageQueue("T", name, number) for name in "ab" for number in range(2)]
    names = ["c0", "c1", "c2", "c3"]
    asked = AssignmentRequest("T", "G", "c1", "AVG", "CLUSTERING")
    every = [MessageQueue("T", "a", -1), MessageQueue("T", "b", -1)]
    assert assign(asked, RequestMode("T", "G", POP, 0), queues, names) == every
    assert assign(asked, RequestMode("T", "G", POP, 1), queues, names) == queues[1:3]
    assert assign(asked._replace(client_id="x"), RequestMode("T", "G", POP, 1), queues, names) == []
    assert assign(asked, RequestMode("T", "G", POP, 1), queues, []) is None
    assert assign(asked, RequestMode("T", "G", POP, 1), [], names) is None
    broadcast = asked._replace(message_model="BROADCASTING")
    assert assign(broadcast, RequestMode("T", "G"), queues, []) == sorted(queues)


def test_request_modes_when_full_or_malformed_then_what_is_known_stays() -> None:
    """requestModesMax; and the file or a master may hold anything."""
    modes = RequestModes(1, RequestMode("", "", POP, -1))
    assert modes.find("T", "G") == RequestMode("T", "G", POP, -1)
    assert modes.find("%RETRY%G", "G").mode == "PULL"
    assert modes.put(RequestMode("T", "G")) is None
    assert modes.put(RequestMode("T", "G", POP)) is None
    refusal = modes.put(RequestMode("T", "H"))
    assert refusal is not None
    assert refusal.code == 1
    before = modes.members()
    for value in (
        {"messageRequestModeMap": 1},
        {"messageRequestModeMap": {"T": {"G": {"mode": "X"}}}},
    ):
        with pytest.raises(RemoteProtocolError):
            modes.load(value)
    assert modes.members() == before
    assert not modes.load(before)


def test_route_when_a_broker_may_not_be_read_then_its_queues_are_left_out() -> None:
    """Perm 2 is for producers only."""
    route = {"queueDatas": [
        {"brokerName": "a", "perm": 6, "readQueueNums": 2, "writeQueueNums": 9},
        {"brokerName": "b", "perm": 2, "readQueueNums": 2},
    ]}  # fmt: skip
    assert route_queues("T", route) == [MessageQueue("T", "a", 0), MessageQueue("T", "a", 1)]
