"""The pytest plugin: clusters as fixtures. pytest finds it by its entry point ``rmqha``.

Nothing heavy is imported here: every pytest run of an environment that has rmqha loads this file.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from rmqha.testing.cluster import RmqCluster
    from rmqha.testing.external import ExternalCluster

SEED_BITS = 31
REPORT_LINES = 20
"""With the states of the nodes, what a screen shows; the rest is in a file that the report names."""
EXTERNAL = "RMQHA_TEST_NAMESRV"
CLUSTERS: pytest.StashKey[list[RmqCluster | ExternalCluster]] = pytest.StashKey()
"""The clusters that a test has had, for the report of its failure."""
SEED: pytest.StashKey[int] = pytest.StashKey()

Factory = Callable[..., "RmqCluster"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("rmqha", "RocketMQ clusters as fixtures")
    group.addoption(
        "--rmq-seed", type=int, default=None, metavar="N",
        help="seed of every cluster's random choices; drawn anew and shown on failure by default",
    )  # fmt: skip
    group.addoption(
        "--rmq-processes", action="store_true", default=False,
        help="run each node of the clusters in a process of its own, unless a test says otherwise",
    )  # fmt: skip
    group.addoption(
        "--rmq-namesrv", default=None, metavar="HOST:PORT;...",
        help="name servers of a cluster that runs already, for rmq_shared_cluster and"
        f" rmq_session_cluster; else the environment's {EXTERNAL}, else they start one",
    )  # fmt: skip
    group.addoption(
        "--rmq-broker-name", default=None, metavar="NAME",
        help="the broker set to use of that cluster; its first by default",
    )  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    """Draw the seed; xdist workers take their controller's."""
    workerinput = getattr(config, "workerinput", None)
    if workerinput is not None:
        seed = workerinput["rmq_seed"]
    else:
        seed = config.getoption("--rmq-seed")
        seed = random.SystemRandom().getrandbits(SEED_BITS) if seed is None else seed
    config.stash[SEED] = seed


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell an xdist worker the seed."""
    node.workerinput["rmq_seed"] = node.config.stash[SEED]


@pytest.fixture
def rmq_cluster_factory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Factory]:
    """Make clusters: ``rmq_cluster_factory(controllers=3, replicas=3, namesrv=1, ...)``.

    Each is started, and ended with the test. The arguments are those of
    :class:`rmqha.testing.cluster.RmqCluster`, its folder left out; ``start=False`` leaves the
    start to the test.
    """
    from rmqha.testing.cluster import RmqCluster

    config = request.config
    known = request.node.stash.setdefault(CLUSTERS, [])
    made: list[RmqCluster] = []

    def make(*, start: bool = True, **more: Any) -> RmqCluster:
        more.setdefault("seed", config.stash[SEED])
        more.setdefault("processes", config.getoption("--rmq-processes"))
        cluster = RmqCluster(tmp_path / f"rmq-cluster-{len(made)}", **more)
        made.append(cluster)
        known.append(cluster)
        return cluster.start() if start else cluster

    with ExitStack() as at_end:  # one that does not close keeps no other from it
        yield make
        for cluster in made:
            at_end.callback(cluster.close)


@pytest.fixture
def rmq_cluster(rmq_cluster_factory: Factory) -> RmqCluster:
    """Three controllers, a name server and three replicas: all in sync, with a master."""
    return rmq_cluster_factory()


@pytest.fixture(scope="session")
def rmq_session_cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RmqCluster | ExternalCluster]:
    """One cluster for the whole run (of a worker), for fixtures that live as long.

    With ``--rmq-namesrv``, or ``RMQHA_TEST_NAMESRV`` in the environment, it is the cluster there.
    Tests take ``rmq_shared_cluster``, which is this one, and whole.
    """
    from rmqha.testing.cluster import RmqCluster
    from rmqha.testing.external import ExternalCluster

    config = request.config
    address = config.getoption("--rmq-namesrv") or os.environ.get(EXTERNAL)
    cluster: RmqCluster | ExternalCluster
    if address:
        cluster = ExternalCluster(address, config.getoption("--rmq-broker-name"))
    else:
        cluster = RmqCluster(
            tmp_path_factory.mktemp("rmq-session-cluster"),
            seed=config.stash[SEED],
            processes=config.getoption("--rmq-processes"),
        )
    try:
        if isinstance(cluster, RmqCluster):
            cluster.start()
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
def rmq_shared_cluster(
    request: pytest.FixtureRequest, rmq_session_cluster: RmqCluster | ExternalCluster
) -> Iterator[RmqCluster | ExternalCluster]:
    """The run's one cluster; what the test before broke of it is mended first.

    Workloads that a test began and did not stop end with it; what broke one is that test's error.
    """
    from rmqha.testing.cluster import RmqCluster

    request.node.stash.setdefault(CLUSTERS, []).append(rmq_session_cluster)
    if isinstance(rmq_session_cluster, RmqCluster):
        rmq_session_cluster.heal()
    with rmq_session_cluster.ending_workloads():
        yield rmq_session_cluster


@pytest.fixture
def rmq_topic(request: pytest.FixtureRequest) -> str:
    """A topic's name that no other test has; the first message creates the topic."""
    from rmqha.testing.verbs import new_topic

    return new_topic(request.node.name)


def _report(cluster: RmqCluster | ExternalCluster) -> str:
    """What a cluster says of itself. An error here would end the whole run, for pytest's own code
    is above, and would hide the failure that is told of."""
    try:
        return cluster.report(REPORT_LINES, all_lines=False)
    except Exception as error:  # noqa: BLE001  # shown in the report's place
        return f"no report: {error!r}"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Show the seed and what the nodes said when a test with clusters fails."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]  # pluggy's Result
    if report.failed:
        clusters = item.stash.get(CLUSTERS, [])
        for number, cluster in enumerate(clusters):
            report.sections.append((f"rmq cluster {number}", _report(cluster)))
    if report.when == "teardown" and CLUSTERS in item.stash:
        # pytest keeps every item until the run ends, and a cluster holds megabytes.
        del item.stash[CLUSTERS]
