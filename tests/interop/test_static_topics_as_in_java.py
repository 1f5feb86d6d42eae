"""What RocketMQ's own integration test of static topics asks of a cluster, asked of ours.

Java's clients, its admin library with all its checks of mappings, and its mqadmin, all of 5.3.3,
work on three broker sets and a name server of ours. Where a test has a tool, the real mqadmin and
ours do the same work.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from rmqha.testing.real import wire
from rmqha.testing.real.java import CLUSTER_NAME
from rmqha.testing.real.processes import WaitTimeout, assert_holds, wait_until
from tests.interop import required
from tests.interop.peers import PeerError
from tests.interop.static_peer import Host, written
from tests.interop.static_stage import BLOCK, LOGICAL, NAMES, PRODUCER, SEEN_S, Stage, opened

A, B, C = NAMES
QUEUES = 6
EACH = 10
"""Messages to each queue at a time."""
CLEANED_S = 20.0
NOT_LEADER = 501

both_tools = pytest.mark.parametrize("tool", ["ours", "real"])


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """The cluster of all tests here."""
    required.require_classpath()
    with opened(tmp_path_factory.mktemp("as-in-java")) as made:
        yield made


def chain(host: Host, queue: int) -> list[tuple[str, int]]:
    """Where the parts of a logical queue are, and at which offsets they begin."""
    return [(one.broker_name, one.logic_offset) for one in host.hosted[queue]]


@both_tools
def test_cluster_when_remapped_to_itself_then_no_queue_moves_and_offsets_go_on(
    stage: Stage, tool: str
) -> None:
    """All sets share the queues; with nothing to balance, no segment and no gap begins."""
    topic = stage.create(tool, QUEUES, "-c", CLUSTER_NAME)
    led = stage.java.leaders(topic)
    assert {name: [*led.values()].count(name) for name in NAMES} == dict.fromkeys(NAMES, 2)
    stage.send(topic, QUEUES, EACH, 0)
    stage.ends_at(topic, QUEUES, EACH)
    stage.java.ask(f"push C-{topic} G-{topic} {topic}")
    stage.received(f"C-{topic}", stage.sent[topic])
    stage.admin(tool, "remappingStaticTopic", topic, "-c", CLUSTER_NAME)
    assert stage.java.leaders(topic) == led
    stage.send(topic, QUEUES, EACH, EACH)
    stage.ends_at(topic, QUEUES, 2 * EACH)
    stage.received(f"C-{topic}", stage.sent[topic])
    stage.java.ask(f"stop C-{topic}")


@both_tools
def test_queues_when_moved_to_another_set_then_one_consumer_reads_across(
    stage: Stage, tool: str
) -> None:
    """The second part begins at a whole block; queue ids and the broker's name stay what they were."""
    topic = stage.create(tool, QUEUES, "-b", A)
    assert {*stage.java.leaders(topic).values()} == {A}
    stage.send(topic, QUEUES, EACH, 0)
    stage.ends_at(topic, QUEUES, EACH)
    stage.java.ask(f"push C-{topic} G-{topic} {topic}")
    stage.received(f"C-{topic}", stage.sent[topic])
    stage.remap(tool, topic, B)
    stage.send(topic, QUEUES, EACH, BLOCK)
    stage.ends_at(topic, QUEUES, BLOCK + EACH)
    stage.received(f"C-{topic}", stage.sent[topic])
    stage.java.ask(f"stop C-{topic}")


@both_tools
def test_mapping_when_made_and_moved_then_brokers_have_what_the_tool_wrote(
    stage: Stage, tool: str
) -> None:
    """The tool's own record of its plan and the brokers' answers are one mapping."""
    topic = f"Kept-{tool}"
    where = ("-c", CLUSTER_NAME, "-qn", str(QUEUES))
    planned = written(stage.admin(tool, "updateStaticTopic", topic, *where))
    hosts = stage.java.hosts(topic, QUEUES)
    assert {*hosts} == {*NAMES}
    led = [
        queue
        for name, host in hosts.items()
        for queue, segments in host.hosted.items()
        if segments[-1].broker_name == name
    ]
    assert sorted(led) == [*range(QUEUES)]
    assert {name: hosts[name] for name in planned} == planned


@both_tools
def test_sets_when_no_target_then_they_know_the_topic_and_have_no_queue(
    stage: Stage, tool: str
) -> None:
    """Epoch and number are everywhere, so that any set can be asked and none invents the topic."""
    topic = stage.create(tool, QUEUES, "-b", A)
    hosts = stage.java.hosts(topic, QUEUES)
    assert {*hosts} == {*NAMES}
    for name in (B, C):
        assert (hosts[name].read_queues, hosts[name].write_queues, hosts[name].hosted) == (0, 0, {})
        assert hosts[name].total_queues == QUEUES
    stage.remap(tool, topic, B)
    moved = stage.java.hosts(topic, QUEUES)
    assert {*moved} == {*NAMES}
    assert {one.epoch > hosts[A].epoch for one in moved.values()} == {True}
    assert (moved[C].read_queues, moved[C].write_queues, moved[C].hosted) == (0, 0, {})
    assert (moved[A].write_queues, moved[B].write_queues) == (QUEUES, QUEUES)


@both_tools
def test_lone_queue_when_moved_then_both_sets_have_the_same_chain(stage: Stage, tool: str) -> None:
    """One queue, two parts; the second is of the next generation, at the first whole block."""
    topic = stage.create(tool, 1, "-b", A)
    stage.send(topic, 1, EACH, 0)
    stage.remap(tool, topic, B)
    hosts = stage.java.hosts(topic, 1)
    assert chain(hosts[B], 0) == [(A, 0), (B, BLOCK)]
    assert [one.gen for one in hosts[B].hosted[0]] == [0, 1]
    # Java's tool never tells the old leader where it went on.
    assert chain(hosts[A], 0) in ([(A, 0), (B, BLOCK)], [(A, 0), (B, -1)] if tool == "real" else [])
    stage.send(topic, 1, EACH, BLOCK)
    stage.java.ask(f"push C-{topic} G-{topic} {topic}")
    stage.received(f"C-{topic}", stage.sent[topic])
    stage.java.ask(f"stop C-{topic}")


@both_tools
def test_group_when_its_queues_moved_three_times_meanwhile_then_it_goes_on_where_it_was(
    stage: Stage, tool: str
) -> None:
    """Its position is in the oldest segment; the queues came back to that set by another way."""
    topic, begun_ms = stage.create(tool, QUEUES, "-b", A), time.time() * 1_000
    name, group = f"C-{topic}", f"G-{topic}"
    stage.send(topic, QUEUES, EACH, 0)
    stage.java.ask(f"push {name} {group} {topic}")
    stage.received(name, stage.sent[topic])
    stage.java.ask(f"stop {name}")
    assert_progress(stage, topic, EACH, begun_ms)
    read = len(stage.sent[topic])
    for number, to in enumerate((B, C, A), 1):
        stage.remap(tool, topic, to)
        stage.send(topic, QUEUES, EACH, number * BLOCK)
        stage.ends_at(topic, QUEUES, number * BLOCK + EACH)
    assert_progress(stage, topic, 3 * BLOCK + EACH, begun_ms)
    stage.java.ask(f"push {name} {group} {topic}")
    stage.received(name, stage.sent[topic][read:])
    stage.java.ask(f"stop {name}")


def assert_progress(stage: Stage, topic: str, end: int, begun_ms: float) -> None:
    """Java's admin library has the group behind its first messages, under logical queues."""

    def is_there() -> bool:
        found = stage.java.group(f"G-{topic}", topic)
        logical = {
            queue: (one.max_offset, one.consumed)
            for queue, one in found.items()
            if one.broker_name == LOGICAL and one.last_ms > begun_ms
        }
        return len(found) == QUEUES and logical == dict.fromkeys(range(QUEUES), (end, EACH))

    # A queue's end is told as soon as it has the message, which may be after the answer.
    wait_until(is_there, SEEN_S, f"the group at {EACH} of {end}")


@both_tools
def test_lists_when_queues_have_moved_on_twice_then_the_first_set_forgets_them(
    stage: Stage, tool: str
) -> None:
    """Without messages its lists go, and the leader's chain is one segment. With messages nothing goes."""
    empty, full = (stage.create(tool, QUEUES, "-b", A) for _ in range(2))
    for number, to in enumerate((B, C), 1):
        stage.send(full, QUEUES, EACH, (number - 1) * BLOCK)
        for topic in (empty, full):
            stage.remap(tool, topic, to)
    stage.send(full, QUEUES, EACH, 2 * BLOCK)
    for topic in (empty, full) if tool == "real" else ():
        # Java's tool never tells the first set where its queues went on; the next of our commands does.
        assert chain(stage.java.hosts(topic, QUEUES)[A], 0) == [(A, 0), (B, -1)]
        stage.admin("ours", "updateLogicalQueueMapping", topic, "-c", CLUSTER_NAME)

    def sizes(topic: str) -> list[list[int]]:
        hosts = stage.java.hosts(topic, QUEUES)
        return [sorted({len(one) for one in hosts[name].hosted.values()}) for name in NAMES]

    # After Java's tool the leader may have cleaned its list before our command asks for it. Then the
    # command can tell the first set nothing but the leader, and the set does not know how often the
    # queues have moved: it goes on passing clients to the leader.
    ends = [[]] if tool == "ours" else [[], [(C, 2 * BLOCK)]]

    def left() -> list[list[tuple[str, int]]]:
        host = stage.java.hosts(empty, QUEUES)[A]
        return [chain(host, queue) for queue in range(QUEUES) if queue in host.hosted] or [[]]

    try:
        wait_until(
            lambda: sizes(empty)[2] == [1] and all(one in ends for one in left()), CLEANED_S,
            "the cleaning",
        )  # fmt: skip
    except WaitTimeout as late:
        raise AssertionError(f"{late}; the first set has {left()}, sizes {sizes(empty)}") from late
    assert {*stage.java.hosts(empty, QUEUES)[B].hosted} == {*range(QUEUES)}
    assert_holds(lambda: sizes(full)[2] == [3] and sizes(full)[0], 3.0, "messages keep their lists")
    stage.java.ask(f"push C-{full} G-{full} {full}")
    stage.received(f"C-{full}", stage.sent[full])
    stage.java.ask(f"stop C-{full}")


@both_tools
def test_ordinary_topic_when_a_static_one_moves_beside_it_then_it_stays_as_it_is(
    stage: Stage, tool: str
) -> None:
    """Physical queues of two sets under their own names, offsets without blocks."""
    plain, static = f"Plain-{tool}", stage.create(tool, QUEUES, "-b", A)
    stage.admin(tool, "updateTopic", plain, "-c", CLUSTER_NAME, "-r", "2", "-w", "2")
    before = stage.java.passed(f"send {PRODUCER} {plain} {EACH} before")
    stage.remap(tool, static, B)
    after = stage.java.passed(f"send {PRODUCER} {plain} {EACH} after")
    places = [(name, queue) for name in NAMES for queue in range(2)]
    for sent, begin in ((before, 0), (after, EACH)):
        offsets = [(one.broker_name, one.queue_id, one.queue_offset) for one in sent]
        assert offsets == [(*at, begin + number) for at in places for number in range(EACH)]
    stage.java.ask(f"push C-{plain} G-{plain} {plain}")
    stage.received(f"C-{plain}", before + after)
    stage.java.ask(f"stop C-{plain}")


@both_tools
def test_client_when_it_has_missed_two_moves_then_after_our_tool_it_is_served(
    stage: Stage, tool: str
) -> None:
    """A request is passed on once. After Java's tool the first set still believes in the second."""
    topic = stage.create(tool, 1, "-b", A)

    def code() -> int:
        question = {"topic": topic, "queueId": 0}
        return wire.invoke(stage.addresses[A], 30, question).code

    stage.remap(tool, topic, B)
    assert code() == wire.SUCCESS
    stage.remap(tool, topic, C)
    assert code() == (wire.SUCCESS if tool == "ours" else NOT_LEADER)
    stage.admin("ours", "updateLogicalQueueMapping", topic, "-c", CLUSTER_NAME)
    assert code() == wire.SUCCESS


def test_queue_when_nobody_decides_where_it_goes_on_then_producers_wait_and_are_refused(
    stage: Stage,
) -> None:
    """Java's new leader would take messages under offsets from 0 on, which the old ones have."""
    topic = stage.create("ours", 2, "-b", A)
    stage.send(topic, 2, EACH, 0)
    assert {*stage.java.ask(f"undecided {topic} {B}").split(",")} == {A, B}
    assert chain(stage.java.unchecked_hosts(topic)[B], 0) == [(A, 0), (B, -1)]
    stage.wait_led(topic, B)
    with pytest.raises(PeerError, match="CODE: 2 "):
        stage.java.ask(f"send P {topic} 1 lost")
    stage.remap("ours", topic, B)
    assert chain(stage.java.hosts(topic, 2)[B], 0) == [(A, 0), (B, BLOCK)]
    stage.send(topic, 2, EACH, BLOCK)
    stage.ends_at(topic, 2, BLOCK + EACH)
    stage.java.ask(f"push C-{topic} G-{topic} {topic}")
    stage.received(f"C-{topic}", stage.sent[topic])
    stage.java.ask(f"stop C-{topic}")
