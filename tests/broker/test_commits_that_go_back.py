"""Groups that go back in a logical queue: what other sets, and commits on their way, make of it."""

from __future__ import annotations

from typing import Any

import pytest

from rmqha.broker.groups.aio.offset_requests import OffsetProcessor
from rmqha.remoting import fastjson
from rmqha.remoting.asked_queues import asked_fields
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.command import RemotingCommand
from tests.broker.broker_sets import GROUP, STATIC, SetsCluster, segment
from tests.broker.test_logical_commits import (
    PLACE,
    commit,
    leader_of,
    make_group,
    over_three,
    stored,
    two,
)

__all__ = ["over_three", "two"]  # fixtures


def offset_at(cluster: SetsCluster, name: str, queue_id: int) -> int | None:
    """What a set's master has stored for the group, physically."""
    master = cluster.master_of(name)
    assert master is not None
    return master.offsets.table.query(GROUP, STATIC, queue_id)


def note_questions(
    cluster: SetsCluster, name: str, monkeypatch: pytest.MonkeyPatch
) -> list[tuple[str, int]]:
    """What a set's master asks others for from now on: the set and the code."""
    master = cluster.master_of(name)
    assert master is not None
    asked: list[tuple[str, int]] = []
    ask = master.logical.segments.ask

    async def noting(item: Any, code: int, topic: str, **fields: Any) -> RemotingCommand:
        asked.append((item.broker_name, int(code)))
        return await ask(item, code, topic, **fields)

    monkeypatch.setattr(master.logical.segments, "ask", noting)
    return asked


def cut_off(cluster: SetsCluster, name: str) -> None:
    """No other set reaches this one any more."""
    (host,) = cluster.hosts_of[name]
    for other, hosts in cluster.hosts_of.items():
        if other != name:
            cluster.net.cut(hosts[0], host)


@pytest.mark.costly
def test_group_when_a_later_set_is_away_then_its_place_is_stored_and_looked_at_later(
    over_three: SetsCluster,
) -> None:
    """It could store nothing for as long as that lasted, and read everything twice afterwards."""
    name = leader_of(over_three)
    assert commit(over_three, name, 10_002) == 0
    cut_off(over_three, "broker-b")
    for offset in (1, 2):
        assert commit(over_three, name, offset) == 0
        assert offset_at(over_three, "broker-a", 2) == offset
        assert stored(over_three, name) == offset
    # A consumer that begins when the set is back must not be sent there.
    over_three.net.heal()
    over_three.run_for(60_000)
    assert stored(over_three, name) == 2
    assert offset_at(over_three, "broker-b", 1) == 2
    # The first commit that can ask there has it forgotten.
    assert commit(over_three, name, 2) == 0
    assert offset_at(over_three, "broker-b", 1) == -1
    assert stored(over_three, name) == 2


@pytest.mark.costly
def test_group_when_it_goes_forth_again_while_a_later_set_is_away_then_that_is_where_it_is(
    over_three: SetsCluster,
) -> None:
    """What it has stored further back counts no more."""
    name = leader_of(over_three)
    assert commit(over_three, name, 10_002) == 0
    cut_off(over_three, "broker-b")
    assert commit(over_three, name, 1) == 0
    assert commit(over_three, name, 20_001) == 0
    assert stored(over_three, name) == 20_001


@pytest.mark.costly
def test_sets_when_one_of_many_segments_is_away_then_it_is_asked_once_for_a_commit(
    two: SetsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each question takes seconds there."""
    items = [
        segment(0, 2, "broker-a", 0), segment(1, 1, "broker-b", 10_000),
        segment(2, 0, "broker-b", 20_000), segment(3, 1, "broker-a", 30_000),
    ]  # fmt: skip
    for name in ("broker-a", "broker-b"):
        two.tell(name, 3_000, {0: items}, total=1, physical=3)
    asked = note_questions(two, "broker-a", monkeypatch)
    cut_off(two, "broker-b")
    assert commit(two, "broker-a", 1) == 0
    assert asked == [("broker-b", 14)]


@pytest.mark.costly
@pytest.mark.parametrize("place", [10_002, 20_001])
def test_group_when_it_goes_forth_to_the_same_place_meanwhile_then_that_is_kept(
    over_three: SetsCluster, place: int
) -> None:
    """The older commit would have it forgotten, here or there: the number that is stored is the same."""
    name = leader_of(over_three)
    assert commit(over_three, name, place) == 0
    address = over_three.address(name)
    back = over_three.collect(address, 15, {**PLACE, "commitOffset": "1"})
    forth = over_three.collect(address, 15, {**PLACE, "commitOffset": str(place)})
    over_three.until(lambda: back and forth, "both answers", 5_000)
    assert [answer.code for answer in back + forth] == [0, 0]
    assert stored(over_three, name) == place


@pytest.mark.costly
def test_group_when_two_of_its_commits_go_back_at_once_then_the_newest_is_where_it_is(
    over_three: SetsCluster,
) -> None:
    """The first leaves it to the second to have the later place forgotten."""
    name = leader_of(over_three)
    assert commit(over_three, name, 10_002) == 0
    address = over_three.address(name)
    both = [
        over_three.collect(address, 15, {**PLACE, "commitOffset": offset}) for offset in ("1", "2")
    ]
    over_three.until(lambda: all(both), "both answers", 5_000)
    assert [one[0].code for one in both] == [0, 0]
    assert stored(over_three, name) == 2


def forget_as_java(
    self: OffsetProcessor, request: RemotingCommand, group: str, topic: str, queue_id: int, _: int
) -> RemotingCommand:
    """Java's ConsumerManageProcessor stores any number, and knows no field of ours."""
    self._broker.offsets.table.commit(group, topic, queue_id, -1, 0)
    return request.reply(ResponseCode.SUCCESS)


@pytest.mark.costly
def test_group_when_it_goes_forth_again_and_a_set_is_javas_then_its_newest_place_is_kept(
    over_three: SetsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java takes -1 whatever it has stored meanwhile."""
    monkeypatch.setattr(OffsetProcessor, "_forget", forget_as_java)
    name = leader_of(over_three)
    assert commit(over_three, name, 10_001) == 0
    address = over_three.address(name)
    back = over_three.collect(address, 15, {**PLACE, "commitOffset": "1"})
    forth = over_three.collect(address, 15, {**PLACE, "commitOffset": "10002"})
    over_three.until(lambda: back and forth, "both answers", 5_000)
    assert [answer.code for answer in back + forth] == [0, 0]
    assert stored(over_three, name) == 10_002
    assert commit(over_three, name, 2) == 0
    assert stored(over_three, name) == 2


@pytest.mark.costly
def test_group_when_its_topic_is_made_anew_then_nothing_is_known_of_it() -> None:
    """Physical queues begin with 0 again, and the group has gone forth at another set."""
    with SetsCluster(seed=31, sets=2) as one:
        one.boot_all()
        live(one, 0, goes_forth=False)
        make_group(one)
        assert commit(one, "broker-a", 1) == 0
        for name in one.hosts_of:
            assert one.ask(one.address(name), 215, {"topic": STATIC}).code == 0
        one.run_for(1_000)
        live(one, 100_000, goes_forth=True)
        assert stored(one, "broker-a") == 10_002
        assert commit(one, "broker-a", 1) == 0
        assert stored(one, "broker-a") == 1


def live(cluster: SetsCluster, epoch: int, *, goes_forth: bool) -> None:
    """The queue is made at the first set, moves to the second and back."""
    items = [
        segment(0, 2, "broker-a", 0), segment(1, 1, "broker-b", 10_000),
        segment(2, 5, "broker-a", 20_000),
    ]  # fmt: skip
    for count in (1, 2, 3):
        led_by = items[count - 1].broker_name
        for name in dict.fromkeys([led_by, *cluster.hosts_of]):
            queues = {0: items[:count]} if count > 1 or name == led_by else {}
            cluster.tell(name, epoch + count * 1_000, queues, total=1, physical=6)
        for number in range(3):
            assert cluster.put(led_by, number, 0).code == 0
        if count == 2 and goes_forth:
            make_group(cluster)
            assert commit(cluster, led_by, 10_002) == 0


@pytest.mark.costly
def test_group_when_another_set_refuses_to_forget_it_then_what_is_here_is_not_forgotten_either(
    over_three: SetsCluster,
) -> None:
    """It would be in the middle, where it neither was last nor goes to."""
    name = leader_of(over_three)
    for offset in (10_001, 20_001):
        assert commit(over_three, name, offset) == 0
    key = b"autoCreateSubscriptionGroup=false"
    assert over_three.ask(over_three.address("broker-b"), 25, {}, key).code == 0
    assert over_three.ask(over_three.address("broker-b"), 207, {"groupName": GROUP}).code == 0
    assert commit(over_three, name, 1) != 0
    assert stored(over_three, name) == 20_001


@pytest.mark.costly
@pytest.mark.parametrize("role", ["a slave", "none yet"])
def test_offset_when_who_is_to_forget_it_is_no_master_then_it_refuses(role: str) -> None:
    """Its master would tell it the old place again, and the group would be there."""
    with SetsCluster(seed=34, sets=1, replicas=2) as one:
        one.boot_all()
        one.until(one.in_sync, "all in sync")
        one.tell("broker-a", 1_000, {0: [segment(0, 2, "broker-a", 0)]}, total=1, physical=3)
        master = one.master_of("broker-a")
        assert master is not None
        body = fastjson.dumps({"groupName": GROUP})
        assert one.ask(master.config.address, 200, {}, body).code == 0
        (slave,) = [other for other in one.replicas.values() if other is not master]
        one.until(lambda: slave.topics.table.get(STATIC), "the slave's topic")
        one.until(lambda: slave.groups.find(GROUP, may_write=False), "the slave's group")
        slave.offsets.table.commit(GROUP, STATIC, 2, 7, 0)
        if role == "none yet":
            slave.role = None
        place = {
            **PLACE, "queueId": "2", "lo": "false", "commitOffset": "-1", "rmqhaForgotten": "7",
        }  # fmt: skip
        assert one.ask(slave.config.address, 15, place).code == 14
        assert slave.offsets.table.query(GROUP, STATIC, 2) == 7
        some = {"topic": STATIC, **asked_fields([2])}
        assert one.ask(slave.config.address, 202, some).code == 1
