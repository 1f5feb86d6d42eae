"""A cluster of somebody else: workers do not get in each other's way, and it is left as it was."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rmqha.base.errors import ConnectionLost
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.testing.client import NotYet
from rmqha.testing.cluster import RmqCluster
from rmqha.testing.external import ExternalCluster
from rmqha.testing.topics import Queues
from tests.testing.asking import ask, make_topic, topic_at

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RmqCluster]:
    """Their cluster: one broker."""
    with RmqCluster(tmp_path_factory.mktemp("theirs"), controllers=1, replicas=1) as cluster:
        cluster.produce(1, topic="Warm")
        cluster.consume("Warm")
        yield cluster


def tables(cluster: RmqCluster) -> tuple[list[str], list[str]]:
    """Topics and groups that the master has."""
    topics = json.loads(ask(cluster, RequestCode.GET_ALL_TOPIC_CONFIG).body)["topicConfigTable"]
    groups = json.loads(ask(cluster, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body)
    return sorted(topics), sorted(groups["subscriptionGroupTable"])


def test_workers_when_the_first_of_them_ends_then_the_others_messages_stay(
    theirs: RmqCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It deleted the topic that all of them use where a test names none."""
    found = []
    for worker in ("gw0", "gw1"):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
        found.append(ExternalCluster(theirs.namesrv_addr))
    first, second = found
    with closing(second):
        mine = first.produce(3)
        (others,) = second.produce(1)
        assert mine[0].topic.startswith("TestTopic_gw0")
        assert others.topic.startswith("TestTopic_gw1")
        assert len(first.consume()) == 3
        first.close()
        assert len(second.consume()) == 1
        second.assert_nothing_lost()


def test_cluster_when_a_run_ends_then_no_topic_and_no_group_of_it_is_left(
    theirs: RmqCluster,
) -> None:
    """It is a team's, and is left as it was found."""
    before = tables(theirs)
    with closing(ExternalCluster(theirs.namesrv_addr)) as cluster:
        cluster.produce(8, in_flight=4)
        cluster.produce(1, topic="Named")
        assert len(cluster.consume()) == 8
        assert tables(theirs) != before
    assert tables(theirs) == before


def test_topic_when_it_is_theirs_then_its_queues_are_used_and_nothing_is_made(
    theirs: RmqCluster,
) -> None:
    """Six queues stay six; a topic that nobody has holds nothing."""
    make_topic(theirs, "Six", Queues(6, 6))
    make_topic(theirs, "Seven", Queues(7, 7))
    theirs.produce(1, topic="Six")
    with closing(ExternalCluster(theirs.namesrv_addr)) as cluster:
        assert {one.queue_id for one in cluster.produce(12, topic="Six")} == set(range(6))
        assert len(cluster.consume("Six")) == 13
        workload = cluster.workload("Seven")
        workload.wait_for_acks(14)
        ledger = workload.stop()
        assert (len(ledger.ends), ledger.lost, ledger.pending) == (7, [], 0)
        assert cluster.consume("Nobodys") == []
    assert topic_at(theirs, "Nobodys") is None
    made = topic_at(theirs, "Six")
    assert made is not None
    assert made["writeQueueNums"] == 6


@pytest.mark.parametrize("how", ["refused", "unanswered"])
def test_topics_when_one_cannot_be_deleted_then_the_others_are_and_it_is_named(
    theirs: RmqCluster, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The first failure left all that came behind it."""
    cluster = ExternalCluster(theirs.namesrv_addr)
    stays, *others = (f"{how}{number}" for number in range(3))
    for topic in (stays, *others):
        cluster.produce(1, topic=topic)
    real = cluster._core.client.ask

    async def failing(address: str, code: int, fields: object = None, *more: object) -> object:
        if code == RequestCode.DELETE_TOPIC_IN_BROKER and fields == {"topic": stays}:
            if how == "unanswered":
                raise ConnectionLost("gone")
            return RemotingCommand(ResponseCode.SYSTEM_ERROR, remark="gone")
        return await real(address, code, fields, *more)

    monkeypatch.setattr(cluster._core.client, "ask", failing)
    with pytest.raises(NotYet, match=rf"^left there: topic {stays} \([^,]*gone\)$"):
        cluster.close()
    topics, _ = tables(theirs)
    assert [one for one in topics if one.startswith(how)] == [stays]
    assert ask(theirs, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": stays}).code == 0


def test_cluster_when_closed_then_its_report_says_so_and_verbs_do(theirs: RmqCluster) -> None:
    """The report of a failing teardown comes after the end."""
    cluster = ExternalCluster(theirs.namesrv_addr)
    cluster.close()
    cluster.close()
    assert cluster.report() == f"external cluster at {theirs.namesrv_addr}: closed"
    with pytest.raises(ValueError, match=r"^the rmqha external cluster is closed$"):
        cluster.produce(1)


def test_run_when_a_teardown_fails_then_it_is_an_error_of_that_test(
    theirs: RmqCluster, pytester: pytest.Pytester
) -> None:
    """The run ended with an INTERNALERROR, and no test was told of."""
    pytester.makepyfile(
        """
        import pytest

        @pytest.fixture(scope="session")
        def service():
            yield
            raise RuntimeError("my own service did not end well")

        def test_one(rmq_shared_cluster, rmq_topic, service):
            rmq_shared_cluster.produce([b"1"], topic=rmq_topic)
        """
    )
    result = pytester.runpytest_subprocess(
        "-p", "no:cacheprovider", f"--rmq-namesrv={theirs.namesrv_addr}"
    )
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*my own service did not end well*", "*external cluster at *"])
    result.stdout.no_fnmatch_line("*INTERNALERROR*")


def test_report_when_it_fails_itself_then_the_tests_own_failure_is_shown(
    pytester: pytest.Pytester, tmp_path: Path
) -> None:
    """What is said beside a failure must not take its place."""
    pytester.makepyfile(
        """
        def test_that_fails(rmq_cluster_factory):
            cluster = rmq_cluster_factory(controllers=1, replicas=0)
            cluster.report = None
            assert cluster.seed is None, "here"
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", f"--basetemp={tmp_path / 'b'}")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*AssertionError: here*", "no report: TypeError*"])
    result.stdout.no_fnmatch_line("*INTERNALERROR*")
