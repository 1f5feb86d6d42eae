"""Commands that change static topics and die, or lose an answer; the next one finishes."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from msgspec.structs import replace

from rmqha.admin.spec import Here
from rmqha.base.errors import RemoteProtocolError
from rmqha.client.exchange import Unreachable
from rmqha.statictopic.known import PlanRefused, histories
from rmqha.statictopic.rules import topic_error
from tests.admin.driving import HERE
from tests.admin.static_cluster import TOPIC, StaticCluster

WHO = f"-n ns:1 -t {TOPIC}"
CREATE = f"updateStaticTopic {WHO} -b a -qn 4"
DRAIN = f"migrateLogicalQueue {WHO} -fb a"


def later(minutes: int) -> Here:
    """The folder and the hour of a command that comes so much later."""
    return replace(HERE, now_ms=HERE.now_ms + minutes * 60_000)


LATER = later(1)

MASTERS_ASKED = 8
"""Of a drain's calls the one that asks for the masters amid it; it can do without an answer."""


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
    assert at - 1 == 13, "106, three times 351, 105, seven steps, and 106 amid them"
    assert finished > 2


def test_set_that_is_back_when_killed_at_any_call_then_its_segments_come_back_next_time() -> None:
    """Those of a set that was given up too early; who was told first knows more than the leader."""
    again, at, killed = f"updateLogicalQueueMapping {WHO} -c C", 0, True
    while killed:
        cluster = StaticCluster("abc")
        cluster.run(f"updateStaticTopic {WHO} -b a -qn 1")
        cluster.run(f"{DRAIN} -b b", LATER)
        whole = histories(cluster.known())
        gone = cluster.brokers.pop("a")
        cluster.run(f"{again} -fr true", later(2))
        assert len(histories(cluster.known())[0]) == 1
        cluster.brokers["a"] = gone
        killed = cluster.run_killed(again, at, later(3))
        cluster.run(again, later(4))
        assert histories(cluster.known()) == whole
        assert_whole(cluster)
        at += 1
    assert at - 1 == 8, "106, three times 351, 105, and three times 513"


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


@pytest.mark.parametrize("at", [at for at in range(13) if at != MASTERS_ASKED])
def test_drain_when_an_answer_is_lost_then_it_says_so_and_goes_on_next_time(
    created: StaticCluster, at: int
) -> None:
    """The broker has done it, and nobody knows."""
    created.lost = at
    try:
        *_, last = created.run(DRAIN)
    except Unreachable:
        assert at < 5, "while looking around nothing has been done"
    else:
        assert at >= 5
        assert last.plain.startswith("not finished")
        assert (last.data["finished"], len(last.data["steps"])) == (
            False,
            at - 5 - (at > MASTERS_ASKED),
        )
        assert [type(failure) for failure in last.failures] == [Unreachable]
    created.run(DRAIN, LATER)
    assert set(created.leaders().values()) == {"b", "c"}
    assert_whole(created)


@pytest.mark.parametrize(
    ("body", "words"),
    [(b'{"offsetTable":{}}', "does not say where its queue 0 ends"), (b"[]", "")],
)
def test_drain_when_a_broker_answers_without_ends_then_it_says_that_it_is_not_finished(
    created: StaticCluster, monkeypatch: pytest.MonkeyPatch, body: bytes, words: str
) -> None:
    """Others have been told by then: the plan was not refused as a whole."""
    with monkeypatch.context() as amid:
        amid.setattr(created, "_ends", lambda broker, command: body)
        *_, last = created.run(DRAIN)
    assert last.plain.startswith("not finished")
    assert len(last.data["steps"]) > 2
    (failure,) = last.failures
    assert words in str(failure)
    created.run(DRAIN, LATER)
    assert set(created.leaders().values()) == {"b", "c"}
    assert_whole(created)


def test_drain_when_very_many_queues_move_then_each_question_for_ends_names_some(
    created: StaticCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What names none is answered by slaves, too."""
    monkeypatch.setattr("rmqha.admin.static_topic_walk.LOOKED_AT_MAX", 3)
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
