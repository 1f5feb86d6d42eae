"""How a broker stays listed: what name servers are told, how often, and what they answer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmqha.base.errors import RemoteProtocolError
from rmqha.broker.naming.messages import ordered_topics
from rmqha.remoting import fastjson
from tests.broker.replicas import TOPIC, ReplicaCluster, master_of, send_fields


@pytest.fixture
def cluster() -> Iterator[ReplicaCluster]:
    """One replica, registered."""
    with ReplicaCluster(seed=53, replicas=1) as one:
        one.boot_all()
        one.until(lambda: one.name_server.registered, "registration")
        one.run_for(500)
        yield one


def test_name_server_when_it_started_anew_then_it_is_told_soon(cluster: ReplicaCluster) -> None:
    """It knows nobody, and clients had no route for as long as registerNameServerPeriod, 10 s."""
    cluster.restart_name_server()
    cluster.until(lambda: cluster.name_server.registered, "registration", limit_ms=2_500)


def test_name_server_when_it_hangs_up_after_each_answer_then_it_is_not_asked_without_a_rest(
    cluster: ReplicaCluster,
) -> None:
    """Once a second, as when it refuses."""
    cluster.name_server.hangs_up = True
    cluster.restart_name_server()
    cluster.run_for(10_000)
    assert 5 <= len(cluster.name_server.registered) <= 11


@pytest.mark.costly
def test_name_server_when_it_was_told_of_a_change_then_the_next_time_is_a_whole_period_later(
    cluster: ReplicaCluster,
) -> None:
    """The timer of before would go on: one more registration in each period for every change."""
    told = cluster.name_server.registered
    cluster.run_for(20_000)
    before = len(told)
    master_of(cluster).topics_changed()
    cluster.run_for(29_000)
    assert len(told) == before + 1
    cluster.run_for(2_000)
    assert len(told) == before + 2


def order_conf(*topics: str) -> bytes:
    """What a name server answers whose operator has set an order configuration of these."""
    return fastjson.dumps({"table": dict.fromkeys(topics, "broker-a:4")})


@pytest.mark.costly
def test_topics_when_a_name_server_has_their_order_configuration_then_they_are_ordered(
    cluster: ReplicaCluster,
) -> None:
    """updateOrderConf: tools look at the topic, and it stays so after a failover."""
    master = master_of(cluster)
    address = master.config.address
    for name in (TOPIC, "Other"):
        assert cluster.ask(address, 310, send_fields(0, name), b"x").code == 0
    cluster.name_server.order_conf = order_conf(TOPIC, "Nobody's")
    cluster.run_for(31_000)
    table = master.topics.table

    def order(name: str) -> bool:
        topic = table.get(name)
        assert topic is not None
        return topic.order

    assert (order(TOPIC), order("Other"), table.get("Nobody's")) == (True, False, None)
    _, body = cluster.name_server.registered[-1]
    assert body["topicConfigSerializeWrapper"]["topicConfigTable"][TOPIC]["order"]
    told, version = len(cluster.name_server.registered), table.version
    cluster.run_for(31_000)
    assert table.version == version
    assert len(cluster.name_server.registered) <= told + 4
    host = cluster.host_of(master)
    cluster.kill(host, power=True)
    cluster.name_server.order_conf = b""
    cluster.boot(host)
    cluster.until(lambda: cluster.master() not in (None, master), "master")
    table = master_of(cluster).topics.table
    assert order(TOPIC)


def test_topics_when_very_many_become_ordered_then_in_parts(cluster: ReplicaCluster) -> None:
    """One record of them all might be larger than a message may be."""
    master = master_of(cluster)
    names = [f"T{number:03d}" for number in range(120)]
    topics = [
        {"topicName": name, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6} for name in names
    ]
    body = fastjson.dumps({"topicConfigList": topics})
    assert cluster.ask(master.config.address, 18, {}, body).code == 0
    told = len(cluster.name_server.registered)
    cluster.name_server.order_conf = order_conf(*names)
    cluster.until(
        lambda: all(one is not None and one.order for one in map(master.topics.table.get, names)),
        "ordered topics",
        limit_ms=40_000,
    )
    assert len(cluster.name_server.registered) >= told + 3


@pytest.mark.costly
@pytest.mark.parametrize("body", [b"[]", b"{", b'{"table":[1]}', b'{"table":"x"}', b"\xff"])
def test_order_configuration_when_it_cannot_be_read_then_the_broker_stays_listed(
    cluster: ReplicaCluster, body: bytes
) -> None:
    """Whatever a name server says: it is told, and asked again."""
    with pytest.raises(RemoteProtocolError):
        ordered_topics(body)
    cluster.name_server.order_conf = body
    told = len(cluster.name_server.registered)
    cluster.until(lambda: len(cluster.name_server.registered) >= told + 2, "two more", 70_000)


def test_order_configuration_when_there_is_none_then_no_topic() -> None:
    """Java leaves the table out, or null."""
    assert ordered_topics(b"{}") == ordered_topics(b'{"table":null}') == frozenset()
