"""Logical queues on whole replicas of two broker sets, time and network simulated."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from rmqha.auth.signature import Credentials
from rmqha.broker.logical.aio.cleaning import PERIOD_MS
from rmqha.broker.pull.aio.waiting_pulls import PULLS_A_TURN, WaitingPulls
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.asked_queues import asked_fields
from rmqha.remoting.command import RemotingCommand
from rmqha.statictopic.mapping import LogicQueueMappingItem
from tests.broker.backlogs import turns
from tests.broker.broker_sets import GROUP, STATIC, SetsCluster, segment
from tests.broker.replicas import send_fields

__all__ = ["turns"]


@pytest.fixture
def two() -> Iterator[SetsCluster]:
    """Two sets of one replica; logical queue 0 is led by the first, as its physical queue 2."""
    with SetsCluster(seed=31) as one:
        one.boot_all()
        one.tell("broker-a", 1_000, {0: [segment(0, 2, "broker-a", 0)]}, total=1, physical=3)
        one.tell("broker-b", 1_000, {}, total=1, physical=0)
        yield one


def remap(cluster: SetsCluster, at: int | None = 10_000, epoch: int = 2_000) -> None:
    """Move the queue to the second set, as its physical queue 1; None leaves it undecided."""
    old = segment(0, 2, "broker-a", 0)
    for offset in (-1,) if at is None else (-1, at):
        queues = {0: [old, segment(1, 1, "broker-b", offset)]}
        cluster.tell("broker-b", epoch, queues, total=1, physical=2)
        cluster.tell("broker-a", epoch, queues, total=1, physical=3)


def test_message_when_sent_to_a_logical_queue_then_it_lies_in_the_physical_one(
    two: SetsCluster,
) -> None:
    """Producers see the logical number alone, by the quick way and by the long one."""
    for number, more in enumerate(({}, {"h": "7"}, {"lo": "true"})):
        answer = two.put("broker-a", number, 0, **more)
        assert answer.code == 0, answer.remark
        assert answer.ext_fields is not None
        assert answer.ext_fields["queueId"] == "0"
        assert answer.ext_fields["queueOffset"] == str(number)
    master = two.master_of("broker-a")
    assert master is not None
    assert master.store.reader.max_offset(STATIC, 2) == 3
    assert two.consume("broker-a", 0) == [(n, b"body-%d" % n) for n in range(3)]


def test_message_when_sent_to_a_queue_that_nobody_knows_then_501(two: SetsCluster) -> None:
    """A broker set that was told of no such queue is asked by mistake."""
    assert two.put("broker-b", 1, 0).code == 501
    assert two.put("broker-a", 1, 1).code == 501


def test_queue_when_remapped_then_it_is_read_through_both_segments(two: SetsCluster) -> None:
    """The new leader gives the old segment's messages as well, and skips the gap."""
    for number in range(3):
        assert two.put("broker-a", number, 0).code == 0
    remap(two)
    answer = two.put("broker-b", 3, 0)
    assert answer.code == 0, answer.remark
    assert (answer.ext_fields or {})["queueOffset"] == "10000"
    expected = [(n, b"body-%d" % n) for n in range(3)] + [(10_000, b"body-3")]
    assert two.consume("broker-b", 0) == expected
    # Behind the old segment no answer is spent on the gap.
    behind = two.pull("broker-b", 0, 3)
    assert behind.code == 0
    assert (behind.ext_fields or {})["nextBeginOffset"] == "10001"


def test_queue_when_remapped_then_those_who_do_not_know_are_served_all_the_same(
    two: SetsCluster,
) -> None:
    """A client asks the old leader until its next look at the route; it passes requests on."""
    assert two.put("broker-a", 0, 0).code == 0
    remap(two)
    answer = two.put("broker-a", 1, 0)
    assert answer.code == 0, answer.remark
    assert (answer.ext_fields or {})["queueOffset"] == "10000"
    assert two.consume("broker-a", 0) == [(0, b"body-0"), (10_000, b"body-1")]
    fields = {"topic": STATIC, "queueId": "0"}
    assert (two.ask(two.address("broker-a"), 30, fields).ext_fields or {})["offset"] == "10001"


def test_message_when_its_queue_is_undecided_then_it_waits_for_the_decision(
    two: SetsCluster,
) -> None:
    """Whoever were answered now could stand before what the old leader still writes."""
    remap(two, at=None)
    with_no_decision = two.put("broker-b", 1, 0)
    assert with_no_decision.code == 2
    assert "being decided" in (with_no_decision.remark or "")
    master = two.master_of("broker-b")
    assert master is not None
    fields = send_fields(2, STATIC) | {"e": "0"}
    two.ask_later(two.address("broker-b"), 310, fields, b"late")
    two.run_for(100)
    assert master.store.reader.max_offset(STATIC, 1) == 0
    remap(two)
    assert two.consume("broker-b", 0) == [(10_000, b"late")]


def test_pull_when_held_at_the_old_leader_then_the_remap_wakes_it(two: SetsCluster) -> None:
    """It goes on at the new leader, where it waits on."""
    fields = {
        "consumerGroup": GROUP, "topic": STATIC, "queueId": "0", "queueOffset": "0",
        "maxMsgNums": "32", "sysFlag": "6", "commitOffset": "0", "suspendTimeoutMillis": "9000",
        "subscription": "*", "subVersion": "0", "expressionType": "TAG",
    }  # fmt: skip
    answers = two.collect(two.address("broker-a"), 11, fields)
    two.run_for(200)
    remap(two)
    assert two.put("broker-b", 7, 0).code == 0
    two.until(lambda: answers, "an answer", limit_ms=2_000)
    assert answers[0].code == 0
    assert (answers[0].ext_fields or {})["nextBeginOffset"] == "10001"


COUNT = 2 * PULLS_A_TURN + 1


def hold_many(cluster: SetsCluster) -> tuple[WaitingPulls, list[list[RemotingCommand]]]:
    """So many pulls that wait at the old leader that it needs several turns for them."""
    fields = {
        "topic": STATIC, "queueId": "0", "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "6",
        "commitOffset": "0", "suspendTimeoutMillis": "9000", "subscription": "*", "subVersion": "0",
        "expressionType": "TAG",
    }  # fmt: skip
    address = cluster.address("broker-a")
    answers = [
        cluster.collect(address, 11, fields | {"consumerGroup": f"{GROUP}{number}"})
        for number in range(COUNT)
    ]
    master = cluster.master_of("broker-a")
    assert master is not None
    waiting = master._pull.waiting
    cluster.until(lambda: len(waiting) == COUNT, "the pulls held", limit_ms=2_000)
    return waiting, answers


@pytest.mark.costly
def test_pulls_when_very_many_are_held_and_their_queue_moves_then_few_go_on_in_a_turn(
    two: SetsCluster, turns: list[int]
) -> None:
    """Each goes on at the new leader, a request of its own, and none of them waits twice."""
    waiting, answers = hold_many(two)
    turns.clear()
    remap(two)
    two.until(lambda: not len(waiting), "the pulls gone on", limit_ms=1_000)
    # Once when the queue is told to be moved, once when it is decided where it goes on.
    assert (max(turns), sum(turns)) == (PULLS_A_TURN, 2 * COUNT)
    assert two.put("broker-b", 7, 0).code == 0
    two.until(lambda: all(answers), "all answers", limit_ms=2_000)
    assert {len(one) for one in answers} == {1}
    assert {one[0].code for one in answers} == {0}


@pytest.mark.costly
@pytest.mark.parametrize(("first", "left"), [("the move", COUNT), ("the end", 0)])
def test_pulls_when_their_queue_moves_as_their_time_is_over_then_one_of_both_is_done(
    two: SetsCluster, first: str, left: int
) -> None:
    """Each waits for two turns then: asked again it waits anew, answered it waits no more."""
    waiting, answers = hold_many(two)
    both = [waiting._to_ask_again, waiting._to_answer]
    for backlog in both if first == "the move" else reversed(both):
        two.loop.call_soon(backlog.add, waiting._held.all())
    two.run_for(50)
    assert len(waiting) == left
    assert two.put("broker-a", 7, 0).code == 0
    two.until(lambda: all(answers), "all answers", limit_ms=2_000)
    assert {one[0].code for one in answers} == {19 if first == "the end" else 0}
    assert not len(waiting)


@pytest.mark.costly
@pytest.mark.parametrize("woken_by", ["its time", "a remap", "another's remap"])
def test_pull_when_held_and_served_anew_then_its_offset_is_stored_once(
    two: SetsCluster, woken_by: str
) -> None:
    """The group has stored a later one meanwhile; the pull must not take it back."""
    for number in range(3):
        assert two.put("broker-a", number, 0).code == 0
    fields = {
        "consumerGroup": GROUP, "topic": STATIC, "queueId": "0", "queueOffset": "3",
        "maxMsgNums": "32", "sysFlag": "7", "commitOffset": "1", "suspendTimeoutMillis": "3000",
        "subscription": "*", "subVersion": "0", "expressionType": "TAG",
    }  # fmt: skip
    address = two.address("broker-a")
    answers = two.collect(address, 11, fields)
    two.run_for(200)
    group = {"consumerGroup": GROUP, "topic": STATIC, "queueId": "0"}

    def stored() -> str | None:
        return (two.ask(address, 14, group).ext_fields or {}).get("offset")

    assert stored() == "1"
    assert two.ask(address, 15, group | {"commitOffset": "2"}).code == 0
    if woken_by == "a remap":
        remap(two)
    elif woken_by == "another's remap":
        two.tell("broker-a", 2_000, {0: [segment(0, 2, "broker-a", 0)]}, total=1, physical=3)
    two.until(lambda: answers, "an answer", limit_ms=8_000)
    two.run_for(500)
    assert stored() == "2"


@pytest.mark.costly
@pytest.mark.parametrize("asked", ["broker-a", "broker-b"])
def test_offsets_when_a_queue_has_two_segments_then_they_are_logical(
    two: SetsCluster, asked: str
) -> None:
    """Ends, times and what groups have stored, whichever broker set is asked."""
    for number in range(3):
        assert two.put("broker-a", number, 0).code == 0
    two.run_for(1_000)
    remap(two)
    first_new_ms = two.wall_ms()
    assert two.put("broker-b", 3, 0).code == 0
    queue = {"topic": STATIC, "queueId": "0"}
    address = two.address(asked)
    for name in two.hosts_of:
        # A consumer's heartbeats make its group everywhere; so does a pull.
        assert two.pull(name, 0, 0, lo="false").code in (0, 19)

    def ask(code: int, **fields: str) -> tuple[int, int | None]:
        answer = two.ask(address, code, queue | fields)
        value = (answer.ext_fields or {}).get("offset")
        return answer.code, None if value is None else int(value)

    assert ask(30) == (0, 10_001)
    assert ask(31) == (0, 0)
    assert ask(29, timestamp="0") == (0, 0)
    assert ask(29, timestamp=str(first_new_ms)) == (0, 10_000)
    assert ask(29, timestamp=str(first_new_ms - 1), boundaryType="UPPER") == (0, 2)
    group = {"consumerGroup": GROUP}
    assert ask(14, **group) == (22, None)
    for offset in (2, 10_000, 10_001, 1, 10_001):
        assert ask(15, **group, commitOffset=str(offset))[0] == 0
        assert ask(14, **group) == (0, offset)


def test_offset_when_a_group_is_new_and_the_queue_never_moved_then_as_of_a_physical_queue(
    two: SetsCluster,
) -> None:
    """A consumer that is told "not found" begins at the end: it never got what was sent before it."""
    assert two.put("broker-a", 0, 0).code == 0
    two.run_for(100)
    group = {"consumerGroup": GROUP, "topic": STATIC, "queueId": "0"}
    address = two.address("broker-a")
    answer = two.ask(address, 14, group)
    assert (answer.code, answer.ext_fields) == (0, {"offset": "0"})
    assert two.ask(address, 14, {**group, "setZeroIfNotFound": "false"}).code == 22
    assert two.pull("broker-a", 0, 0).code == 0  # makes the group
    assert two.ask(address, 15, {**group, "commitOffset": "1"}).code == 0
    answer = two.ask(address, 14, group)
    assert (answer.code, answer.ext_fields) == (0, {"offset": "1"})


def test_queue_when_moved_away_and_back_then_all_three_segments_are_read(
    two: SetsCluster,
) -> None:
    """Two of them lie on one broker set, as different physical queues."""
    assert two.put("broker-a", 0, 0).code == 0
    remap(two)
    assert two.put("broker-b", 1, 0).code == 0
    items = [
        segment(0, 2, "broker-a", 0), segment(1, 1, "broker-b", 10_000),
        segment(2, 3, "broker-a", 20_000),
    ]  # fmt: skip
    two.tell("broker-a", 3_000, {0: items}, total=1, physical=4)
    two.tell("broker-b", 3_000, {0: items}, total=1, physical=2)
    assert two.put("broker-a", 2, 0).code == 0
    assert two.consume("broker-a", 0) == [
        (0, b"body-0"), (10_000, b"body-1"), (20_000, b"body-2"),
    ]  # fmt: skip


def test_segment_when_nothing_is_in_it_any_more_then_the_master_drops_it(
    two: SetsCluster,
) -> None:
    """At the hour of deleteWhen; groups that had read all of it go on where the next one begins."""
    fields = {"topic": STATIC, "queueId": "0", "consumerGroup": GROUP}
    assert two.pull("broker-a", 0, 0).code == 19
    assert two.ask(two.address("broker-a"), 15, fields | {"commitOffset": "0"}).code == 0
    remap(two)
    assert two.pull("broker-b", 0, 0, lo="false").code == 19
    leader = two.master_of("broker-b")
    assert leader is not None
    for name in two.hosts_of:
        two.clean(name)
    left = leader.mappings.table.items[STATIC].hosted_queues[0]
    assert left == (segment(1, 1, "broker-b", 10_000),)
    assert leader.logical.cleaning.dropped == 1
    answer = two.ask(two.address("broker-b"), 14, fields)
    assert (answer.ext_fields or {}).get("offset") == "10000"
    # What has gone is not missed by the next remap, and nobody starts before it.
    assert two.put("broker-b", 1, 0).code == 0
    assert two.consume("broker-b", 0) == [(10_000, b"body-1")]


@pytest.mark.costly
def test_segment_when_it_still_has_messages_then_nobody_drops_it(two: SetsCluster) -> None:
    """Neither its own master nor the leader."""
    assert two.put("broker-a", 0, 0).code == 0
    remap(two)
    for name in two.hosts_of:
        master = two.master_of(name)
        assert master is not None
        before = master.mappings.table.items[STATIC]
        two.clean(name)
        assert master.mappings.table.items[STATIC] is before
    assert [body for _, body in two.consume("broker-b", 0)] == [b"body-0"]


def test_mapping_when_it_changes_while_it_is_cleaned_then_the_change_stays(
    two: SetsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A remap that was made meanwhile would be undone, and its queue led by two."""
    remap(two)
    leader = two.master_of("broker-b")
    assert leader is not None
    access, gate, waits = leader.logical.segments, asyncio.Event(), list[str]()
    look = access.min_offset

    async def min_offset(topic: str, item: LogicQueueMappingItem) -> int:
        waits.append(topic)
        await gate.wait()
        return await look(topic, item)

    monkeypatch.setattr(access, "min_offset", min_offset)
    cleaning = two.cleaning("broker-b")
    two.until(lambda: waits, "that it looks")
    items = [
        segment(0, 2, "broker-a", 0), segment(1, 1, "broker-b", 10_000),
        segment(2, 3, "broker-a", 20_000),
    ]  # fmt: skip
    two.tell("broker-a", 3_000, {0: items}, total=1, physical=4)
    two.tell("broker-b", 3_000, {0: items}, total=1, physical=2)
    now = leader.mappings.table.items[STATIC]
    gate.set()
    two.until(cleaning.done, "its end")
    cleaning.result()
    assert leader.mappings.table.items[STATIC] is now
    assert now.epoch == 3_000
    assert leader.logical.cleaning.dropped == 0


@pytest.mark.slow
def test_cleaning_when_its_hour_has_come_then_it_is_done() -> None:
    """No operator has to ask for it."""
    hours = ";".join(f"{hour:02}" for hour in range(24))
    with SetsCluster(seed=33, deleteWhen=hours) as two:
        two.boot_all()
        two.tell("broker-a", 1_000, {0: [segment(0, 2, "broker-a", 0)]}, total=1, physical=3)
        remap(two)
        leader = two.master_of("broker-b")
        assert leader is not None
        two.until(
            lambda: leader.logical.cleaning.dropped, "the next look", limit_ms=PERIOD_MS + 10_000
        )


@pytest.mark.costly
def test_pull_when_a_slave_may_not_read_then_it_asks_nobody_else_either() -> None:
    """slaveReadEnable is about whom consumers ask, not about where a segment is."""
    with SetsCluster(seed=34, replicas=2) as two:
        two.boot_all()
        two.until(two.in_sync, "all in sync")
        two.tell("broker-a", 1_000, {0: [segment(0, 2, "broker-a", 0)]}, total=1, physical=3)
        two.tell("broker-b", 1_000, {}, total=1, physical=0)
        assert two.put("broker-a", 0, 0).code == 0
        remap(two)
        master = two.master_of("broker-b")
        (slave,) = [
            one for one in two.replicas.values()
            if one.config.broker_name == "broker-b" and one is not master
        ]  # fmt: skip
        two.until(lambda: slave.mappings.table.items.get(STATIC), "the slave's mapping")
        fields = {"topic": STATIC, "queueId": "0", "queueOffset": "0", "sysFlag": "4"}
        answer = two.ask(slave.config.address, 11, fields | {"consumerGroup": GROUP})
        assert answer.code == 2
        assert "slaveReadEnable" in (answer.remark or "")
        assert [body for _, body in two.consume("broker-b", 0)] == [b"body-0"]


@pytest.mark.costly
def test_ends_when_a_slave_is_asked_for_some_then_it_refuses_and_tells_all_as_javas_do() -> None:
    """A remap puts the next segment behind them; a slave may lack messages that were acknowledged."""
    with SetsCluster(seed=34, sets=1, replicas=2) as one:
        one.boot_all()
        one.until(one.in_sync, "all in sync")
        one.tell("broker-a", 1_000, {0: [segment(0, 2, "broker-a", 0)]}, total=1, physical=3)
        master = one.master_of("broker-a")
        assert master is not None
        (slave,) = [other for other in one.replicas.values() if other is not master]
        one.until(lambda: slave.topics.table.get(STATIC), "the slave's topic")
        some = {"topic": STATIC, **asked_fields([2])}
        refused = one.ask(slave.config.address, 202, some)
        assert (refused.code, refused.remark) == (1, "where queues end is said at the master only")
        assert one.ask(slave.config.address, 202, {"topic": STATIC}).code == 0
        assert one.ask(master.config.address, 202, some).code == 0


def test_request_when_two_sets_believe_in_each_other_then_it_is_passed_on_once(
    two: SetsCluster,
) -> None:
    """It would go round for as long as its client waits."""
    remap(two)
    items = [
        segment(0, 2, "broker-a", 0), segment(1, 1, "broker-b", 10_000),
        segment(2, 3, "broker-a", 20_000),
    ]  # fmt: skip
    # The first set was never told that it leads once more.
    two.tell("broker-b", 3_000, {0: items}, total=1, physical=2)
    before = two.loop.time()
    answer = two.put("broker-a", 1, 0)
    assert answer.code == 501
    assert two.loop.time() - before < 1.0


def test_message_when_brokers_ask_for_users_then_it_is_passed_on_with_their_own_signature() -> None:
    """The mark of a message that was passed on is signed as all fields are."""
    inner = Credentials("inner", "a password of brokers")
    keys = {
        "authenticationEnabled": "true", "authorizationEnabled": "true",
        "innerClientAuthenticationCredentials": (
            f'{{"accessKey":"{inner.access_key}","secretKey":"{inner.secret_key}"}}'
        ),
    }  # fmt: skip
    with SetsCluster(seed=33, **keys) as one:
        one._client._sign = inner.sign
        one.boot_all()
        one.tell("broker-a", 1_000, {0: [segment(0, 2, "broker-a", 0)]}, total=1, physical=3)
        one.tell("broker-b", 1_000, {}, total=1, physical=0)
        remap(one)
        answer = one.put("broker-a", 1, 0)
        assert answer.code == 0, answer.remark
        assert [body for _, body in one.consume("broker-b", 0)] == [b"body-1"]


def test_request_when_it_is_passed_on_then_without_its_clients_signature(
    two: SetsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would not fit what is passed on, and whoever registers as a set would be given it."""
    assert two.put("broker-a", 1, 0).code == 0
    remap(two)
    two._client._sign = Credentials("ann", "a password", "a token").sign
    sent: list[RemotingCommand] = []
    invoke = RemotingClient.invoke

    async def noting(
        client: RemotingClient, address: str, command: RemotingCommand, *args: Any, **more: Any
    ) -> RemotingCommand:
        if client is not two._client:
            sent.append(replace(command))
        return await invoke(client, address, command, *args, **more)

    monkeypatch.setattr(RemotingClient, "invoke", noting)
    assert two.put("broker-a", 2, 0).code == 0
    assert [body for _, body in two.consume("broker-b", 0)] == [b"body-1", b"body-2"]
    asked = two.ask(two.address("broker-a"), 30, {"topic": STATIC, "queueId": "0"})
    assert (asked.code, (asked.ext_fields or {})["offset"]) == (0, "10001")
    assert {310, 11, 30} <= {one.code for one in sent}
    for one in sent:
        assert not {"AccessKey", "Signature", "SecurityToken"} & set(one.ext_fields or {})
