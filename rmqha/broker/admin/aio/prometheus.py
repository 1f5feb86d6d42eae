"""The Prometheus series of one broker: those of Java's names that it can tell, and a few of its own.

Made when somebody asks; imported only when ``metricsExporterType=PROM``. Source:
BrokerMetricsConstant and DefaultStoreMetricsConstant of RocketMQ 5.1 to 5.5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from rmqha.broker.admin.runtime_info import Facts
from rmqha.broker.admin.scrape import Scrape
from rmqha.broker.topics.group_table import SYSTEM_PREFIX
from rmqha.ha.busy_wait import ANSWERED, SHARED, VAIN
from rmqha.remoting.topic_names import RETRY_PREFIX, is_system_topic
from rmqha.web.aio.series import Series

_STORAGE = {"storage_medium": "disk", "storage_type": "local"}


class Collector(Series):
    """Makes Prometheus families.

    Args:
        labels: of every series.
        scrape: looks, in the thread that owns the tables.
    """

    def __init__(self, labels: dict[str, str], scrape: Callable[[], Scrape]) -> None:
        super().__init__(labels)
        self._scrape = scrape

    def collect(self) -> Iterator[Metric]:
        """All families, as prometheus_client asks for them."""
        found = self._scrape()
        yield self.gauge("rocketmq_broker_permission", "brokerPermission", found.permission)
        yield self.gauge("rocketmq_topic_number", "Topics", found.topics)
        yield self.gauge("rocketmq_consumer_group_number", "Subscription groups", found.groups)
        yield from self._messages(found)
        yield self._lags(found)
        yield from self._storage(found)
        yield from self._own(found)

    def _messages(self, found: Scrape) -> Iterator[Metric]:
        names = [*self.names, "topic", "is_system"]
        written = CounterMetricFamily("rocketmq_messages_in", "Messages written", labels=names)
        for topic, count in sorted(found.written.items()):
            written.add_metric([*self.values, topic, _is_system(topic)], count)
        yield written
        names = [*names, "consumer_group"]
        read = CounterMetricFamily("rocketmq_messages_out", "Messages given out", labels=names)
        for (topic, group), count in sorted(found.read.items()):
            labels = [*self.values, topic, _is_system(topic, group), group]
            read.add_metric(labels, count)
        yield read

    def _lags(self, found: Scrape) -> Metric:
        names = [*self.names, "topic", "consumer_group", "is_retry", "is_system"]
        family = GaugeMetricFamily(
            "rocketmq_consumer_lag_messages", "Messages that a group has before it", labels=names
        )
        for lag in found.lags:
            is_retry = str(lag.topic.startswith(RETRY_PREFIX)).lower()
            labels = [lag.topic, lag.group, is_retry, _is_system(lag.topic, lag.group)]
            family.add_metric([*self.values, *labels], lag.messages)
        return family

    def _storage(self, found: Scrape) -> Iterator[Metric]:
        facts = found.facts
        total, free = facts.disk_space or (0, 0)
        age_ms = max(0, facts.now_ms - facts.earliest_ms) if facts.earliest_ms >= 0 else 0
        for name, text, value, unit in (
            ("storage_size", "Bytes in use on the disk", total - free, "bytes"),
            ("storage_flush_behind", "Not on disk yet",
             max(0, facts.max_offset - facts.flushed_offset), "bytes"),
            ("storage_dispatch_behind", "Not in queues yet",
             max(0, facts.confirm_offset - facts.dispatched_offset), "bytes"),
            ("storage_message_reserve_time", "Age of the oldest message", age_ms, "milliseconds"),
            ("timer_enqueue_lag", "Timers that were not read yet", facts.timers.unread, ""),
            ("timer_dequeue_latency", "How late timers are",
             1000 * facts.timers.read_behind_s, "milliseconds"),
        ):  # fmt: skip
            yield self.gauge(f"rocketmq_{name}", text, value, unit, _STORAGE)
        yield self._timers(facts)

    def _timers(self, facts: Facts) -> Metric:
        family = GaugeMetricFamily(
            "rocketmq_timing_messages", "Timers that wait",
            labels=[*self.names, *_STORAGE, "topic"],
        )  # fmt: skip
        for topic, count in sorted(facts.timers.waiting.items()):
            family.add_metric([*self.values, *_STORAGE.values(), topic], count)
        return family

    def _own(self, found: Scrape) -> Iterator[Metric]:
        facts = found.facts
        yield self.gauge("rmqha_broker_master", "1 while it serves as master", facts.active)
        yield self.gauge("rmqha_sends_waiting", "Sends that wait for replicas", facts.sends_waiting)
        yield self.gauge("rmqha_pulls_held", "Pulls that wait for messages", facts.pulls_held)
        yield self.gauge("rmqha_lags_left_out", "Queues without a lag here", found.lags_left_out)
        yield from self._store(facts)
        yield from self._repairs(facts)
        yield self.counter(
            "rmqha_records_skipped", "Records that could not be acted on", found.records_skipped
        )
        yield self.counter(
            "rmqha_planned_switches", "Masterships handed over", found.planned_switches
        )
        yield self.counter(
            "rmqha_sends_passed_on", "Sends that the new master answered", found.sends_passed_on
        )
        yield self.counter(
            "rmqha_ha_unproven_peers", "Connections of replicas that proved no haSecret",
            found.peers_unproven,
        )  # fmt: skip
        waits = CounterMetricFamily(
            "rmqha_ha_busy_waits", "Waits of replication without sleep, by their ends",
            labels=[*self.names, "end"],
        )  # fmt: skip
        for end in (ANSWERED, SHARED, VAIN):
            waits.add_metric([*self.values, end], found.busy_waits.get(end, 0))
        yield waits
        if facts.lease is not None:
            yield self.gauge("rmqha_write_lease_held", "1 while it is held", facts.lease[0])
            yield self.counter("rmqha_write_lease_losses", "How often it was lost", facts.lease[1])

    def _store(self, facts: Facts) -> Iterator[Metric]:
        """What the disks take, and what they do not."""
        for name, text, value in (
            ("config_files_unwritten", "Files that cannot be written now", facts.files_unwritten),
            ("store_writes_wait", "1 while writes to the log may wait for the disk",
             facts.writes_wait),
            ("store_disk_full", "1 while sends are refused, for the disk is too full",
             facts.disk_full),
            ("store_dispatch_lacks_space", "1 while queues get nothing, for the disk is full",
             facts.dispatch_lacks_space),
        ):  # fmt: skip
            yield self.gauge(f"rmqha_{name}", text, value)
        yield self.gauge(
            "rmqha_store_oldest_write", "For how long the oldest write has waited for the disk",
            facts.oldest_write_ms, "milliseconds",
        )  # fmt: skip
        yield self.counter(
            "rmqha_store_writes_waited", "Writes that have waited for the disk", facts.writes_waited
        )

    def _repairs(self, facts: Facts) -> Iterator[Metric]:
        """What of the log is not what it was, and what was done about it."""
        for name, text, value in (
            ("records_damaged", "Records of the log that are not whole now", facts.records_damaged),
            ("records_differing", "Whole records that another replica has otherwise",
             facts.records_differing),
            ("blocks_differing", "Blocks of the log that are not what they were",
             facts.blocks_differing),
        ):  # fmt: skip
            yield self.gauge(f"rmqha_{name}", text, value)
        for name, text, value in (
            ("records_mended", "Records written anew from another replica", facts.records_mended),
            ("scrubbed_bytes", "Bytes of the log that were read again", facts.scrubbed_bytes),
            ("scrub_compared_bytes", "Bytes of the log compared with another replica's",
             facts.compared_bytes),
            ("index_skipped_bytes", "Bytes of the log that no index has: they cannot be read",
             facts.index_skipped_bytes),
        ):  # fmt: skip
            yield self.counter(f"rmqha_{name}", text, value)


def _is_system(topic: str, group: str = "") -> str:
    return str(is_system_topic(topic) or group.startswith(SYSTEM_PREFIX)).lower()
