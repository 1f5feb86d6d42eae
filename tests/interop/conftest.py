"""Fixtures of the interop tests.

Run: ``.venv/bin/python -m pytest tests/interop``; with ``-m "not alone"`` three workers may share it
(``-n 3 --dist loadfile``).
``RMQHA_INTEROP_CONTROLLERS=rmqha|dledger|jraft`` chooses whose controllers are under test (ours by
default); the brokers, the name server and mqadmin are always Java. ``RMQHA_INTEROP_JAVA_LOG=INFO``
makes the Java processes log more; ``RMQHA_INTEROP_KEEP`` names a folder that keeps all logs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqha.testing.real.cluster import Cluster
from rmqha.testing.real.controllers import selected_kind
from tests.interop import required

HERE = Path(__file__).parent
ALONE = {
    "test_controllers", "test_failover", "test_java_clocks", "test_mixed_set", "test_python_replica", "test_reproduce", "test_takeover",
}  # fmt: skip
"""Modules that look at seconds, or whose clusters need both cores: never beside another."""
LONGEST = (
    "test_conversions", "test_static_topics", "test_acl", "test_pipeline_java", "test_live_topics", "test_consumers",
    "test_address_brokers", "test_go_clients", "test_grpc_clients", "test_embedded_controllers", "test_newer_java", "test_namesrv", "test_tls",
)  # fmt: skip
"""Modules of few tests that take a minute or more: where workers share modules, they come first, or one
worker has them all at the end while the others have nothing to do."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder carries the marker and a limit that fits JVM start times."""
    items.sort(key=_turn)
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.interop)
            if item.path.stem in ALONE:
                item.add_marker(pytest.mark.alone)
            if item.get_closest_marker("timeout") is None:  # of its own, or of its file
                item.add_marker(pytest.mark.timeout(240))


def _turn(item: pytest.Item) -> int:
    """Where its module comes in the order; the others keep theirs."""
    is_long = HERE in item.path.parents and item.path.stem in LONGEST
    return LONGEST.index(item.path.stem) if is_long else len(LONGEST)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Put the end of every process' log under a failed test."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    cluster = getattr(item, "funcargs", {}).get("cluster")
    if report.failed and isinstance(cluster, Cluster):
        for child in cluster.children:
            report.sections.append((f"log of {child.name}", child.tail()))
            java_log = child.log.parent / "java.log"
            if java_log.exists():
                text = "\n".join(java_log.read_text(errors="replace").splitlines()[-25:])
                report.sections.append((f"java.log of {child.name}", text))


@pytest.fixture(scope="session")
def kind() -> str:
    """Whose controllers are under test."""
    return selected_kind()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """A folder for the cluster of one module."""
    name = request.module.__name__.rpartition(".")[2]
    kept = os.environ.get("RMQHA_INTEROP_KEEP")
    if kept:
        path = Path(kept) / f"{name}-{time.strftime('%H%M%S')}"
        path.mkdir(parents=True)
        return path
    return tmp_path_factory.mktemp(name)


@pytest.fixture(scope="module")
def shared_cluster(folder: Path, kind: str) -> Iterator[Cluster]:
    """Three 5.3.3 brokers under three controllers, shared by the tests of a module."""
    required.require_classpath()
    with Cluster(folder, kind) as cluster:
        cluster.start()
        yield cluster


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Cluster:
    """The module's cluster, healed: all processes run, all replicas are in sync."""
    shared_cluster.heal()
    return shared_cluster


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic of the test's own."""
    return request.node.name.replace("[", "_").replace("]", "").replace(".", "_")
