"""The plugin as a user's project sees it: found by its entry point, in a pytest run of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = re.compile(r"```python\n(.*?)```", re.DOTALL)


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """Run pytest as a user does, in a process of its own."""
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", *arguments)


def test_the_example_of_the_documentation_passes(pytester: pytest.Pytester) -> None:
    """It is the first thing that a user copies."""
    (example,) = EXAMPLE.findall((ROOT / "docs" / "FIXTURE.md").read_text())
    pytester.makepyfile(example)
    run(pytester).assert_outcomes(passed=1)


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


def test_the_plugin_imports_nothing_heavy() -> None:
    """Every pytest run where rmqha is installed loads it."""
    program = (
        "import sys, pytest; before = set(sys.modules); import rmqha.testing.plugin;"
        "print(*(m for m in set(sys.modules) - before if not m.startswith('rmqha.testing')))"
    )
    got = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    assert set(got.stdout.decode().split()) <= {"rmqha"}
