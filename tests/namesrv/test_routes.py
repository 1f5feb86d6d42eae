"""Answers about routes, clusters and topics, to the byte: Go cuts them apart by hand."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

import pytest

from rmqha.namesrv.route_table import BrokerAddr
from rmqha.namesrv.routes import Zone, _of_zone
from rmqha.remoting import fastjson
from tests.namesrv.node import CLUSTER, MASTER, NAME, SLAVE, Node, mapping_info, topic

ROUTE = (
    b'{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911","2":"10.0.0.2:10911"},'
    b'"brokerName":"b","cluster":"C","enableActingMaster":false}],"filterServerTable":{},'
    b'"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":4,"topicSysFlag":0,'
    b'"writeQueueNums":4}]}'
)


def pair(**settings: str) -> Node:
    """A master and slave 2 with topics A and B."""
    node = Node(settings)
    node.register()
    node.register(brokerId=2, brokerAddr=SLAVE, connection=2)
    return node


def bare(body: bytes) -> bytes:
    """The body as classic fastjson writes it."""
    return re.sub(rb'"(\d+)":', rb"\1:", body)


@pytest.mark.parametrize(
    ("version", "fields", "quoted"),
    [
        (400, {}, False),
        (401, {}, True),
        (479, {}, True),
        (317, {}, False),
        (317, {"acceptStandardJsonOnly": "true"}, True),
        (317, {"acceptStandardJsonOnly": "false"}, False),
    ],
)
def test_route_when_asked_by_a_release_then_number_keys_are_as_it_reads_them(
    version: int, fields: dict[str, str], *, quoted: bool
) -> None:
    """#4432 broke Go, and so Java quotes from 4.9.4 on only; asked twice, once from what is kept."""
    node = pair()
    for _ in range(2):
        answer = node.ask(105, {"topic": "A", **fields}, version=version)
        assert (0, ROUTE if quoted else bare(ROUTE)) == (answer.code, answer.body)


def test_route_when_both_forms_are_kept_then_each_client_gets_its_own() -> None:
    """A Java client's question must not change a Go client's answer."""
    node = pair()
    bodies = [node.ask(105, {"topic": "A"}, version=one).body for one in (479, 317, 479, 317)]
    assert [ROUTE, bare(ROUTE)] * 2 == bodies


def test_route_when_a_static_topic_is_asked_for_then_its_inner_keys_follow_the_same_rule() -> None:
    """currIdMap has number keys, too."""
    node = Node()
    node.register(mappings={"A": mapping_info("A")})
    quoted = node.ask(105, {"topic": "A"}).body
    assert quoted.endswith(
        b',"topicQueueMappingByBroker":{"b":{"bname":"b","currIdMap":{"0":0,"1":1},"dirty":false,'
        b'"epoch":7,"scope":"__global__","topic":"A","totalQueues":2}}}'
    )
    unquoted = node.ask(105, {"topic": "A", "__ZONE_MODE": "true", "__ZONE_NAME": "z"}).body
    assert b'"currIdMap":{0:0,1:1}' in unquoted


def test_route_when_names_are_not_ascii_then_they_are_escaped_for_new_clients_only() -> None:
    """As fastjson's browser mode: UTF-16 units in upper case, and slashes."""
    node = Node()
    node.register([topic("T/ü"), topic("B")], brokerName="ü", clusterName="\U0001f600")
    quoted = node.ask(105, {"topic": "T/ü"}).body
    assert rb'"brokerName":"\u00FC","cluster":"\uD83D\uDE00"' in quoted
    raw = node.ask(105, {"topic": "T/ü"}, version=317).body
    assert '"brokerName":"ü","cluster":"\U0001f600"'.encode() in raw
    assert fastjson.loads(quoted) == fastjson.loads(raw)


@pytest.mark.parametrize("fields", [{"topic": "none"}, {}])
def test_route_when_nobody_has_the_topic_then_17_and_java_s_remark(fields: dict[str, str]) -> None:
    """Producers create topics by themselves on 17."""
    answer = pair().ask(105, fields)
    name = fields.get("topic", "null")
    remark = f"No topic route info in name server for the topic: {name}\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
    assert (17, remark, b"") == (answer.code, answer.remark, answer.body)


@pytest.mark.parametrize(("waited_ms", "code"), [(44_999, 1), (45_000, 0)])
def test_route_when_the_name_server_is_young_then_by_the_setting(waited_ms: int, code: int) -> None:
    """needWaitForService: a route of half the brokers would move the whole load onto them."""
    node = Node({"needWaitForService": "true"}, started_ms=1_000_000)
    node.register()
    node.now_ms += waited_ms
    answer = node.ask(105, {"topic": "A"})
    assert code == answer.code
    assert ("name server not ready" if code else None) == answer.remark
    assert node.machine.waits_for_brokers(node.now_ms) == bool(code), "for /readyz"


def test_route_when_anything_it_shows_changes_then_so_does_the_answer() -> None:
    """What is kept must be forgotten at the right moments, all of them."""
    node = pair(orderMessageEnable="true", supportActingMaster="true")
    changes: list[Callable[[], object]] = [
        lambda: node.register(counter=2, epoch=2, brokerAddr="10.0.0.9:1"),
        lambda: node.register(counter=3, epoch=2, brokerAddr="10.0.0.9:1", filters=["f:1"]),
        lambda: node.register([topic("A", queues=9), topic("B")], epoch=3, brokerAddr=MASTER),
        lambda: node.ask(205, {"brokerName": NAME}),
        lambda: node.ask(327, {"brokerName": NAME}),
        lambda: node.ask(100, {"namespace": "ORDER_TOPIC_CONFIG", "key": "A", "value": "b:4"}),
        lambda: node.ask(102, {"namespace": "ORDER_TOPIC_CONFIG", "key": "A"}),
        lambda: node.register(
            counter=9, epoch=3, brokerAddr=MASTER, mappings={"A": mapping_info("A")}
        ),
        lambda: node.register(counter=9, epoch=3, brokerAddr=MASTER, __ZONE_NAME="z"),
        lambda: node.register(brokerName="other", brokerAddr="10.0.0.7:1", connection=7),
        lambda: node.close(7),
        lambda: node.register(
            counter=9, epoch=3, brokerAddr=MASTER, enableActingMaster=True, connection=8
        ),
        lambda: node.close(8),
        lambda: node.ask(318, body=b"supportActingMaster=false\n"),
        lambda: node.close(2),
    ]
    seen = [node.ask(105, {"topic": "A"}).body, *_after_each(node, changes)]
    for before, after in itertools.pairwise(seen):
        assert before != after


def _after_each(node: Node, changes: list[Callable[[], object]]) -> list[bytes]:
    found = []
    for change in changes:
        change()
        found.append(node.ask(105, {"topic": "A"}).body)
    return found


@pytest.mark.parametrize("enabled", ["true", "false"])
def test_route_when_a_topic_is_ordered_then_its_order_is_shown_by_the_setting(enabled: str) -> None:
    """orderMessageEnable, off by default."""
    node = pair(orderMessageEnable=enabled)
    node.ask(100, {"namespace": "ORDER_TOPIC_CONFIG", "key": "A", "value": "b:4"})
    assert node.route().get("orderTopicConf") == ("b:4" if enabled == "true" else None)


# -- acting master -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "name", "acting", "expected"),
    [
        ({"supportActingMaster": "true"}, "A", True, {"0": SLAVE, "3": "10.0.0.3:1"}),
        ({}, "A", True, {"2": SLAVE, "3": "10.0.0.3:1"}),
        ({"supportActingMaster": "true"}, "A", False, {"2": SLAVE, "3": "10.0.0.3:1"}),
        (
            {"supportActingMaster": "true"}, "rmq_sys_SYNC_BROKER_MEMBER_b", True,
            {"2": SLAVE, "3": "10.0.0.3:1"},
        ),
    ],
)  # fmt: skip
def test_route_when_the_master_is_gone_then_the_smallest_slave_acts_by_the_settings(
    settings: dict[str, str], name: str, *, acting: bool, expected: dict[str, str]
) -> None:
    """Readers find it under 0; nobody can write to it, for its permission says so."""
    node = Node(settings)
    topics = [topic("A"), topic("rmq_sys_SYNC_BROKER_MEMBER_b")]
    node.register(topics, enableActingMaster=acting)
    for number, address in ((2, SLAVE), (3, "10.0.0.3:1")):
        node.register(
            topics, brokerId=number, brokerAddr=address, enableActingMaster=acting, connection=2
        )
    node.close(1)
    route = node.route(name)
    assert expected == route["brokerDatas"][0]["brokerAddrs"]
    assert (not acting) == bool(route["queueDatas"][0]["perm"] & 2)


def test_route_when_somebody_opened_a_set_without_a_master_then_nobody_acts_as_one() -> None:
    """``addWritePerm``: under 0 its slave would be sent messages, which it refuses."""
    node = Node({"supportActingMaster": "true"})
    node.register(enableActingMaster=True)
    node.register(brokerId=2, brokerAddr=SLAVE, enableActingMaster=True, connection=2)
    node.close(1)
    assert {"0": SLAVE} == node.route()["brokerDatas"][0]["brokerAddrs"]
    node.ask(327, {"brokerName": NAME})
    route = node.route()
    assert route["queueDatas"][0]["perm"] == 6
    assert {"2": SLAVE} == route["brokerDatas"][0]["brokerAddrs"]


# -- zones -------------------------------------------------------------------------------------


def zoned() -> Node:
    """Sets in zones z1 and Z2, one in none, and one in z3 without a master."""
    node = Node()
    for number, zone in enumerate(("z1", "Z2", None, "z3")):
        node.register(
            brokerName=f"b{number}",
            brokerAddr=f"10.0.0.{number}:1",
            brokerId=2 if zone == "z3" else 0,
            __ZONE_NAME=zone,
            filters=[f"f{number}:1"],
        )
    return node


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"__ZONE_MODE": "true", "__ZONE_NAME": "z1"}, ["b0", "b3"]),
        ({"__ZONE_MODE": "true", "__ZONE_NAME": "z2"}, ["b1", "b3"]),
        ({"__ZONE_MODE": "true", "__ZONE_NAME": "nowhere"}, ["b3"]),
        ({"__ZONE_MODE": "true", "__ZONE_NAME": " "}, ["b0", "b1", "b2", "b3"]),
        ({"__ZONE_MODE": "false", "__ZONE_NAME": "z1"}, ["b0", "b1", "b2", "b3"]),
        ({"__ZONE_NAME": "z1"}, ["b0", "b1", "b2", "b3"]),
    ],
)
def test_route_when_a_zone_is_asked_for_then_only_its_brokers_are_shown(
    fields: dict[str, str], expected: list[str]
) -> None:
    """Masterless sets are in every zone: their messages must be consumed by somebody."""
    route = zoned().route(**fields)
    assert expected == [one["brokerName"] for one in route["brokerDatas"]]
    assert expected == [one["brokerName"] for one in route["queueDatas"]]
    assert [f"10.0.0.{name[1]}:1" for name in expected] == list(route["filterServerTable"])


def test_zone_when_a_broker_no_longer_names_one_then_it_is_in_none() -> None:
    """The last registration counts, as for all else that a broker says of itself."""
    node, asked = Node(), {"__ZONE_MODE": "true", "__ZONE_NAME": "z1"}
    node.register(__ZONE_NAME="z1")
    assert [NAME] == [one["brokerName"] for one in node.route(**asked)["brokerDatas"]]
    node.register()
    assert [] == node.route(**asked)["brokerDatas"]
    assert "zoneName" not in node.route()["brokerDatas"][0]


def test_route_when_a_zone_is_asked_for_then_number_keys_are_bare_for_everybody() -> None:
    """Java's hook writes the answer anew, whoever asked; and the full answer must stay whole."""
    node = zoned()
    zone = node.ask(105, {"topic": "A", "__ZONE_MODE": "true", "__ZONE_NAME": "z1"}).body
    assert b'"brokerAddrs":{0:"10.0.0.0:1"}' in zone
    assert 4 == len(node.route()["brokerDatas"])


# -- clusters and topics -----------------------------------------------------------------------


def test_cluster_info_when_asked_by_anybody_then_number_keys_are_bare() -> None:
    """Even to those who read JSON (seen on the wire)."""
    expected = (
        b'{"brokerAddrTable":{"b":{"brokerAddrs":{0:"10.0.0.1:10911",2:"10.0.0.2:10911"},'
        b'"brokerName":"b","cluster":"C","enableActingMaster":false}},'
        b'"clusterAddrTable":{"C":["b"]}}'
    )
    node = pair()
    assert [expected] * 2 == [node.ask(106, version=one).body for one in (479, 317)]


def test_cluster_info_when_a_set_comes_from_a_second_cluster_then_both_name_it() -> None:
    """One set by its name, as in Java; seen at once, also by who asked before."""
    node = pair()
    node.ask(106)
    node.register(brokerId=3, brokerAddr="10.0.0.3:1", clusterName="D", connection=3)
    assert b'"clusterAddrTable":{"C":["b"],"D":["b"]}' in node.ask(106).body
    for connection in (1, 2, 3):
        node.close(connection)
    assert b'{"brokerAddrTable":{},"clusterAddrTable":{}}' == node.ask(106).body


def test_member_group_when_asked_then_the_set_or_nobody() -> None:
    """An unknown name is no error."""
    node = pair()
    for name, members in ((NAME, b'{0:"10.0.0.1:10911",2:"10.0.0.2:10911"}'), ("none", b"{}")):
        body = node.ask(901, {"clusterName": CLUSTER, "brokerName": name}).body
        expected = b'{"brokerMemberGroup":{"brokerAddrs":%s,"brokerName":"%s","cluster":"C"}}'
        assert expected % (members, name.encode()) == body


def test_topic_lists_when_asked_then_java_s_members() -> None:
    """206, 224, 304 and the unit lists by flag bits 0 and 1."""
    node = Node()
    node.register([topic("N"), *(topic(f"F{flag}", flag=flag) for flag in (1, 2, 3))])
    assert b'{"topicList":["F1","F2","F3","N"]}' == node.ask(206).body
    assert b'{"topicList":["F1","F2","F3","N"]}' == node.ask(224, {"cluster": CLUSTER}).body
    assert b'{"topicList":[]}' == node.ask(224, {"cluster": "none"}).body
    assert b'{"brokerAddr":"10.0.0.1:10911","topicList":["C","b"]}' == node.ask(304).body
    assert b'{"topicList":["F1","F3"]}' == node.ask(311).body
    assert b'{"topicList":["F2","F3"]}' == node.ask(312).body
    assert b'{"topicList":["F2"]}' == node.ask(313).body
    assert b'{"topicList":[]}' == Node().ask(304).body


def test_topic_lists_when_they_are_disabled_then_1_and_java_s_remark() -> None:
    """enableAllTopicList is for 206, enableTopicList for the others."""
    node = Node({"enableAllTopicList": "false", "enableTopicList": "false"})
    for code in (206, 224, 311, 312, 313):
        answer = node.ask(code, {"cluster": CLUSTER})
        assert (1, "disable") == (answer.code, answer.remark)
    assert 0 == node.ask(304).code


def test_filter_servers_when_a_broker_goes_that_its_set_no_longer_lists_then_routes_forget_them() -> (
    None
):
    """Another set lists its address, which registered there from another cluster: that route showed
    filter servers that were gone, for as long as nothing else changed."""
    node, address, two = Node(), "10.0.0.7:1", [topic("X"), topic("Y")]
    node.register(brokerName="b1", brokerAddr=address, filters=["f:1"], connection=1)
    node.register(two, brokerName="b2", brokerAddr="10.0.0.8:1", brokerId=1, connection=2)
    node.register(two, brokerName="b2", brokerAddr=address, clusterName="C2", connection=3)
    node.register(brokerName="b1", brokerAddr="10.0.0.9:1", epoch=9, connection=4)
    assert node.route("X")["filterServerTable"] == {address: ["f:1"]}
    node.close(1)
    assert node.route("X")["filterServerTable"] == {}


def test_route_when_a_zone_is_asked_for_again_then_from_what_is_kept_until_it_changes() -> None:
    """It was made for each question, in a time that grew with the square of the topic's sets."""
    node = zoned()

    def ask(zone: str, topic: str = "A") -> bytes:
        fields = {"topic": topic, "__ZONE_MODE": "true", "__ZONE_NAME": zone}
        return node.ask(105, fields).body

    first = ask("z1")
    assert ask("Z1") is first
    assert ask("z2") != first
    assert node.ask(105, {"topic": "A"}).body != first
    other = ask("z1", "B")
    node.register([topic("A", perm=4), topic("B")], counter=2, brokerName="b0",
                  brokerAddr="10.0.0.0:1", __ZONE_NAME="z1", filters=["f0:1"])  # fmt: skip
    assert b'"perm":4' in ask("z1")
    assert ask("z1", "B") is other


def test_zone_when_a_topic_has_very_many_sets_then_each_is_looked_at_once() -> None:
    """With lists of what is left out, 10,000 sets took seconds."""
    looks = 0

    class Name(str):
        """Counts comparisons."""

        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            nonlocal looks
            looks += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    count = 200
    brokers = [
        {"brokerAddrs": {0: Name(f"h:{n}")}, "brokerName": Name(f"b{n}")} for n in range(count)
    ]
    members = {
        "brokerDatas": brokers,
        "filterServerTable": {Name(f"h:{n}"): [] for n in range(count)},
        "queueDatas": [{"brokerName": Name(f"b{n}")} for n in range(count)],
    }
    found = _of_zone(members, Zone("z"))
    assert (found["brokerDatas"], found["queueDatas"], found["filterServerTable"]) == ([], [], {})
    assert looks <= 5 * count


def test_kept_route_when_an_address_leaves_one_of_two_clusters_then_it_is_made_anew() -> None:
    """What serves clients of before goes by who is heard; it showed somebody who was not."""
    node, address = Node(), "10.0.0.7:1"
    fields = {"brokerName": "b1", "brokerAddr": address, "rmqhaServesOldClients": "true"}
    both = {"A": mapping_info("A", "b1"), "B": mapping_info("B", "b1")}
    node.register(**fields, mappings=both)
    node.register(**fields, clusterName="C2", connection=2)
    before = [node.ask(105, {"topic": "A"}, version=400).body for _ in range(2)]
    assert before[0] is before[1]
    node.machine.table.drop_live(BrokerAddr(CLUSTER, address))
    assert node.ask(105, {"topic": "A"}, version=400).body != before[0]
