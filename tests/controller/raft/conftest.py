"""Ends the groups that a test has made; their loops and tasks would warn at odd moments."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.controller.raft.cluster import Cluster


@pytest.fixture(autouse=True)
def close_clusters() -> Iterator[None]:
    """Close every group of this test."""
    yield
    while Cluster.alive:
        Cluster.alive.pop().close()
