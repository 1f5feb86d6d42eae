"""Every server's series carry its labels, each family in the shape that scrapers read."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric

from rmqha.web.aio.series import Series


class Two(Series):
    def collect(self) -> Iterator[Metric]:
        yield self.gauge("depth", "How deep", 3, "bytes", {"disk": "local"})
        yield self.counter("losses", "How often", 2)


def test_series_when_scraped_then_labels_units_and_values() -> None:
    """A family without the process's labels would mix the servers of a cluster up."""
    collected = CollectorRegistry()
    collected.register(Two({"group": "g", "address": "a:1"}))
    page = generate_latest(collected).decode().splitlines()
    assert [line for line in page if not line.startswith("#")] == [
        'depth_bytes{address="a:1",disk="local",group="g"} 3.0',
        'losses_total{address="a:1",group="g"} 2.0',
    ]
    assert "# TYPE depth_bytes gauge" in page
    assert "# HELP losses_total How often" in page
