"""Map files: written before a change, and carried out again."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rmqha.base.errors import RemoteProtocolError
from rmqha.remoting import fastjson
from rmqha.statictopic.known import Known, KnownTopic, PlanRefused, histories
from rmqha.statictopic.map_file import (
    AHEAD_MAX_MS,
    CREATE_OR_UPDATE,
    REMAPPING,
    MapFile,
    apply_file,
    before_file,
    read_map_file,
)
from rmqha.statictopic.plan import LOST_GENERATIONS, LOST_OFFSETS, grow, remap
from rmqha.statictopic.steps import check
from tests.statictopic.examples import TOPIC, detail, item
from tests.statictopic.map_files import CONFIGS, after, cluster, rewritten
from tests.statictopic.model import ModelCluster


def test_files_when_written_then_they_are_what_was_and_what_shall_be() -> None:
    """In the form of the Java tool's, keys of queues bare."""
    one = cluster()
    change = remap(one.known(), {0: "b"}, 5_000)
    old = read_map_file(before_file(change, REMAPPING, CONFIGS))
    assert (old.kind, old.epoch, old.known) == (REMAPPING, one.known().epoch, one.known())
    data = after(change)
    new = read_map_file(data)
    assert (new.epoch, histories(new.known)) == (5_000, dict(change.histories))
    assert new.known.brokers["b"].write_queue_nums == 1
    assert data.startswith(b'{"brokerConfigMap":{"a":{"mappingDetail":{"bname":"a",')
    assert b'"hostedQueues":{0:[{' in data
    assert data.endswith(
        b'"brokerToMapIn":["b"],"brokerToMapOut":["a"],"epoch":5000,"topic":"Orders",'
        b'"type":"REMAPPING"}'
    )


def test_before_file_when_the_topic_is_new_then_it_has_no_broker() -> None:
    """As the Java tool writes it."""
    change = grow(Known(TOPIC, {"a": KnownTopic()}), 1, ["a"], 5_000)
    assert read_map_file(before_file(change, CREATE_OR_UPDATE, CONFIGS)).known.brokers == {}


@pytest.mark.parametrize("crash", range(7))
def test_after_file_when_the_change_died_then_it_is_carried_out_again(crash: int) -> None:
    """From wherever it stopped; and once more does no harm."""
    one = cluster()
    change = remap(one.known(), {0: "b", 1: "b"}, 5_000)
    file = read_map_file(after(change))
    one.run(change, crash)
    for _ in range(2):
        assert one.run(apply_file(one.known(), file, 6_000), between=lambda: one.send(0))
        one.assert_settled()
        one.assert_offsets()
        one.assert_consumed()
    assert one.known().brokers["b"].detail.curr_id_map == {0: 0, 1: 1}  # type: ignore[union-attr]


@pytest.mark.parametrize("crash", range(4))
def test_after_file_when_a_creation_died_then_the_topic_is_as_planned(crash: int) -> None:
    """Also where no broker had heard of some queues: the file knows them."""
    one = ModelCluster("abc")
    change = grow(one.known(), 5, ["a", "b"], 5_000)
    file = read_map_file(after(change, CREATE_OR_UPDATE))
    one.run(change, crash)
    assert one.run(apply_file(one.known(), file, 6_000))
    one.assert_settled()
    assert histories(one.known()) == dict(change.histories)


def test_after_file_when_the_queue_has_moved_since_then_it_is_refused() -> None:
    """It would take messages back in time."""
    one = cluster()
    file = read_map_file(after(remap(one.known(), {0: "b"}, 5_000)))
    one.run(remap(one.known(), {0: "b"}, 5_000))
    one.run(remap(one.known(), {0: "a"}, 6_000))
    with pytest.raises(PlanRefused, match="queue 0 is at a in generation 2, and the file does not"):
        apply_file(one.known(), file, 7_000)


def test_after_file_when_its_beginnings_were_written_by_hand_then_they_are_found_anew() -> None:
    """Messages came since; and of a broker that is lost nobody else can say it."""
    one = cluster()
    change = remap(one.known(), {0: "b"}, 5_000)
    data = after(change).replace(b'"logicOffset":-1', b'"logicOffset":2')
    assert b'"logicOffset":2' in data
    assert one.run(apply_file(one.known(), read_map_file(data), 6_000))
    one.assert_offsets()
    assert histories(one.known())[0][-1].logic_offset == 10_000


def test_after_file_when_a_broker_is_lost_then_its_queues_go_on_where_the_file_says() -> None:
    """With force: the file of a change that gave it up."""
    one = cluster()
    one.run(remap(one.known(), {0: "b"}, 2_000))
    one.run(remap(one.known(), {0: "a"}, 3_000))
    one.away.add("a")
    change = remap(one.known(), {0: "b", 1: "b"}, 5_000, force=True)
    file = read_map_file(after(change))
    applied = apply_file(one.known(), file, 6_000, force=True)
    assert one.run(applied)
    one.send(0)
    assert one.told[max(one.told)] == LOST_OFFSETS + 20_000
    assert {part.broker_name for part in histories(one.known())[0]} == {"b"}


@pytest.mark.parametrize("gen", [1, LOST_GENERATIONS - 1, LOST_GENERATIONS + 1])
def test_after_file_when_a_leader_is_lost_and_it_is_another_changes_then_it_is_refused(
    gen: int,
) -> None:
    """A file that has nothing of the lost leader is one that gave it up, which a generation tells."""
    one = cluster()
    assert one.run(remap(one.known(), {1: "b"}, 2_000))
    assert one.run(remap(one.known(), {1: "a"}, 3_000))
    one.away.add("a")
    data = after(remap(one.known(), {0: "b", 1: "b"}, 5_000, force=True))
    whole = read_map_file(data)
    assert [part.gen for part in histories(whole.known)[1]] == [1, 2 + LOST_GENERATIONS]
    assert apply_file(one.known(), whole, 6_000, force=True)
    last = f'"gen":{2 + LOST_GENERATIONS},'.encode()
    assert last in data
    other = read_map_file(data.replace(last, f'"gen":{2 + gen},'.encode()))
    with pytest.raises(PlanRefused, match="queue 1 is at a in generation 2, and the file does not"):
        apply_file(one.known(), other, 6_000, force=True)


@pytest.mark.parametrize("force", [False, True])
def test_after_file_when_the_move_before_it_is_not_finished_then_it_is_refused(force: bool) -> None:
    """The file goes on from a place that has no beginning yet."""
    one = cluster()
    one.run(remap(one.known(), {0: "b"}, 5_000), crash_after=2)
    present = histories(one.known())[0]
    assert not present[-1].is_decided
    planned = Known(TOPIC, {"a": KnownTopic(9, 9, detail("a", {0: (*present, item(2, "a", 8))}))})
    with pytest.raises(PlanRefused, match="queue 0 is at b in generation 1, and the file does not"):
        apply_file(one.known(), MapFile(REMAPPING, 5_000, planned), 6_000, force=force)


@pytest.mark.parametrize("ahead_ms", [AHEAD_MAX_MS + 1, (1 << 63) - 2 - 6_000])
def test_after_file_when_its_epoch_is_far_ahead_then_it_is_refused(ahead_ms: int) -> None:
    """Every later command would have to be of a still larger one, and there is a largest."""
    one = cluster()
    change = remap(one.known(), {0: "b"}, 5_000)
    file = replace(read_map_file(after(change)), epoch=6_000 + ahead_ms)
    with pytest.raises(PlanRefused, match=f"epoch is {6_000 + ahead_ms}"):
        apply_file(one.known(), file, 6_000)


def test_after_file_when_its_epoch_is_ahead_then_what_it_is_told_with_is_behind_that() -> None:
    """A broker that was away may have it from the first time, and would refuse an older one."""
    one = cluster()
    file = read_map_file(after(remap(one.known(), {0: "b"}, 5_000)))
    assert apply_file(one.known(), file, 4_000).epoch == 5_001
    assert apply_file(one.known(), file, 6_000).epoch == 6_000
    assert apply_file(one.known(), replace(file, epoch=AHEAD_MAX_MS), 0).epoch == AHEAD_MAX_MS + 1


def test_after_file_when_a_broker_is_lost_then_what_it_says_of_a_beginning_does_not_count() -> None:
    """The lost broker's messages would have the same offsets; and a move may be given up by force."""
    one = ModelCluster("ab")
    for epoch, change in ((1, None), (2_000, {0: "b"}), (3_000, {0: "a"})):
        known = one.known()
        assert one.run(remap(known, change, epoch) if change else grow(known, 1, ["a"], epoch))
        one.send(0)
    planned = remap(one.known(), {0: "b"}, 5_000)
    one.away.add("a")
    given_up = rewritten(after(planned), logicOffset=2)
    for data, force in ((given_up, False), (given_up, True), (after(planned), True)):
        applied = apply_file(one.known(), read_map_file(data), 6_000, force=force)
        assert applied.histories[0][-1].logic_offset == 20_000 + LOST_OFFSETS
    with pytest.raises(PlanRefused, match="with -fr true that one is given up"):
        check(apply_file(one.known(), read_map_file(after(planned)), 6_000))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"{}", "names no topic"),
        (b'{"topic":"Orders","brokerConfigMap":{"a":{"mappingDetail":{"topic":"Orders",'
         b'"bname":"b"}}}}', "another broker's"),
        (b"nothing", "not JSON"),
    ],
)  # fmt: skip
def test_map_file_when_it_is_none_then_it_is_refused(data: bytes, words: str) -> None:
    """A typing error in -mf."""
    with pytest.raises(RemoteProtocolError, match=words):
        read_map_file(data)


def test_map_file_when_it_is_of_other_queues_or_topics_then_it_is_refused() -> None:
    """Or of brokers that have gone."""
    one = cluster()
    other = Known("Others", {})
    with pytest.raises(PlanRefused, match="of topic Others"):
        apply_file(one.known(), read_map_file(fastjson.dumps({"topic": other.topic})), 5_000)
    three = ModelCluster("abc")
    file = read_map_file(after(grow(three.known(), 3, ["a", "c"], 5_000)))
    with pytest.raises(PlanRefused, match="c is not in the cluster"):
        apply_file(ModelCluster("ab").known(), file, 6_000)
    gap = read_map_file(after(grow(three.known(), 3, ["a", "c"], 5_000)).replace(b"1:[", b"2:["))
    with pytest.raises(PlanRefused, match="neither the file nor a broker has logical queue 1"):
        apply_file(three.known(), gap, 6_000)
    check(apply_file(three.known(), file, 6_000))
