"""Groups keep their positions when the segments go that they have read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from rmqha.remoting import fastjson
from rmqha.statictopic.mapping import LogicQueueMappingItem
from tests.broker.broker_sets import GROUP, STATIC, SetsCluster, segment

PLACE = {"topic": STATIC, "queueId": "0", "consumerGroup": GROUP}
A0, B1, C2 = (
    segment(0, 2, "broker-a", 0), segment(1, 1, "broker-b", 10_000),
    segment(2, 0, "broker-c", 20_000),
)  # fmt: skip
NAMES = {"a": "broker-a", "b": "broker-b", "c": "broker-c"}


@pytest.fixture
def three() -> Iterator[SetsCluster]:
    """Logical queue 0 is led by the first of three sets, and nothing has been sent to it."""
    with SetsCluster(seed=31, sets=3) as one:
        one.boot_all()
        one.tell("broker-a", 1_000, {0: [A0]}, total=1, physical=3)
        for name in ("broker-b", "broker-c"):
            one.tell(name, 1_000, {}, total=1, physical=0)
        yield one


def make_group(cluster: SetsCluster, *names: str) -> None:
    """200 at these sets, as the heartbeats of its consumers do it at all."""
    for name in names:
        body = fastjson.dumps({"groupName": GROUP})
        assert cluster.ask(cluster.address(name), 200, {}, body).code == 0


def remap(cluster: SetsCluster, *items: LogicQueueMappingItem) -> None:
    """The last of these is the leader from now on."""
    epoch = 1_000 * len(items)
    for last in (replace(items[-1], logic_offset=-1), items[-1]):
        history = [*items[:-1], last]
        for name in dict.fromkeys([last.broker_name, *NAMES.values()]):
            is_one = name in {one.broker_name for one in items[-3:]}
            cluster.tell(name, epoch, {0: history} if is_one else {}, total=1, physical=3)


def commit(cluster: SetsCluster, name: str, offset: int) -> None:
    """Send 15."""
    fields = PLACE | {"commitOffset": str(offset)}
    assert cluster.ask(cluster.address(name), 15, fields).code == 0


def stored(cluster: SetsCluster, name: str) -> int | None:
    """Send 14."""
    answer = cluster.ask(cluster.address(name), 14, PLACE)
    return int((answer.ext_fields or {})["offset"]) if answer.code == 0 else None


def segments_at(cluster: SetsCluster, name: str) -> tuple[LogicQueueMappingItem, ...] | None:
    """The history of logical queue 0 as a set has it."""
    master = cluster.master_of(name)
    assert master is not None
    return master.mappings.table.items[STATIC].hosted_queues.get(0)


@pytest.mark.costly
@pytest.mark.parametrize("order", ["abc", "cba", "bca"])
def test_group_when_its_segment_goes_after_two_moves_then_it_goes_on_behind_it(
    three: SetsCluster, order: str
) -> None:
    """Neither the segment nor the next one is the leader's, and the leader has no position of it."""
    make_group(three, "broker-a", "broker-b")
    commit(three, "broker-a", 0)
    remap(three, A0, B1)
    assert three.put("broker-b", 1, 0).code == 0
    remap(three, A0, B1, C2)
    assert three.put("broker-c", 2, 0).code == 0
    assert stored(three, "broker-c") == 0
    for name in order * 2:
        three.clean(NAMES[name])
        assert stored(three, "broker-c") in (0, 10_000), name
    assert segments_at(three, "broker-c") == (B1, C2)
    assert stored(three, "broker-c") == 10_000


@pytest.mark.costly
@pytest.mark.parametrize("order", ["abc", "cba"])
def test_group_when_the_middle_segment_has_its_position_then_it_goes_on_behind_that(
    three: SetsCluster, order: str
) -> None:
    """Both segments go at once, and the group was never at the set that leads now."""
    make_group(three, "broker-b", "broker-c")
    remap(three, A0, B1)
    commit(three, "broker-b", 10_000)
    remap(three, A0, B1, C2)
    assert three.put("broker-c", 2, 0).code == 0
    for name in order * 2:
        three.clean(NAMES[name])
    assert segments_at(three, "broker-c") == (C2,)
    assert stored(three, "broker-c") == 20_000


@pytest.mark.costly
def test_group_when_the_leader_cleans_first_then_it_is_nowhere_at_no_time(
    three: SetsCluster,
) -> None:
    """The old set did it up to five minutes later; a consumer that began then skipped everything."""
    make_group(three, "broker-a")
    commit(three, "broker-a", 0)
    remap(three, A0, B1)
    assert three.put("broker-b", 1, 0).code == 0
    three.clean("broker-b")
    assert segments_at(three, "broker-b") == (B1,)
    assert stored(three, "broker-b") == 10_000


@pytest.mark.costly
def test_group_when_it_has_gone_on_already_then_cleaning_does_not_take_it_back(
    three: SetsCluster,
) -> None:
    """Its old position stays at the old set for good."""
    make_group(three, "broker-a", "broker-b")
    commit(three, "broker-a", 0)
    remap(three, A0, B1)
    for number in range(3):
        assert three.put("broker-b", number, 0).code == 0
    commit(three, "broker-b", 10_002)
    for name in ("broker-a", "broker-b"):
        three.clean(name)
        assert stored(three, "broker-b") == 10_002
    assert segments_at(three, "broker-b") == (B1,)


@pytest.mark.costly
def test_segment_when_the_next_set_does_not_know_a_group_then_it_stays_with_its_position(
    three: SetsCluster,
) -> None:
    """A group that is away while a set joins: its heartbeats have made it nowhere else."""
    make_group(three, "broker-a")
    commit(three, "broker-a", 0)
    remap(three, A0, B1)
    assert three.put("broker-b", 1, 0).code == 0
    remap(three, A0, B1, C2)
    for name in "abc":
        three.clean(NAMES[name])
    assert segments_at(three, "broker-a") == segments_at(three, "broker-c") == (A0, B1, C2)
    assert stored(three, "broker-c") == 0
    make_group(three, "broker-b")
    for name in "abc":
        three.clean(NAMES[name])
    assert (segments_at(three, "broker-a"), segments_at(three, "broker-c")) == (None, (B1, C2))
    assert stored(three, "broker-c") == 10_000


@pytest.mark.costly
def test_segment_when_there_is_no_room_for_a_position_then_it_stays() -> None:
    """A position that is not stored would be forgotten with the segment."""
    with SetsCluster(seed=31, consumerOffsetsMax="20") as two:
        two.boot_all()
        two.tell("broker-a", 1_000, {0: [A0]}, total=1, physical=3)
        make_group(two, "broker-a")
        commit(two, "broker-a", 0)
        for epoch, last in ((2_000, replace(B1, logic_offset=-1)), (2_000, B1)):
            for name in ("broker-b", "broker-a"):
                two.tell(name, epoch, {0: [A0, last]}, total=1, physical=3)
        leader = two.master_of("broker-b")
        assert leader is not None
        table, wall_ms = leader.offsets.table, two.wall_ms()
        assert not all(table.commit(f"G{number}", STATIC, 1, 0, wall_ms) for number in range(21))
        two.clean("broker-b")
        assert segments_at(two, "broker-b") == (A0, B1)
        assert stored(two, "broker-b") == 0


@pytest.mark.costly
def test_queues_when_a_set_of_one_is_gone_then_the_others_are_cleaned(three: SetsCluster) -> None:
    """One that was switched off too early kept all queues of the topic as they were, for good."""
    other = segment(0, 0, "broker-c", 0), segment(1, 2, "broker-b", 10_000)
    for name in ("broker-b", "broker-a", "broker-c"):
        queues = {0: [A0, B1], 1: [*other]}
        three.tell(name, 2_000, queues, total=2, physical=3)
    (host,) = three.hosts_of["broker-a"]
    three.net.cut(three.hosts_of["broker-b"][0], host)
    three.clean("broker-b")
    leader = three.master_of("broker-b")
    assert leader is not None
    assert leader.mappings.table.items[STATIC].hosted_queues == {0: (A0, B1), 1: other[1:]}
    three.net.heal()
    three.until(lambda: cleaned(three), "the way there", 60_000)


def cleaned(cluster: SetsCluster) -> bool:
    """Whether queue 0 has lost its first segment by now."""
    cluster.clean("broker-b")
    return segments_at(cluster, "broker-b") == (B1,)
