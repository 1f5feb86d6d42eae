"""How far a group is in a logical queue: stored by 15 and by pulls alike, once each was checked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rmqha.remoting import fastjson
from rmqha.remoting.command import RemotingCommand
from tests.broker.broker_sets import GROUP, STATIC, SetsCluster, segment

PLACE = {"consumerGroup": GROUP, "topic": STATIC, "queueId": "0", "bname": "__syslo__global__"}


@pytest.fixture
def here() -> Iterator[SetsCluster]:
    """One set; both segments of the queue are its own."""
    with SetsCluster(seed=31, sets=1) as one:
        one.boot_all()
        one.tell("broker-a", 1_000, {0: [segment(0, 0, "broker-a", 0)]}, total=1, physical=1)
        for number in range(5):
            assert one.put("broker-a", number, 0).code == 0
        queues = {0: [segment(0, 0, "broker-a", 0), segment(1, 1, "broker-a", 10_000)]}
        one.tell("broker-a", 2_000, queues, total=1, physical=2)
        for number in range(5):
            assert one.put("broker-a", number, 0).code == 0
        make_group(one)
        yield one


@pytest.fixture
def two() -> Iterator[SetsCluster]:
    """Two sets; the old segment is the first one's, the new one the second's, which leads."""
    with SetsCluster(seed=31) as one:
        one.boot_all()
        one.tell("broker-a", 1_000, {0: [segment(0, 2, "broker-a", 0)]}, total=1, physical=3)
        one.tell("broker-b", 1_000, {}, total=1, physical=0)
        for number in range(5):
            assert one.put("broker-a", number, 0).code == 0
        for offset in (-1, 10_000):
            queues = {0: [segment(0, 2, "broker-a", 0), segment(1, 1, "broker-b", offset)]}
            one.tell("broker-b", 2_000, queues, total=1, physical=2)
            one.tell("broker-a", 2_000, queues, total=1, physical=3)
        for number in range(5):
            assert one.put("broker-b", number, 0).code == 0
        make_group(one)
        yield one


def make_group(cluster: SetsCluster) -> None:
    """200 at every set, as mqadmin does."""
    body = fastjson.dumps({"groupName": GROUP})
    for name in cluster.hosts_of:
        assert cluster.ask(cluster.address(name), 200, {}, body).code == 0


def commit(cluster: SetsCluster, name: str, offset: int) -> int:
    """Send 15."""
    fields = {**PLACE, "commitOffset": str(offset)}
    return cluster.ask(cluster.address(name), 15, fields, timeout_ms=20_000).code


def stored(cluster: SetsCluster, name: str) -> int | None:
    """Send 14."""
    answer = cluster.ask(cluster.address(name), 14, {**PLACE, "setZeroIfNotFound": "false"})
    return int((answer.ext_fields or {})["offset"]) if answer.code == 0 else None


def pull_and_commit(cluster: SetsCluster, name: str, offset: int, **fields: str) -> int:
    """Send an 11 that stores an offset as well."""
    more = {"sysFlag": "5", "commitOffset": str(offset), **fields}
    return cluster.pull(name, 0, offset, **more).code


@pytest.mark.parametrize("fields", [
    {"consumerGroup": "no group @#"}, {"subscription": "||"},
    {"sysFlag": "1", "consumerGroup": "NotOnline"},
])  # fmt: skip
def test_pull_when_it_is_refused_then_it_stores_nothing(
    here: SetsCluster, fields: dict[str, str]
) -> None:
    """Whoever may not pull wrote into the table of offsets, with any text for a group."""
    assert pull_and_commit(here, "broker-a", 3, **fields) in (23, 24, 26)
    master = here.master_of("broker-a")
    assert master is not None
    assert master.offsets.table.groups_of(STATIC) == []


@pytest.mark.costly
def test_pull_when_its_segment_s_set_refuses_it_then_it_stores_nothing(two: SetsCluster) -> None:
    """The set of the segment alone has looked at the pull."""
    stranger = {"consumerGroup": "no group @#", "queueOffset": "0"}
    assert pull_and_commit(two, "broker-b", 10_003, **stranger) == 26
    two.run_for(200)
    for name in ("broker-a", "broker-b"):
        master = two.master_of(name)
        assert master is not None
        assert master.offsets.table.groups_of(STATIC) == []
    for offset in (3, 10_003):
        assert pull_and_commit(two, "broker-b", offset, queueOffset="0") == 0
        two.until(lambda offset=offset: stored(two, "broker-b") == offset, "the offset", 1_000)


@pytest.mark.costly
def test_pull_when_its_group_is_known_to_the_segment_s_set_alone_then_it_stores_nothing_here(
    two: SetsCluster,
) -> None:
    """As 15 would be refused here."""
    for name in two.hosts_of:
        values = two.ask(two.address(name), 25, {}, b"autoCreateSubscriptionGroup=false")
        assert values.code == 0, values.remark
    assert two.ask(two.address("broker-b"), 207, {"groupName": GROUP}).code == 0
    assert pull_and_commit(two, "broker-b", 10_003, queueOffset="0") == 0
    two.run_for(200)
    master = two.master_of("broker-b")
    assert master is not None
    assert master.offsets.table.groups_of(STATIC) == []


def test_group_when_its_pulls_go_back_then_it_is_where_they_are(here: SetsCluster) -> None:
    """14 told the old place in the newest segment until the next 15."""
    assert commit(here, "broker-a", 10_005) == 0
    assert stored(here, "broker-a") == 10_005
    assert pull_and_commit(here, "broker-a", 3) == 0
    assert stored(here, "broker-a") == 3
    assert pull_and_commit(here, "broker-a", 10_002) == 0
    assert stored(here, "broker-a") == 10_002


def test_pull_when_it_goes_on_in_the_next_segment_then_its_offset_is_stored(
    here: SetsCluster,
) -> None:
    """The segment that it asks for is read through, so that the answer is of another one."""
    answer = here.pull("broker-a", 0, 5, sysFlag="5", commitOffset="5")
    assert (answer.code, (answer.ext_fields or {})["offsetDelta"]) == (0, "10000")
    assert stored(here, "broker-a") == 5


@pytest.mark.costly
@pytest.mark.parametrize("by_pull", [False, True])
def test_group_when_it_goes_back_to_a_set_that_is_gone_then_it_stays_where_it_was(
    two: SetsCluster, by_pull: bool
) -> None:
    """Its newest place was forgotten before the older one was stored: it would have begun anew."""
    assert commit(two, "broker-b", 10_004) == 0
    (host,) = two.hosts_of["broker-a"]
    two.net.cut(two.hosts_of["broker-b"][0], host)
    if by_pull:
        # It reads what is here, and says that the group has gone back.
        assert two.pull("broker-b", 0, 10_004, sysFlag="5", commitOffset="3").code == 0
        two.run_for(5_000)
    else:
        assert commit(two, "broker-b", 3) != 0
    assert stored(two, "broker-b") == 10_004
    two.net.heal()
    if by_pull:
        assert two.pull("broker-b", 0, 10_004, sysFlag="5", commitOffset="3").code == 0
    else:
        two.until(lambda: commit(two, "broker-b", 3) == 0, "a way there")
    two.until(lambda: stored(two, "broker-b") == 3, "the older place", 10_000)


def test_group_when_it_goes_forth_again_at_once_then_its_newest_place_counts(
    two: SetsCluster,
) -> None:
    """The older place is still on its way to another set when the newer one is stored here."""
    assert commit(two, "broker-b", 10_001) == 0
    address = two.address("broker-b")
    back = two.collect(address, 15, {**PLACE, "commitOffset": "3"})
    forth = two.collect(address, 15, {**PLACE, "commitOffset": "10004"})
    two.until(lambda: back and forth, "both answers", 5_000)
    assert [answer.code for answer in back + forth] == [0, 0]
    assert stored(two, "broker-b") == 10_004


@pytest.fixture(params=["a", "c"])
def over_three(request: pytest.FixtureRequest) -> Iterator[SetsCluster]:
    """The queue was at the first set, then the second, and is now at the first again or the third."""
    last = f"broker-{request.param}"
    items = [
        segment(0, 2, "broker-a", 0), segment(1, 1, "broker-b", 10_000), segment(2, 5, last, 20_000)
    ]  # fmt: skip
    with SetsCluster(seed=31, sets=3) as one:
        one.boot_all()
        for count in (1, 2, 3):
            led_by = items[count - 1].broker_name
            for name in dict.fromkeys([led_by, *one.hosts_of]):
                queues = {0: items[:count]} if count == 3 or name in (led_by, "broker-a") else {}
                one.tell(name, count * 1_000, queues, total=1, physical=6)
            for number in range(3):
                assert one.put(led_by, number, 0).code == 0
        make_group(one)
        yield one


def leader_of(cluster: SetsCluster) -> str:
    """The set that leads the queue by its own word."""
    (name,) = [
        name for name in cluster.hosts_of
        if (master := cluster.master_of(name)) and master.mappings.table.items[STATIC].curr_id_map
    ]  # fmt: skip
    return name


@pytest.mark.costly
def test_group_when_it_goes_back_over_another_set_s_segment_then_it_is_where_it_went(
    over_three: SetsCluster,
) -> None:
    """Each commit was answered with success, and 14 told the place in the middle."""
    name = leader_of(over_three)
    for offset in (1, 10_002, 20_001, 10_001, 1, 0, 2, 10_001, 2, 20_002, 1):
        assert commit(over_three, name, offset) == 0
        assert stored(over_three, name) == offset
    # Pulls store what consumers have committed, and are seen as well.
    assert pull_and_commit(over_three, name, 10_002, queueOffset="20000") == 0
    over_three.run_for(200)
    assert stored(over_three, name) == 10_002
    assert commit(over_three, name, 1) == 0
    assert stored(over_three, name) == 1


@pytest.mark.costly
def test_group_when_it_stays_in_an_old_segment_then_the_sets_behind_it_are_asked_once(
    over_three: SetsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A queue may have hundreds of segments, and a group that catches up says often where it is."""
    master = over_three.master_of(name := leader_of(over_three))
    assert master is not None
    asked: list[tuple[str, int]] = []
    ask = master.logical.segments.ask

    async def noting(item: Any, code: int, topic: str, **fields: Any) -> RemotingCommand:
        asked.append((item.broker_name, code))
        return await ask(item, code, topic, **fields)

    monkeypatch.setattr(master.logical.segments, "ask", noting)
    for offset in (0, 1, 2):
        assert commit(over_three, name, offset) == 0
    assert [one for one in asked if one[0] == "broker-b"] == [("broker-b", 14)]


@pytest.mark.costly
def test_group_when_a_set_does_not_forget_it_then_it_is_told_and_stays_there(
    over_three: SetsCluster,
) -> None:
    """One that does not know the group takes nothing of it."""
    name = leader_of(over_three)
    assert commit(over_three, name, 10_001) == 0
    key = b"autoCreateSubscriptionGroup=false"
    assert over_three.ask(over_three.address("broker-b"), 25, {}, key).code == 0
    assert over_three.ask(over_three.address("broker-b"), 207, {"groupName": GROUP}).code == 0
    for _ in range(2):
        assert commit(over_three, name, 1) != 0
        assert stored(over_three, name) == 10_001
    make_group(over_three)
    assert commit(over_three, name, 1) == 0
    assert stored(over_three, name) == 1


def test_offset_when_it_is_to_be_forgotten_and_is_another_by_now_then_it_stays(
    two: SetsCluster,
) -> None:
    """The group has gone forth again meanwhile."""
    assert commit(two, "broker-b", 10_002) == 0
    place = {**PLACE, "queueId": "1", "lo": "false", "commitOffset": "-1"}
    assert two.ask(two.address("broker-b"), 15, place).code == 29
    assert two.ask(two.address("broker-b"), 15, {**place, "rmqhaForgotten": "1"}).code == 0
    assert stored(two, "broker-b") == 10_002
    assert two.ask(two.address("broker-b"), 15, {**place, "rmqhaForgotten": "2"}).code == 0
    assert stored(two, "broker-b") is None
