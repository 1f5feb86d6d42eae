"""The plugin as a user's project sees it: found by its entry point, in a pytest run of its own."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from rmqha.testing.cluster import RmqCluster
from rmqha.testing.external import ExternalCluster

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = re.compile(r"```python\n(.*?)```", re.DOTALL)


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """Run pytest as a user does, in a process of its own."""
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", *arguments)


def test_the_examples_of_the_documentation_pass(pytester: pytest.Pytester) -> None:
    """It is the first thing that a user copies."""
    example, _, shared = EXAMPLE.findall((ROOT / "docs" / "FIXTURE.md").read_text())
    pytester.makepyfile(example + shared)
    run(pytester).assert_outcomes(passed=2)


def test_a_failure_shows_the_seed_the_nodes_and_their_logs(pytester: pytest.Pytester) -> None:
    """Without it nobody knows why a cluster did not do what the test wanted."""
    pytester.makepyfile(
        """
        def test_that_fails(rmq_cluster_factory):
            cluster = rmq_cluster_factory(controllers=1, replicas=2)
            cluster.kill(cluster.wait_for_master())
            assert cluster.seed == 4711
            assert cluster.wait_for_master() is None, "here"
        """
    )
    result = run(pytester, "--rmq-seed=4711")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*AssertionError: here*",
            "*rmq cluster 0*",
            "seed 4711 (in process); run it again with --rmq-seed=4711",
            "files: *rmq-cluster-0",
            "  <broker-? 127.0.0.1:* dead>",
            "controller-0*master_elected*",
            "broker-?*node_killed*",
        ]
    )


def test_a_cluster_that_does_not_form_is_reported_too(pytester: pytest.Pytester) -> None:
    """The fixture itself fails then, and the logs matter most of all."""
    pytester.makepyfile(
        """
        import pytest

        @pytest.fixture
        def cluster(rmq_cluster_factory):
            return rmq_cluster_factory(broker_settings={"listenPort": "none"})

        def test_that_never_begins(cluster):
            pass
        """
    )
    result = run(pytester)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*NodeFailed: broker-? did not start:*listenPort*", "*seed *"])


def test_workers_of_xdist_have_clusters_of_their_own_and_one_seed(
    pytester: pytest.Pytester,
) -> None:
    """Ports that were guessed, or shared directories, would make tests fail together only."""
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("number", range(2))
        @pytest.mark.parametrize("processes", [False, True])
        def test_failover(rmq_cluster_factory, number, processes, tmp_path_factory):
            cluster = rmq_cluster_factory(processes=processes)
            cluster.produce(10)
            cluster.kill(cluster.wait_for_master())
            cluster.produce(10)
            cluster.assert_nothing_lost()
            assert cluster.seed == 99
        """
    )
    result = run(pytester, "-n", "2", "--rmq-seed=99")
    result.assert_outcomes(passed=4)


def test_processes_can_be_asked_for_on_the_command_line(pytester: pytest.Pytester) -> None:
    """The same tests, once quickly and once with real kills."""
    pytester.makepyfile(
        """
        def test_kind(rmq_cluster_factory):
            cluster = rmq_cluster_factory(controllers=1, replicas=1)
            assert cluster.brokers[0].pid > 0
            assert "processes" in cluster.report()
        """
    )
    run(pytester, "--rmq-processes").assert_outcomes(passed=1)


def test_coroutines_have_the_same_verbs(pytester: pytest.Pytester) -> None:
    """A test with an event loop of its own must not block it."""
    pytester.makepyfile(
        """
        import asyncio

        def test_verbs(rmq_cluster_factory):
            cluster = rmq_cluster_factory(controllers=1, replicas=1)

            async def use():
                acked, leader = await asyncio.gather(
                    cluster.aio.produce(3), cluster.aio.wait_for_leader()
                )
                assert leader is cluster.controllers[0]
                assert len(acked) == len(await cluster.aio.consume()) == 3

            asyncio.run(use())
        """
    )
    run(pytester).assert_outcomes(passed=1)


def test_clusters_when_their_tests_have_ended_then_nothing_holds_them(
    pytester: pytest.Pytester,
) -> None:
    """A run of a thousand tests keeps one cluster in memory, not a thousand."""
    pytester.makepyfile(
        """
        import gc
        import weakref

        import pytest

        seen = []

        @pytest.mark.parametrize("number", range(4))
        def test_of_many(rmq_cluster_factory, number):
            gc.collect()
            assert [one for one in seen if one() is not None] == []
            assert len(seen) == number
            seen.append(weakref.ref(rmq_cluster_factory(start=False)))
        """
    )
    pytester.runpytest().assert_outcomes(passed=4)


def test_the_plugin_imports_nothing_heavy() -> None:
    """Every pytest run where rmqha is installed loads it."""
    program = (
        "import sys, pytest; before = set(sys.modules); import rmqha.testing.plugin;"
        "print(*(m for m in set(sys.modules) - before if not m.startswith('rmqha.testing')))"
    )
    got = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    assert set(got.stdout.decode().split()) <= {"rmqha"}


def test_the_report_of_a_failure_fits_a_screen(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had 115 lines; what is not shown is in a file that it names."""
    for name in ("CI", "BUILD_NUMBER"):
        # There pytest itself leaves nothing out.
        monkeypatch.delenv(name, raising=False)
    pytester.makepyfile(
        """
        def test_that_fails(rmq_cluster):
            rmq_cluster.produce([b"x" * 500])
            rmq_cluster.kill(rmq_cluster.wait_for_master())
            rmq_cluster.wait_for_master()
            rmq_cluster.produce(5)
            assert rmq_cluster.acked == []
        """
    )
    result = run(pytester, "--rmq-seed=1")
    result.assert_outcomes(failed=1)
    shown = [line for line in result.outlines if line]
    assert len(shown) <= 60, len(shown)
    assert max(map(len, shown)) <= 200, max(shown, key=len)
    result.stdout.fnmatch_lines(
        [
            "*<acked b'x*... (500 bytes) at TestTopic/?/0 by 127.0.0.1:*>*",
            "  <controller-? 127.0.0.1:* leader alive>",
            "  <broker-0 127.0.0.1:* id 1 dead>",
            "  <broker-? 127.0.0.1:* id ? master alive>",
            "*node_killed*",
            "*master_elected*",
            "all: */all.log",
        ]
    )
    whole = next(line for line in shown if line.startswith("all: ")).removeprefix("all: ")
    assert "raft_store_opened" in Path(whole).read_text()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("produce('a text')", "TypeError: a body is bytes, not 'a text'*"),
        ("produce(b'x', topic='no/topic')", "*RefusedForGood: topic 'no/topic'*"),
        ("kill('broker-7')", "KeyError: \"no node 'broker-7'; there are controller-0*"),
        ("wait_in_sync(9, timeout_s=0.1)", "*NotYet: no whole SyncStateSet within 0.1 s*"),
        ("assert_nothing_lost('Other')", "AssertionError: nothing was ever acknowledged in Other"),
    ],
)
def test_a_mistake_when_made_in_a_test_then_it_is_shown_at_the_tests_own_line(
    pytester: pytest.Pytester, line: str, says: str
) -> None:
    """It was fourteen frames below it."""
    pytester.makepyfile(
        f"""
        def test_that_fails(rmq_cluster_factory):
            cluster = rmq_cluster_factory(controllers=1, replicas=1)
            cluster.{line}
        """
    )
    result = run(pytester)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f">       cluster.{line}", f"E       {says}"])
    frames = [one for one in result.outlines if re.match(r"\S+\.py:\d+: ", one)]
    assert len(frames) == 1, frames


def test_a_session_has_one_cluster_and_every_test_finds_it_whole(
    pytester: pytest.Pytester,
) -> None:
    """A cluster a test is too dear for a suite of hundreds."""
    pytester.makepyfile(
        """
        import pytest

        seen, topics = set(), set()

        @pytest.fixture(scope="session")
        def schema(rmq_session_cluster):
            return rmq_session_cluster.produce(b"first", topic="Schema")

        @pytest.mark.parametrize("number", range(3))
        def test_breaks_it(rmq_shared_cluster, rmq_topic, schema, number):
            cluster = rmq_shared_cluster
            seen.add(id(cluster))
            topics.add(rmq_topic)
            assert all(node.is_alive for node in cluster.nodes)
            assert len(cluster.set_info().sync_state_set) == 3
            assert cluster.consume(rmq_topic) == []
            cluster.produce(4, topic=rmq_topic)
            assert len(cluster.consume(rmq_topic)) == 4
            assert cluster.consume("Schema")[0].body == b"first"
            cluster.kill(cluster.wait_for_master())

        def test_it_was_one():
            assert len(seen) == 1 and len(topics) == 3
            assert all(topic.startswith("test_breaks_it_") for topic in topics)

        def test_that_fails(rmq_shared_cluster):
            assert rmq_shared_cluster is None
        """
    )
    result = run(pytester)
    result.assert_outcomes(passed=4, failed=1)
    result.stdout.fnmatch_lines(["*rmq cluster 0*", "seed *", "  <broker-0 *"])


def test_clusters_when_one_of_them_does_not_close_then_the_others_of_its_test_do(
    pytester: pytest.Pytester,
) -> None:
    """Their threads, ports and processes stayed until the run was over."""
    pytester.makepyfile(
        """
        made = []

        def test_of_three(rmq_cluster_factory):
            made.extend(rmq_cluster_factory(start=False) for _ in range(3))
            close = made[1]._core.close

            async def fails():
                await close()
                raise RuntimeError("the second one does not end well")

            made[1]._core.close = fails

        def test_they_are_closed():
            assert [one._is_closed for one in made] == [True] * 3
        """
    )
    result = run(pytester)
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*RuntimeError: the second one does not end well*"])


def test_a_workload_that_a_failing_test_left_ends_with_that_test(
    pytester: pytest.Pytester,
) -> None:
    """It sent and read on in the tests behind it; and what a fixture of the session has begun goes on."""
    pytester.makepyfile(
        """
        import pytest
        from rmqha.testing.cluster import RmqCluster

        @pytest.fixture(scope="session")
        def rmq_session_cluster(tmp_path_factory):
            with RmqCluster(tmp_path_factory.mktemp("c"), controllers=1, replicas=1) as cluster:
                yield cluster

        @pytest.fixture(scope="session")
        def always(rmq_session_cluster):
            return rmq_session_cluster.workload("Always")

        left = []

        def test_that_fails(always, rmq_shared_cluster, rmq_topic):
            left.append(rmq_shared_cluster.workload(rmq_topic))
            left[0].wait_for_acks(3)
            assert left is None

        def test_behind_it(always, rmq_shared_cluster):
            assert not left[0]._workload.is_sending
            assert left[0]._workload._reading is None
            always.wait_for_acks(3)

        def test_that_does_not_look(rmq_shared_cluster):
            broken = rmq_shared_cluster.workload("no/topic")
            while not broken._workload._sending.done():
                pass

        def test_behind_that(rmq_shared_cluster):
            pass
        """
    )
    result = run(pytester)
    result.assert_outcomes(passed=3, failed=1, errors=1)
    result.stdout.fnmatch_lines(
        ["*ERROR at teardown of test_that_does_not_look*", "*RefusedForGood: topic 'no/topic'*"]
    )


@pytest.mark.parametrize("way", ["option", "environment"])
def test_a_session_uses_the_cluster_that_it_is_told_of_and_leaves_it_whole(
    pytester: pytest.Pytester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """A team's staging cluster: its topics keep their queues, and are there afterwards."""
    pytester.makepyfile(
        """
        import pytest
        from rmqha.testing.external import NotOurs

        def test_messages(rmq_shared_cluster, rmq_topic):
            cluster = rmq_shared_cluster
            assert cluster.master().name == "broker-a"
            sent = cluster.produce(10, topic=rmq_topic)
            assert {one.queue_id for one in sent} == {0, 1, 2, 3}
            cluster.assert_nothing_lost(rmq_topic)
            with open("made", "w") as file:
                file.write(rmq_topic)

        def test_a_topic_that_was_there(rmq_shared_cluster):
            sent = rmq_shared_cluster.produce(10, topic="Theirs")
            assert {one.queue_id for one in sent} == {0, 1}
            assert len(rmq_shared_cluster.consume("Theirs")) == 10

        def test_breaking_it_is_refused(rmq_shared_cluster):
            with pytest.raises(NotOurs, match="kill: the cluster at .* was not started by"):
                rmq_shared_cluster.kill("broker-0")

        def test_that_fails(rmq_shared_cluster):
            assert rmq_shared_cluster is None
        """
    )
    with RmqCluster(tmp_path / "theirs", controllers=1, replicas=1, processes=True) as theirs:
        master = theirs.wait_for_master()
        run_mqadmin(f"updateTopic -n {theirs.namesrv_addr} -b {master.address} -t Theirs -r 2 -w 2")
        options = [f"--rmq-namesrv={theirs.namesrv_addr}", "--rmq-broker-name=broker-a"]
        if way == "environment":
            monkeypatch.setenv("RMQHA_TEST_NAMESRV", theirs.namesrv_addr)
            options = []
        result = run(pytester, *options)
        result.assert_outcomes(passed=3, failed=1)
        result.stdout.fnmatch_lines(
            [f"external cluster at {theirs.namesrv_addr}: Elsewhere(name='broker-a', *"]
        )
        assert master.is_alive
        with closing(ExternalCluster(theirs.namesrv_addr)) as looking:
            assert len(looking.consume("Theirs")) == 10
        made = (pytester.path / "made").read_text()
        topics = run_mqadmin(f"topicList -n {theirs.namesrv_addr}").split()
        assert made not in topics
        assert "Theirs" in topics


def run_mqadmin(line: str) -> str:
    """What mqadmin prints."""
    command = [sys.executable, "-m", "rmqha.cli.mqadmin", *line.split()]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_an_external_cluster_that_is_not_there_is_named(pytester: pytest.Pytester) -> None:
    """Not an error of a socket twenty frames deep."""
    pytester.makepyfile("def test_it(rmq_shared_cluster): pass")
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    result = run(pytester, f"--rmq-namesrv={address}")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*NotYet: no master at {address} within 10 s; *"])


def test_one_node_can_have_settings_of_its_own(pytester: pytest.Pytester) -> None:
    """A broker that is never elected, one slow controller: tests are about such."""
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("processes", [False, True])
        def test_a_learner(rmq_cluster_factory, processes):
            cluster = rmq_cluster_factory(
                controllers=1, replicas=2, processes=processes,
                broker_settings={"maxMessageSize": 1000},
                node_settings={"broker-0": {"maxMessageSize": 3000}},
            )
            assert repr(cluster.brokers[0]).endswith("id 1 master alive>")
            assert repr(cluster.brokers[1]).endswith("id 2 slave alive>")
            cluster.produce([b"x" * 2000])
            cluster.kill(cluster.brokers[0])
            assert cluster.wait_for_master() is cluster.brokers[1]
            with pytest.raises(AssertionError, match="13"):
                cluster.produce([b"x" * 2000])

        @pytest.mark.parametrize(
            ("given", "says"),
            [
                ({"broker-3": {}}, "settings for 'broker-3'; there are controller-0, .*broker-2"),
                ({"broker-1": {"flushDiskTyp": 1}}, "no broker has a setting 'flushDiskTyp'"),
            ],
        )
        def test_slips(rmq_cluster_factory, given, says):
            with pytest.raises(ValueError, match=says):
                rmq_cluster_factory(node_settings=given)
        """
    )
    run(pytester).assert_outcomes(passed=4)


def test_a_message_that_was_read_has_its_properties_by_name(pytester: pytest.Pytester) -> None:
    """They were bytes with control characters between."""
    pytester.makepyfile(
        """
        def test_properties(rmq_cluster_factory):
            cluster = rmq_cluster_factory(controllers=1, replicas=1)
            cluster.produce([b"one"])
            (one,) = cluster.consume()
            assert one.texts()["KEYS"] == "1"
            assert repr(one).startswith("<stored b'one' at TestTopic/")
        """
    )
    run(pytester).assert_outcomes(passed=1)
