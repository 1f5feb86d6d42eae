"""What the Prometheus series of all servers have in common: labels, and families of one value.

Imported only when ``metricsExporterType=PROM``.
"""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class Series(Collector):
    """A server's series; subclasses say which in ``collect``.

    Args:
        labels: of every series.

    Attributes:
        names, values: the labels, for families with more of them.
    """

    def __init__(self, labels: Mapping[str, str]) -> None:
        self.names = list(labels)
        self.values = list(labels.values())

    def gauge(
        self, name: str, text: str, value: float, unit: str = "",
        more: Mapping[str, str] | None = None,
    ) -> Metric:  # fmt: skip
        """A gauge of one value; ``more`` are further labels."""
        more = more or {}
        family = GaugeMetricFamily(name, text, labels=[*self.names, *more], unit=unit)
        family.add_metric([*self.values, *more.values()], float(value))
        return family

    def counter(self, name: str, text: str, value: float) -> Metric:
        """A counter of one value."""
        family = CounterMetricFamily(name, text, labels=self.names)
        family.add_metric(self.values, value)
        return family
