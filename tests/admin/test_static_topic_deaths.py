"""Commands that change static topics and die, or lose an answer; the next one finishes."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from msgspec.structs import replace

from rmqha.base.errors import RemoteProtocolError
from rmqha.client.exchange import Call, Unreachable
from rmqha.remoting.command import RemotingCommand
from rmqha.statictopic.known import PlanRefused, histories
from rmqha.statictopic.rules import topic_error
from tests.admin.driving import HERE
from tests.admin.static_cluster import TOPIC, StaticCluster

WHO = f"-n ns:1 -t {TOPIC}"
CREATE = f"updateStaticTopic {WHO} -b a -qn 4"
DRAIN = f"migrateLogicalQueue {WHO} -fb a"
LATER = replace(HERE, now_ms=HERE.now_ms + 60_000)


@pytest.fixture
def cluster() -> StaticCluster:
    """Three broker sets without the topic."""
    return StaticCluster("abc")


@pytest.fixture
def created(cluster: StaticCluster) -> StaticCluster:
    """Four queues at a, some messages in each."""
    cluster.run(CREATE)
    cluster.brokers["a"].ends = {queue: (0, 4_000 + 2_000 * queue) for queue in range(4)}
    cluster.calls.clear()
    return cluster


def assert_whole(cluster: StaticCluster) -> None:
    """All brokers agree."""
    assert topic_error(cluster.known().details) is None
    assert len(cluster.known().details) == len(cluster.brokers)


@pytest.mark.parametrize("again", [DRAIN, f"updateLogicalQueueMapping {WHO} -c C"])
def test_drain_when_killed_at_any_call_then_any_command_finishes_it(again: str) -> None:
    """The same one ends with a broker that is drained."""
    at, finished = 0, 0
    killed = True
    while killed:
        cluster = StaticCluster("abc")
        cluster.run(CREATE)
        killed = cluster.run_killed(DRAIN, at)
        reports = cluster.run(again, LATER)
        finished += len(reports) == 3 or "unfinished" in reports[0].tables[0].title
        assert_whole(cluster)
        if again == DRAIN:
            assert set(cluster.leaders().values()) == {"b", "c"}
        at += 1
    assert at - 1 == 11, "106, three times 351, and seven steps"
    assert finished > 2


@pytest.mark.parametrize("at", range(8))
def test_create_when_killed_at_any_call_then_the_same_command_finishes_it(
    cluster: StaticCluster, at: int
) -> None:
    """Also where one broker knew of queues of which nobody else did."""
    line = f"updateStaticTopic {WHO} -b b,c -qn 4"
    cluster.run_killed(line, at)
    cluster.run(line, LATER)
    assert cluster.leaders() == {0: "b", 1: "c", 2: "b", 3: "c"}
    assert_whole(cluster)


@pytest.mark.parametrize("at", range(11))
def test_drain_when_an_answer_is_lost_then_it_says_so_and_goes_on_next_time(
    created: StaticCluster, at: int
) -> None:
    """The broker has done it, and nobody knows."""
    created.lost = at
    try:
        *_, last = created.run(DRAIN)
    except Unreachable:
        assert at < 4, "while looking around nothing has been done"
    else:
        assert at >= 4
        assert last.plain.startswith("not finished")
        assert (last.data["finished"], len(last.data["steps"])) == (False, at - 4)
        assert [type(failure) for failure in last.failures] == [Unreachable]
    created.run(DRAIN, LATER)
    assert set(created.leaders().values()) == {"b", "c"}
    assert_whole(created)


def test_drain_when_a_master_fails_over_amid_it_then_the_new_one_is_told(
    created: StaticCluster,
) -> None:
    """Every step may be done twice."""
    walk = created.run(f"migrateLogicalQueue {WHO} -fb a -b b --dry-run")
    assert len(walk) == 1
    created.masters["b"] = "b:2"
    answer, seen = created.answer, []

    def failing_over(call: object) -> object:
        """The list names the old master until somebody has missed it."""
        seen.append(call.address)  # type: ignore[attr-defined]
        created.masters["b"] = "b:2" if "b:1" in seen and seen[-1] != "b:1" else "b:1"
        created.down = {"b:1"} if len(seen) > 4 else set()
        return answer(call)  # type: ignore[arg-type]

    created.answer = failing_over  # type: ignore[method-assign, assignment]
    created.run(f"migrateLogicalQueue {WHO} -fb a -b b")
    assert "b:2" in seen
    assert set(created.leaders().values()) == {"b"}
    assert_whole(created)


def fail_over(cluster: StaticCluster, refusal: str | None) -> None:
    """Set a's master misses the first 513 and is a slave from then on, which lags.

    Args:
        refusal: what it answers to what a master alone may do; None for nothing, as while it stalls,
            and for ends as a Java slave tells them.
    """
    answer = cluster.answer

    def failing_over(call: Call) -> RemotingCommand:
        if call.address != "a:1" or call.command.code not in (202, 513):
            return answer(call)
        if call.command.code == 513:
            cluster.masters["a"] = "a:2"
        if refusal is not None:
            return call.command.reply(1, refusal)
        if call.command.code == 513:
            raise Unreachable("a:1 did not answer")
        broker = cluster.brokers["a"]
        ends, broker.ends = broker.ends, dict.fromkeys(range(4), (0, 100))
        try:
            return call.command.reply(0, body=cluster._ends(broker, call.command))
        finally:
            broker.ends = ends

    cluster.answer = failing_over  # type: ignore[method-assign]


@pytest.mark.parametrize("refusal", [None, "topics are changed at the master only"])
def test_drain_when_the_old_master_is_a_slave_by_now_then_the_new_one_says_where_queues_end(
    created: StaticCluster, refusal: str | None
) -> None:
    """The slave lacks messages that were acknowledged: their offsets would be given again."""
    created.brokers["a"].ends = dict.fromkeys(range(4), (0, 50_000))
    fail_over(created, refusal)
    *_, last = created.run(f"{DRAIN} -b b")
    assert last.data["finished"] is True
    begins = [one[-1].logic_offset for one in histories(created.known()).values()]
    assert begins == [60_000] * 4
    assert_whole(created)


@pytest.mark.parametrize("down", [set(), {"ns:1"}])
def test_drain_when_a_master_refuses_and_there_is_no_other_then_it_says_so(
    created: StaticCluster, down: set[str]
) -> None:
    """Whatever it refused would be refused once more."""
    fail_over(created, "there is no room")
    answer = created.answer

    def named_still(call: Call) -> RemotingCommand:
        found = answer(call)
        created.masters["a"] = "a:1"
        created.down = down if call.command.code == 513 else set()
        return found

    created.answer = named_still  # type: ignore[method-assign]
    *_, last = created.run(f"{DRAIN} -b b")
    assert (last.data["finished"], len(last.data["steps"])) == (False, 1)
    assert "there is no room" in str(last.failures[0])
    assert created.codes()[-1] != ("a", 202)


def test_drain_when_very_many_queues_move_then_each_question_for_ends_names_some(
    created: StaticCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What names none is answered by slaves, too."""
    monkeypatch.setattr("rmqha.admin.static_topics.LOOKED_AT_MAX", 3)
    created.run(f"{DRAIN} -b b")
    asked = [call.command.ext_fields for call in created.calls if call.command.code == 202]
    assert [(one or {})["rmqhaQueueIds"] for one in asked] == ["0,1,2", "3"]
    begins = [one[-1].logic_offset for one in histories(created.known()).values()]
    assert begins == [10_000, 20_000, 20_000, 20_000]


def test_after_file_when_given_again_then_it_is_carried_out(created: StaticCluster) -> None:
    """Java's flag for it does nothing."""
    first, *_ = created.run(f"remappingStaticTopic {WHO} -b b --json")
    (old, new) = first.files.values()
    cluster = StaticCluster("abc")
    cluster.run(CREATE)
    assert _run_file(cluster, new) == dict.fromkeys(range(4), "b")
    cluster.calls.clear()
    assert _run_file(cluster, new) == dict.fromkeys(range(4), "b")
    assert cluster.codes() == []
    with pytest.raises(PlanRefused, match="does not go on from there"):
        _run_file(cluster, old)
    with pytest.raises(RemoteProtocolError):
        _run_file(cluster, b"{}")


def _run_file(cluster: StaticCluster, content: bytes) -> dict[int, str]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "x.after"
        path.write_bytes(content)
        cluster.run(f"remappingStaticTopic {WHO} -mf {path}", LATER)
    assert_whole(cluster)
    return cluster.leaders()
