"""What a name server's metrics show: each figure that of its own set."""

from __future__ import annotations

from rmqha.namesrv.aio.prometheus import Collector
from rmqha.namesrv.figures import NamesrvFigures, Scrape, SetFigures, figures
from rmqha.runtime.parts import at_once
from tests.namesrv.node import MASTER, NAME, SLAVE, Node


def test_figures_when_brokers_differ_then_the_most_silent_one_counts() -> None:
    """A slave that hangs is hidden by a master that registers; and a set may be without a master."""
    node = Node()
    node.register(brokerAddr=SLAVE, brokerId=2, connection=2)
    node.register(brokerAddr="h:1", brokerName="other", brokerId=2, connection=3)
    node.now_ms += 7_000
    node.register(brokerAddr=MASTER)
    node.now_ms += 2_000
    found = at_once(figures(node.machine, node.now_ms))
    expected = {NAME: (2, 1, 9_000, 2), "other": (1, 0, 9_000, 2)}
    assert {one.broker_name: one[2:] for one in found.sets} == expected


def test_series_when_figures_differ_then_each_shows_its_own() -> None:
    """An alert on a figure of something else never fires."""
    sets = (SetFigures("C", "b", brokers=11, masters=12, silent_ms=13_000, topics=22),)
    scrape = Scrape(NamesrvFigures(sets, topics=14, routes=15, kv_bytes=16), {103: 17}, 18, 19, 21)
    collector = Collector({"address": "a:1"}, lambda: scrape)
    found = {one.name: one.value for family in collector.collect() for one in family.samples}
    assert found == {
        "namesrv_broker_num": 11, "namesrv_master_num": 12, "namesrv_broker_silence_seconds": 13,
        "namesrv_set_topic_num": 22,
        "namesrv_topic_num": 14, "namesrv_route_num": 15, "namesrv_kv_config_bytes": 16,
        "namesrv_request_total": 17, "namesrv_connection_num": 18,
        "namesrv_protocol_error_total": 19, "namesrv_notification_lost_total": 21,
    }  # fmt: skip
