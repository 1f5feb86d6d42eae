"""What Java's mqadmin leaves on Java's brokers when it dies, and what our next command makes of it.

Its order is ours, but the old leaders are never told where their queues went on, and Java's brokers
take messages of a queue whose beginning is undecided.
"""

from __future__ import annotations

from contextlib import suppress

import pytest

from rmqha.statictopic.known import PlanRefused, histories, is_stale, is_unfinished
from rmqha.statictopic.map_file import CREATE_OR_UPDATE, after_file, apply_file, read_map_file
from rmqha.statictopic.plan import LOST_OFFSETS, Change, grow, remap, retell
from rmqha.statictopic.steps import Look, Phase, Tell, steps
from tests.statictopic.examples import TOPIC, UNDECIDED, detail, known
from tests.statictopic.model import ModelCluster, steps_of

CONFIGS = {name: {"topicName": TOPIC} for name in "abc"}
QUEUES = 4


def as_java(cluster: ModelCluster, change: Change, crash_after: int) -> None:
    """Carry out a change as Java's mqadmin does, as far as it comes."""
    outs = {segments[-2].broker_name for segments in change.undecided.values()}
    walk, done = steps(change), 0
    with suppress(StopIteration):
        step = next(walk)
        while done < crash_after:
            answer: dict[int, int] = {}
            if (
                isinstance(step, Look)
                or step.phase is not Phase.ALL
                or step.broker_name not in outs
            ):
                answer = cluster.carry_out(step)
                done += 1
                for logical in range(QUEUES):
                    cluster.send(logical)
            step = walk.send(answer)


@pytest.mark.parametrize("crash", range(8))
def test_remap_when_javas_tool_died_in_it_then_our_next_command_finishes_it(crash: int) -> None:
    """With messages in every queue and between all steps; none is lost, and none comes twice."""
    cluster = ModelCluster("abc", java="abc")
    cluster.run(grow(cluster.known(), QUEUES, ["a"], 1))
    for logical in range(QUEUES):
        cluster.send(logical, 3)
    as_java(cluster, remap(cluster.known(), dict.fromkeys(range(QUEUES), "b"), 2), crash)
    assert is_unfinished(cluster.known()) is (1 <= crash <= 3)
    assert is_stale(cluster.known()) is (crash >= 1)
    cluster.run(retell(cluster.known(), 3))
    assert not is_stale(cluster.known())
    cluster.assert_settled()
    cluster.assert_offsets()
    cluster.assert_consumed()
    leader = "b" if crash else "a"
    assert {one[-1].broker_name for one in histories(cluster.known()).values()} == {leader}


def test_creation_when_javas_tool_died_in_it_then_its_after_file_completes_it() -> None:
    """Nobody was told of the queues of the others; without the file only force goes on."""
    cluster = ModelCluster("abc", java="abc")
    change = grow(cluster.known(), QUEUES, ["b", "c"], 1)
    file = read_map_file(after_file(change, CREATE_OR_UPDATE, CONFIGS))
    # In the order of a hash table, and nobody is told of anybody else's.
    told = next(one for one in steps_of(change) if one.broker_name == "c")
    assert not isinstance(told, Look)
    cluster.carry_out(told)
    with pytest.raises(PlanRefused, match="queue 0 is led by a broker that is not there"):
        remap(cluster.known(), {0: "a"}, 2)
    assert cluster.run(apply_file(cluster.known(), file, 3))
    cluster.assert_settled()
    assert histories(cluster.known()) == dict(change.histories)


def test_creation_when_the_after_file_is_lost_too_then_force_goes_on() -> None:
    """It cannot be told from a broker that is away: the queues begin far behind."""
    cluster = ModelCluster("abc", java="abc")
    change = grow(cluster.known(), QUEUES, ["b", "c"], 1)
    cluster.carry_out(next(one for one in steps_of(change) if one.broker_name == "c"))
    assert cluster.run(remap(cluster.known(), {0: "a", 2: "a"}, 2, force=True))
    cluster.assert_settled()
    begins = [one[-1].logic_offset for one in histories(cluster.known()).values()]
    assert begins == [LOST_OFFSETS, 0, LOST_OFFSETS, 0]


def test_remap_when_the_old_leader_has_forgotten_it_then_it_is_told_before_it_is_asked() -> None:
    """A Java slave never learns of mappings, and of new queues late; now it is the master.

    As an ordinary topic's broker it would go on taking messages behind the end that it tells.
    """
    forgetful = known(detail("b", {0: UNDECIDED}, total=1), more=("a",))
    found = [
        (one.broker_name, one.phase.name if isinstance(one, Tell) else one.queue_ids)
        for one in steps_of(retell(forgetful, 5_000))
    ]
    assert found[:3] == [("b", "MAP_IN"), ("a", "MAP_OUT"), ("a", (0,))], found
    told = steps_of(retell(forgetful, 5_000))[1]
    assert isinstance(told, Tell)
    assert (told.write_queue_nums, told.read_queue_nums) == (1, 1)
    assert told.detail.hosted_queues == {0: UNDECIDED}
