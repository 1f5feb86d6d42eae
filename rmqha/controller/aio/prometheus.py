"""The Prometheus page of one controller, under Java's metric names.

Made when somebody asks; imported only when ``metricsExporterType=PROM``. Source:
ControllerMetricsConstant of RocketMQ 5.1.2 to 5.5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from rmqha.controller.aio.metrics import BUCKETS_US, ControllerMetrics
from rmqha.controller.metadata.answers import ELECTION_RESULTS
from rmqha.controller.metadata.status import Status
from rmqha.remoting.codes import ResponseCode, request_name
from rmqha.web.aio.series import Series

NOBODY = ELECTION_RESULTS[ResponseCode.CONTROLLER_ELECT_MASTER_FAILED]
# Java's numbers: unknown 0, candidate 1, follower 2, leader 3.
ROLES = {"stopped": 0, "pre_candidate": 1, "candidate": 1, "follower": 2, "leader": 3}


class Collector(Series):
    """Makes Prometheus families of one node's counters.

    Args:
        metrics: the counters.
        labels: address, group, peer_id and those of ``metricsLabel``.
        status: the machine's figures, asked for at each scrape.
        disk_usage: bytes of log and snapshots.
        is_removed: whether this node knows that it is no member any more: then it has no role.
    """

    def __init__(
        self,
        metrics: ControllerMetrics,
        labels: dict[str, str],
        status: Callable[[], Status],
        disk_usage: Callable[[], int],
        is_removed: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(labels)
        self._metrics = metrics
        self._status = status
        self._disk_usage = disk_usage
        self._is_removed = is_removed

    def collect(self) -> Iterator[Metric]:
        """All families, as prometheus_client asks for them."""
        metrics, names, values = self._metrics, self.names, self.values
        status = self._status()
        role = 0 if self._is_removed() else ROLES.get(metrics.role, 0)
        yield self.gauge("role", "Raft role: 0 none, 1 candidate, 2 follower, 3 leader", role)
        yield from self._raft()
        usage = self._disk_usage()
        yield self.gauge("dledger_disk_usage", "Bytes of log and snapshots", usage, "bytes")
        yield from self._sets(status)
        requests = CounterMetricFamily(
            "request", "Requests taken in", labels=[*names, "request_type", "request_handle_status"]
        )
        for code, number in enumerate(metrics.requests):
            if number:
                # Java's success means that the handler raised nothing, not response code 0.
                requests.add_metric([*values, request_name(code), "success"], number)
        yield requests
        yield self._elections(status)
        yield self._latencies()
        yield self._operations()
        yield self._operation_latency()

    def _raft(self) -> Iterator[Metric]:
        """What Java has no names for."""
        metrics = self._metrics
        yield self.counter(
            "rmqha_raft_leader_changes", "Leaders that replaced another one", metrics.leader_changes
        )
        yield self.counter(
            "rmqha_raft_unproven_peers", "Connections of controllers that proved no raftSecret",
            metrics.unproven,
        )  # fmt: skip
        yield from self._probes()
        for name, text, value in (
            ("rmqha_raft_voter", "0 while the store is new or being caught up", metrics.may_vote),
            (
                "rmqha_raft_members",
                "Controllers in the group, those that join too",
                metrics.members,
            ),
            ("rmqha_raft_voters", "Controllers that majorities are made of", metrics.voters),
            ("rmqha_raft_no_space", "1 while the disk is full", metrics.no_space),
            (
                "rmqha_raft_election_timeout_milliseconds",
                "Silence after which this node asks for votes, widened where all is slow",
                metrics.election_timeout_ms,
            ),
        ):
            yield self.gauge(name, text, value)

    def _probes(self) -> Iterator[Metric]:
        probes = self._metrics.probes
        for name, text, value in (
            ("sent", "Silent masters that were asked for an answer", probes.sent),
            ("unanswered", "Probes without an answer in time", probes.unanswered),
            ("held", "Masters that another controller hears", probes.held),
            ("elections", "Elections begun for an unanswered probe", probes.elections),
        ):
            yield self.counter(f"rmqha_probes_{name}", text, value)

    def _sets(self, status: Status) -> Iterator[Metric]:
        """One series a set; who has a master only the leader says, for others may not have heard."""
        names = [*self.names, "cluster", "broker_set"]
        active = GaugeMetricFamily("active_broker_num", "Living brokers", labels=names)
        led = GaugeMetricFamily("rmqha_set_has_master", "1 while a set has a master", labels=names)
        for one in status["broker_sets"]:
            labels = [*self.values, one["cluster"], one["broker_name"]]
            active.add_metric(labels, one["active_brokers"])
            if status["is_leader"]:
                led.add_metric(labels, int(one["master_broker_id"] is not None))
        yield active
        yield led

    def _elections(self, status: Status) -> Metric:
        """Of each set what has been, and how often nobody was elected, be it never: an alert does not see
        the first one of a series that begins with it."""
        family = CounterMetricFamily(
            "election",
            "Elections by result",
            labels=[*self.names, "cluster", "broker_set", "election_result"],
        )
        never = {(one["cluster"], one["broker_name"], NOBODY): 0 for one in status["broker_sets"]}
        counts = {
            (one["cluster"], one["broker_set"], one["election_result"]): one["count"]
            for one in status["elections"]
        }
        for key, count in (never | counts).items():
            family.add_metric([*self.values, *key], count)
        return family

    def _latencies(self) -> Metric:
        family = HistogramMetricFamily(
            "request_latency",
            "Requests that waited for the log or a read round",
            labels=[*self.names, "request_type"],
            unit="us",
        )
        for code, counts in sorted(self._metrics.latencies.items()):
            family.add_metric(
                [*self.values, request_name(code)],
                _cumulated(counts),
                self._metrics.latency_sums_us[code],
            )
        return family

    def _operations(self) -> Metric:
        family = CounterMetricFamily(
            "dledger_op",
            "Proposals to the log by outcome",
            labels=[*self.names, "dledger_operation", "dLedger_operation_status"],
        )
        committed = sum(self._metrics.append_latency)
        family.add_metric([*self.values, "append", "success"], committed)
        family.add_metric([*self.values, "append", "failed"], self._metrics.appends_failed)
        return family

    def _operation_latency(self) -> Metric:
        family = HistogramMetricFamily(
            "dledger_op_latency",
            "From proposing to having applied",
            labels=[*self.names, "dledger_operation"],
            unit="us",
        )
        family.add_metric(
            [*self.values, "append"],
            _cumulated(self._metrics.append_latency),
            self._metrics.append_latency_sum_us,
        )
        return family


def _cumulated(counts: list[int]) -> list[tuple[str, float]]:
    """Prometheus buckets: each holds all that were at most so long."""
    bounds = [*map(str, BUCKETS_US), "+Inf"]
    return list(zip(bounds, accumulate(counts), strict=True))
