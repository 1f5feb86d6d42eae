"""What cleaning asks other sets for, and what it does where they do not say it."""

from __future__ import annotations

from typing import Any

import pytest

from rmqha.broker.logical.aio import cleaning
from rmqha.broker.logical.aio.cleaning import COMMIT_MS, QUEUES_A_COMMIT
from rmqha.broker.naming.aio.other_sets import SetUnreachable
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.statictopic.mapping import LogicQueueMappingItem
from tests.broker.broker_sets import GROUP, STATIC, SetsCluster, segment
from tests.broker.test_commits_that_go_back import note_questions
from tests.broker.test_mapping_cleaning import (
    A0,
    B1,
    C2,
    NAMES,
    PLACE,
    commit,
    make_group,
    remap,
    segments_at,
    stored,
    three,
)

__all__ = ["three"]  # a fixture

MOVES = segment(0, 0, "broker-a", 0), segment(1, 1, "broker-c", 10_000)
"""The history of a second queue, which no group has ever read."""


def queues_at(cluster: SetsCluster, name: str) -> dict[int, tuple[LogicQueueMappingItem, ...]]:
    """All histories as a set has them."""
    master = cluster.master_of(name)
    assert master is not None
    return dict(master.mappings.table.items[STATIC].hosted_queues)


def tell_all(cluster: SetsCluster, queues: dict[int, list[LogicQueueMappingItem]]) -> None:
    """Every set, the leader first."""
    total = max(queues) + 1
    for name in ("broker-c", "broker-b", "broker-a"):
        cluster.tell(name, 2_000, queues, total=total, physical=max(3, total + 2))


@pytest.mark.costly
def test_queues_when_the_next_set_of_one_is_away_then_the_others_are_cleaned(
    three: SetsCluster,
) -> None:
    """A group cannot be given its position there; it stays where it is."""
    make_group(three, *NAMES.values())
    commit(three, "broker-a", 0)
    tell_all(three, {0: [A0, B1, C2], 1: [*MOVES]})
    assert three.put("broker-c", 1, 0).code == 0
    three.net.cut(three.hosts_of["broker-c"][0], three.hosts_of["broker-b"][0])
    three.clean("broker-c")
    assert queues_at(three, "broker-c") == {0: (A0, B1, C2), 1: MOVES[1:]}


@pytest.mark.costly
def test_queues_when_a_set_refuses_to_say_of_one_then_the_others_are_cleaned(
    three: SetsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one does that is not of this topic any more."""
    tell_all(three, {0: [A0, C2], 1: [*MOVES]})
    leader = three.master_of("broker-c")
    assert leader is not None
    access, ask = leader.logical.segments, leader.logical.segments.ask

    async def refused(item: Any, code: int, topic: str, **fields: Any) -> RemotingCommand:
        if (code, item) == (RequestCode.GET_MIN_OFFSET, A0):
            return RemotingCommand(ResponseCode.SYSTEM_ERROR, remark="not now")
        return await ask(item, code, topic, **fields)

    monkeypatch.setattr(access, "ask", refused)
    three.clean("broker-c")
    assert queues_at(three, "broker-c") == {0: (A0, C2), 1: MOVES[1:]}


@pytest.mark.costly
def test_list_when_a_group_is_past_the_next_segment_then_it_goes_all_the_same(
    three: SetsCluster,
) -> None:
    """The next set does not know the group, and need not: it never reads there again."""
    make_group(three, "broker-a", "broker-c")
    commit(three, "broker-a", 0)
    remap(three, A0, B1)
    remap(three, A0, B1, C2)
    assert three.put("broker-c", 1, 0).code == 0
    for name in "cabcab":
        three.clean(NAMES[name])
        assert stored(three, "broker-c") in (0, 20_000)
    assert stored(three, "broker-c") == 20_000
    assert segments_at(three, "broker-c") == (C2,)
    assert segments_at(three, "broker-a") is None


@pytest.mark.costly
def test_segment_when_its_group_is_past_the_next_one_then_it_goes_all_the_same(
    three: SetsCluster,
) -> None:
    """The next segment has messages, and stays."""
    make_group(three, "broker-a", "broker-c")
    commit(three, "broker-a", 0)
    remap(three, A0, B1)
    assert three.put("broker-b", 1, 0).code == 0
    remap(three, A0, B1, C2)
    assert three.put("broker-c", 1, 0).code == 0
    commit(three, "broker-c", 20_001)
    three.clean("broker-c")
    assert segments_at(three, "broker-c") == (B1, C2)
    assert stored(three, "broker-c") == 20_001


@pytest.mark.costly
def test_group_when_it_goes_on_while_it_is_moved_then_it_is_where_it_went(
    three: SetsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stores something at the next set between the question and the answer that is acted on."""
    make_group(three, *NAMES.values())
    commit(three, "broker-a", 0)
    remap(three, A0, B1)
    assert three.put("broker-b", 1, 0).code == 0
    remap(three, A0, B1, C2)
    leader = three.master_of("broker-c")
    assert leader is not None
    access, ask = leader.logical.segments, leader.logical.segments.ask

    async def late(item: Any, code: int, topic: str, **fields: Any) -> RemotingCommand:
        if code == RequestCode.UPDATE_CONSUMER_OFFSET:
            await ask(item, code, topic, consumerGroup=GROUP, commitOffset=4)
        return await ask(item, code, topic, **fields)

    monkeypatch.setattr(access, "ask", late)
    three.clean("broker-c")
    assert segments_at(three, "broker-c") == (B1, C2)
    assert stored(three, "broker-c") == 10_004


@pytest.mark.costly
def test_group_when_it_is_online_and_has_stored_nothing_then_it_is_given_no_position(
    three: SetsCluster,
) -> None:
    """It begins where it wants to, the end perhaps; the sets name it as a group all the same."""
    make_group(three, *NAMES.values())
    remap(three, A0, B1)
    old = three.master_of("broker-a")
    assert old is not None
    old.consumers.groups_of_topic = lambda _: [GROUP]  # type: ignore[method-assign]
    assert three.put("broker-b", 1, 0).code == 0
    three.clean("broker-b")
    assert segments_at(three, "broker-b") == (B1,)
    # The queue has moved, so that it is not taken for a fresh one.
    remap(three, A0, B1, C2)
    leader = three.master_of("broker-b")
    assert leader is not None
    assert leader.offsets.table.groups_of(STATIC) == []


@pytest.mark.costly
@pytest.mark.parametrize(("count", "is_slow"), [(QUEUES_A_COMMIT + 1, False), (2, True)])
def test_groups_when_many_queues_are_cleaned_then_a_set_is_asked_once_who_they_are(
    three: SetsCluster, monkeypatch: pytest.MonkeyPatch, count: int, is_slow: bool
) -> None:
    """The answer names all groups of the topic, and may have thousands."""
    monkeypatch.setattr(cleaning, "COMMIT_MS", 0 if is_slow else COMMIT_MS)
    queues = {
        number: [segment(0, number + 2, "broker-a", 0), segment(1, number, "broker-c", 10_000)]
        for number in range(count)
    }
    tell_all(three, queues)
    leader = three.master_of("broker-c")
    assert leader is not None
    changes: list[int] = []
    commit_change = leader.metadata.commit

    def noting(change: Any) -> Any:
        (mapping,) = change.mappings
        changes.append(sum(len(one) for one in mapping.hosted_queues.values()))
        return commit_change(change)

    monkeypatch.setattr(leader.metadata, "commit", noting)
    asked = note_questions(three, "broker-c", monkeypatch)
    three.clean("broker-c")
    assert asked.count(("broker-a", RequestCode.QUERY_TOPIC_CONSUME_BY_WHO)) == 1
    # What has been done is kept as it is done: another change does not throw all of it away.
    assert changes == [count + 1, count]
    assert leader.logical.cleaning.dropped == count


@pytest.mark.costly
def test_sets_when_one_is_away_then_it_is_asked_for_one_of_its_segments_alone(
    three: SetsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each question takes seconds there."""
    others = {
        number: [segment(0, number + 2, "broker-a", 0), segment(1, number, "broker-c", 10_000)]
        for number in range(1, 4)
    }
    tell_all(three, {0: [A0, B1, C2], **others})
    asked = note_questions(three, "broker-c", monkeypatch)
    three.net.cut(three.hosts_of["broker-c"][0], three.hosts_of["broker-a"][0])
    three.clean("broker-c")
    assert [one for one, _ in asked].count("broker-a") == 1


@pytest.mark.costly
def test_queues_when_their_next_set_is_away_then_it_is_asked_once_for_all_of_them(
    three: SetsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each question takes seconds there, and none of the groups can be moved."""
    queues = {
        number: [
            segment(0, number + 2, "broker-a", 0), segment(1, number, "broker-b", 10_000),
            segment(2, number, "broker-c", 20_000),
        ]
        for number in range(2)
    }  # fmt: skip
    tell_all(three, queues)
    leader, old = three.master_of("broker-c"), three.master_of("broker-a")
    assert leader is not None
    assert old is not None
    for number in range(2):
        assert old.offsets.table.commit(GROUP, STATIC, number + 2, 0, 0)
    ask, asked = leader.logical.segments.ask, list[int]()

    async def away(item: Any, code: int, topic: str, **fields: Any) -> RemotingCommand:
        if (code, item.broker_name) == (RequestCode.QUERY_CONSUMER_OFFSET, "broker-b"):
            asked.append(item.queue_id)
            raise SetUnreachable(item.broker_name)
        if (code, item.broker_name) == (RequestCode.GET_MAX_OFFSET, "broker-b"):
            return RemotingCommand(0, ext_fields={"offset": "1"})
        return await ask(item, code, topic, **fields)

    monkeypatch.setattr(leader.logical.segments, "ask", away)
    three.clean("broker-c")
    assert asked == [0]
    assert queues_at(three, "broker-c") == {key: tuple(one) for key, one in queues.items()}


@pytest.mark.costly
def test_groups_when_one_cannot_be_moved_then_nothing_more_is_asked_for_its_queue(
    three: SetsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue stays as it is, whatever the others say."""
    make_group(three, "broker-a", "broker-b")
    commit(three, "broker-a", 0)
    remap(three, A0, B1)
    remap(three, A0, B1, C2)
    leader = three.master_of("broker-c")
    assert leader is not None
    monkeypatch.setattr(leader.offsets.table, "commit", lambda *_: False)
    asked = note_questions(three, "broker-c", monkeypatch)
    three.clean("broker-c")
    assert segments_at(three, "broker-c") == (A0, B1, C2)
    assert ("broker-b", RequestCode.QUERY_TOPIC_CONSUME_BY_WHO) not in asked


@pytest.mark.costly
def test_segment_when_a_slave_is_asked_about_it_then_it_refuses() -> None:
    """It may lack messages and positions; the name server's word of its set may be old."""
    with SetsCluster(seed=34, sets=1, replicas=2) as one:
        one.boot_all()
        one.until(one.in_sync, "all in sync")
        one.tell("broker-a", 1_000, {0: [A0]}, total=1, physical=3)
        master = one.master_of("broker-a")
        assert master is not None
        make_group(one, "broker-a")
        (slave,) = [other for other in one.replicas.values() if other is not master]
        one.until(lambda: slave.topics.table.get(STATIC), "the slave's topic")
        one.until(lambda: slave.groups.find(GROUP, may_write=False), "the slave's group")
        fields = {**PLACE, "queueId": "2", "lo": "false", "commitOffset": "0"}
        asked_by_us = {**fields, "rmqhaMaster": "true"}
        for code in (15, 14, 30, 31, 300):
            assert one.ask(slave.config.address, code, asked_by_us).code == 14
            assert one.ask(slave.config.address, code, fields).code == 0
            assert one.ask(master.config.address, code, asked_by_us).code == 0


@pytest.mark.costly
def test_segment_when_its_set_has_another_master_than_was_thought_then_that_one_is_asked() -> None:
    """A slave without the newest messages had the leader drop a segment that has some."""
    with SetsCluster(seed=34, replicas=2) as two:
        two.boot_all()
        two.until(two.in_sync, "all in sync")
        for name in ("broker-b", "broker-a"):
            two.tell(name, 1_000, {0: [A0, B1]}, total=1, physical=3)
        master, leader = two.master_of("broker-a"), two.master_of("broker-b")
        assert master is not None
        assert leader is not None
        (slave,) = [
            other for other in two.replicas.values()
            if other is not master and other.config.broker_name == "broker-a"
        ]  # fmt: skip
        known = leader.logical._sets._known
        known["broker-a"] = slave.config.address, leader.clock.now_ms() + 30_000
        two.clean("broker-b")
        assert known["broker-a"][0] == master.config.address


@pytest.mark.costly
def test_queues_when_many_are_cleaned_then_others_have_a_turn_after_each(
    three: SetsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where all positions are here nothing is waited for, and a master that is silent loses its lease."""
    queues = {
        number: [segment(0, number + 2, "broker-a", 0), segment(1, number, "broker-c", 10_000)]
        for number in range(3)
    }
    tell_all(three, queues)
    leader = three.master_of("broker-c")
    assert leader is not None
    moments: list[int] = []

    async def moved(*_: object) -> bool:
        moments.append(leader.clock.now_ms())
        return True

    monkeypatch.setattr(leader.logical.cleaning, "_is_moved", moved)
    three.clean("broker-c")
    assert len(set(moments)) == 3
