"""Series that every server has: which release runs, and what its process takes."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping

from prometheus_client import ProcessCollector
from prometheus_client.core import InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from rmqha import __version__

BUILD = {"version": __version__, "python": platform.python_version()}


class OfProcess(Collector):
    """``rmqha_build_info`` and prometheus_client's ``process_...``.

    Args:
        labels: of every series.
    """

    def __init__(self, labels: Mapping[str, str]) -> None:
        self._labels = dict(labels)
        self._inner = ProcessCollector(registry=None)

    def collect(self) -> Iterator[Metric]:
        """All families, as prometheus_client asks for them."""
        build = InfoMetricFamily("rmqha_build", "The release that runs, and on which Python")
        build.add_metric([], BUILD)
        for family in (build, *self._inner.collect()):
            family.samples = [
                one._replace(labels={**self._labels, **one.labels}) for one in family.samples
            ]
            yield family
