"""A broker's Prometheus page: Java's names, labels and values, as far as ours can tell them.

``RMQHA_INTEROP_JAVA_BROKER=1`` asks the same of a Java broker, unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rmqha.testing.real import wire
from rmqha.testing.real.processes import allocate_ports, wait_until
from tests.interop import required
from tests.interop.alone import BROKER, KINDS, Alone, new_topic

SEEN_S = 40.0
TOPIC, GROUP = "Measured", "Meters"
NODE = {"cluster": "DefaultCluster", "node_type": "broker", "node_id": BROKER, "zone": "z1"}
STORAGE = {"storage_medium": "disk", "storage_type": "local"}
OF_TOPIC = {"topic": TOPIC, "is_system": "false"}
OF_GROUP = {**OF_TOPIC, "consumer_group": GROUP}

Samples = list[tuple[str, Mapping[str, str], float]]


@pytest.fixture(scope="module", params=KINDS)
def page(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Alone, str]]:
    """A broker, and the address of its metrics."""
    if request.param == "java":
        required.require_classpath("5.3.3")
    port = allocate_ports()[0]
    settings = {
        "metricsExporterType": "PROM", "metricsPromExporterHost": "127.0.0.1",
        "metricsPromExporterPort": port, "metricsLabel": "zone:z1", "timerWheelEnable": True,
    }  # fmt: skip
    with Alone(request.param, tmp_path_factory.mktemp(request.param), **settings) as one:
        yield one, f"http://127.0.0.1:{port}/metrics"


def scraped(address: str) -> Samples:
    """Every sample; a Java broker opens the port some time after its start."""
    try:
        with urlopen(address, timeout=5) as page:
            text = page.read().decode()
    except OSError:
        return []
    return [
        (sample.name, sample.labels, sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]


def value(samples: Samples, name: str, **labels: str) -> float | None:
    """The one sample with these labels, and perhaps others."""
    wanted = (NODE | labels).items()
    found = [v for n, has, v in samples if n == name and wanted <= has.items()]
    assert len(found) <= 1, f"{name} has several series of {labels}"
    return found[0] if found else None


def test_page_when_messages_flow_then_javas_series_say_so(page: tuple[Alone, str]) -> None:
    """Dashboards for Java's brokers must work on, in what they ask of these."""
    alone, address = page
    new_topic(alone.broker, alone.servers, TOPIC, 1)
    with wire.Connection(alone.broker.address) as connection:
        for number in range(5):
            wire.send_message(connection, TOPIC, 0, b"x", keys=f"K{number}", default_queues=1)
        pull = {
            "consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "queueOffset": 0,
            "maxMsgNums": 3, "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0,
            "subVersion": 0, "subscription": "*",
        }  # fmt: skip
        end = {"topic": TOPIC, "queueId": 0}
        # What a queue shows grows a moment after the send was answered, with Java, too.
        wait_until(lambda: connection.ask(30, end).ext["offset"] == "5", 10.0, "all five to pull")
        assert connection.invoke(11, pull).code == 0
        commit = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "commitOffset": 3}
        connection.ask(15, commit)

    def is_seen() -> bool:
        return value(scraped(address), "rocketmq_consumer_lag_messages", **OF_GROUP) == 2

    wait_until(is_seen, SEEN_S, "the lag")
    samples = scraped(address)
    assert value(samples, "rocketmq_messages_in_total", **OF_TOPIC) == 5
    assert value(samples, "rocketmq_messages_out_total", **OF_GROUP) == 3
    assert value(samples, "rocketmq_consumer_lag_messages", **OF_GROUP, is_retry="false") == 2
    assert value(samples, "rocketmq_broker_permission") == 6
    assert (value(samples, "rocketmq_topic_number") or 0) >= 10
    assert (value(samples, "rocketmq_consumer_group_number") or 0) >= 9
    for name in (
        "rocketmq_storage_size_bytes", "rocketmq_storage_message_reserve_time_milliseconds",
    ):  # fmt: skip
        assert (value(samples, name, **STORAGE) or 0) > 0, name
    for name in (
        "rocketmq_storage_flush_behind_bytes", "rocketmq_storage_dispatch_behind_bytes",
        "rocketmq_timer_enqueue_lag", "rocketmq_timer_dequeue_latency_milliseconds",
    ):  # fmt: skip
        assert value(samples, name, **STORAGE) is not None, name


def test_own_series_when_scraped_then_the_role_is_there(page: tuple[Alone, str]) -> None:
    """What Java has no name for."""
    alone, address = page
    if alone.kind == "java":
        pytest.skip("ours only")
    samples = scraped(address)
    assert value(samples, "rmqha_broker_master", address=alone.broker.address) == 1
    assert value(samples, "rmqha_lags_left_out") == value(samples, "rmqha_sends_waiting") == 0
    for name in ("records_skipped", "planned_switches", "sends_passed_on"):
        assert value(samples, f"rmqha_{name}_total") == 0, name
