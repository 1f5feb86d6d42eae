"""The labels of series: what ``metricsLabel`` may add, and what it may not replace."""

from __future__ import annotations

from rmqha.broker.common.settings import load_config
from rmqha.cli.mqbroker import broker_labels
from rmqha.cli.prometheus import labels_of


def test_labels_when_pairs_are_given_then_they_are_read() -> None:
    assert labels_of({"metricsLabel": " zone : z1 ,rack:r7,"}) == {"zone": "z1", "rack": "r7"}
    assert labels_of({"metricsLabel": ""}) == {}


def test_labels_when_a_pair_has_a_name_of_the_brokers_own_then_its_own_stays() -> None:
    """Alerts and dashboards are by cluster, node and address."""
    values = {
        "brokerName": "broker-a", "brokerClusterName": "C",
        "metricsLabel": "cluster:mine,node_id:me,node_type:it,address:here,zone:z1",
    }  # fmt: skip
    config = load_config(values, host_name="h", local_address="10.0.0.1", user_home="/home")
    assert broker_labels(config) == {
        "cluster": "C", "node_id": "broker-a", "node_type": "broker", "address": "10.0.0.1:10911",
        "zone": "z1",
    }  # fmt: skip


def test_labels_when_prometheus_takes_no_such_name_then_it_is_one_that_it_takes() -> None:
    """As Java's exporter writes them: a scrape with one of these was thrown away as a whole."""
    found = labels_of({"metricsLabel": "data-center:x,9th:y,a.b:z:1, :q,:"})
    assert found == {"data_center": "x", "_9th": "y", "a_b": "z:1"}


def test_labels_when_one_is_a_series_own_name_then_it_is_left_out() -> None:
    """With a second name of each series a scrape was thrown away as a whole."""
    found = labels_of({"metricsLabel": "__name__:q,zone:z1,--name--:r,_name:s"})
    assert found == {"zone": "z1", "_name": "s"}
