"""The Prometheus series of one name server; Java's has none, so the names are our own.

Made when somebody asks; imported only when ``metricsExporterType=PROM``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from rmqha.namesrv.figures import NamesrvFigures, Scrape
from rmqha.remoting.codes import request_name
from rmqha.web.aio.series import Series


class Collector(Series):
    """Makes Prometheus families.

    Args:
        labels: of every series.
        scrape: looks, in turns of the thread that owns the tables.
    """

    def __init__(self, labels: dict[str, str], scrape: Callable[[], Scrape]) -> None:
        super().__init__(labels)
        self._scrape = scrape

    def collect(self) -> Iterator[Metric]:
        """All families, as prometheus_client asks for them."""
        found = self._scrape()
        yield from self._sets(found.figures)
        yield self.gauge("namesrv_topic_num", "Topics that are listed", found.figures.topics)
        yield self.gauge("namesrv_route_num", "Pairs of topic and broker set", found.figures.routes)
        yield self.gauge("namesrv_kv_config", "KV configuration", found.figures.kv_bytes, "bytes")
        yield self.gauge("namesrv_connection_num", "Open connections", found.connections)
        requests = CounterMetricFamily(
            "namesrv_request", "Requests taken in", labels=[*self.names, "request_type"]
        )
        for code, number in sorted(found.requests.items()):
            requests.add_metric([*self.values, request_name(code)], number)
        yield requests
        yield self.counter(
            "namesrv_protocol_error", "Connections that sent garbage", found.protocol_errors
        )
        yield self.counter(
            "namesrv_notification_lost", "905s that were not sent", found.notifications_lost
        )

    def _sets(self, found: NamesrvFigures) -> Iterator[Metric]:
        names = [*self.names, "cluster", "broker_set"]
        brokers = GaugeMetricFamily("namesrv_broker_num", "Registered brokers", labels=names)
        masters = GaugeMetricFamily("namesrv_master_num", "Masters: 0 or 1", labels=names)
        topics = GaugeMetricFamily(
            "namesrv_set_topic_num", "Topics that a set is registered with", labels=names
        )
        silent = GaugeMetricFamily(
            "namesrv_broker_silence", "Since the most silent broker was heard", labels=names,
            unit="seconds",
        )  # fmt: skip
        for one in found.sets:
            labels = [*self.values, one.cluster_name, one.broker_name]
            brokers.add_metric(labels, one.brokers)
            masters.add_metric(labels, one.masters)
            silent.add_metric(labels, one.silent_ms / 1000)
            topics.add_metric(labels, one.topics)
        yield from (brokers, masters, silent, topics)
