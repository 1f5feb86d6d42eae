"""The pytest plugin: clusters as fixtures. pytest finds it by its entry point ``rmqha``.

Nothing heavy is imported here: every pytest run of an environment that has rmqha loads this file.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from rmqha.testing.cluster import RmqCluster

SEED_BITS = 31
REPORT_LINES = 120
CLUSTERS: pytest.StashKey[list[RmqCluster]] = pytest.StashKey()
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
    made: list[RmqCluster] = request.node.stash.setdefault(CLUSTERS, [])

    def make(*, start: bool = True, **more: Any) -> RmqCluster:
        more.setdefault("seed", config.stash[SEED])
        more.setdefault("processes", config.getoption("--rmq-processes"))
        cluster = RmqCluster(tmp_path / f"rmq-cluster-{len(made)}", **more)
        made.append(cluster)
        return cluster.start() if start else cluster

    yield make
    for cluster in reversed(made):
        cluster.close()


@pytest.fixture
def rmq_cluster(rmq_cluster_factory: Factory) -> RmqCluster:
    """Three controllers, a name server and three replicas: all in sync, with a master."""
    return rmq_cluster_factory()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Show the seed and what the nodes said when a test with clusters fails."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]  # pluggy's Result
    if report.failed:
        clusters: list[RmqCluster] = item.stash.get(CLUSTERS, [])
        for number, cluster in enumerate(clusters):
            report.sections.append((f"rmq cluster {number}", cluster.report(REPORT_LINES)))
