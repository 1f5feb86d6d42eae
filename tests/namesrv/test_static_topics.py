"""What a name server knows of static topics: whose word counts, and who is shown what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from rmqha.base.machine import Note
from rmqha.namesrv.status_document import LOGICAL_QUEUES_MAX, NodeFacts, document
from rmqha.runtime.parts import at_once
from rmqha.web.document import LogicalQueueView, StaticTopicView
from tests.namesrv.node import (
    CLUSTER,
    MASTER,
    NAME,
    SLAVE,
    SLAVE_HA,
    Node,
    broker_fields,
    compressed_body,
    mapping_info,
    topic,
)

GO, JAVA_4_9_8, JAVA_5_0_0 = 317, 409, 413


def infos(node: Node, name: str = "A") -> dict[str, Any]:
    """What clients are told, by broker set."""
    found: dict[str, Any] = node.route(name).get("topicQueueMappingByBroker", {})
    return found


def static(**members: Any) -> Mapping[str, object]:
    """The mapping of A for a registration."""
    return {"A": mapping_info("A", **members)}


# -- whose word counts -------------------------------------------------------------------------


def test_mapping_when_it_is_registered_then_the_route_has_it_until_the_topic_goes() -> None:
    """Java never forgets one: a topic made anew under the name would be taken for static."""
    node = Node()
    node.register(mappings=static())
    assert {NAME: mapping_info("A")} == infos(node)
    assert "topicQueueMappingByBroker" not in node.route("B")
    node.ask(216, {"topic": "A", "clusterName": CLUSTER})
    node.register()
    assert {} == infos(node)


def test_mapping_when_its_broker_leaves_then_it_is_forgotten() -> None:
    """The other half of the same: the mappings of a set go with the set."""
    node = Node()
    node.register(mappings=static())
    node.close(1)
    assert {} == node.machine.table.mappings
    assert 0 == node.machine.table.mapping_count


@pytest.mark.parametrize(
    ("before", "after", "taken"),
    [
        ((7, False), (6, False), False),
        ((7, True), (6, False), False),
        ((7, False), (8, False), True),
        ((7, False), (8, True), True),
        ((7, False), (7, False), True),
        ((7, False), (7, True), False),
        ((7, True), (7, False), True),
        ((7, True), (7, True), True),
    ],
)
def test_mapping_when_another_is_registered_then_epoch_and_dirt_decide(
    before: tuple[int, bool], after: tuple[int, bool], taken: bool
) -> None:
    """Java takes the last word: of a master that is behind, say, or of a delayed registration."""
    node = Node()
    old = mapping_info("A", epoch=before[0], dirty=before[1], leads={0: 0})
    new = mapping_info("A", epoch=after[0], dirty=after[1], leads={1: 1})
    node.register(mappings={"A": old})
    node.register(mappings={"A": new}, counter=2)
    assert {NAME: new if taken else old} == infos(node)


def test_mapping_when_a_new_master_names_the_same_epoch_then_its_word_counts() -> None:
    """It is the one that serves the queues now."""
    node = Node()
    node.register(mappings=static(leads={0: 0}))
    node.register(mappings=static(leads={0: 0, 1: 1}), epoch=2, brokerAddr=SLAVE, connection=2)
    assert {"0": 0, "1": 1} == infos(node)[NAME]["currIdMap"]


def test_mapping_when_the_topic_was_deleted_meanwhile_then_an_older_epoch_counts() -> None:
    """It is another topic of the same name."""
    node = Node()
    node.register(mappings=static(epoch=9))
    node.ask(216, {"topic": "A", "clusterName": CLUSTER})
    node.register(mappings=static(epoch=3), counter=2)
    assert 3 == infos(node)[NAME]["epoch"]


def test_mapping_when_only_it_changes_then_a_newer_epoch_counts_all_the_same() -> None:
    """Java's 513 writes queues, then the mapping; what registers in between uses the version up."""
    node = Node()
    node.register(mappings=static(epoch=7, leads={0: 0}))
    node.register(mappings=static(epoch=7, leads={}))
    assert {"0": 0} == infos(node)[NAME]["currIdMap"]
    node.register(mappings=static(epoch=8, leads={}))
    assert 8 == infos(node)[NAME]["epoch"]


def test_mapping_when_an_unchanged_registration_lists_a_deleted_topic_again_then_it_is_static() -> (
    None
):
    """Its queues come back, as in Java; without the mapping they would look like ordinary ones."""
    node = Node()
    node.register(mappings=static())
    node.ask(216, {"topic": "A", "clusterName": CLUSTER})
    node.register(mappings=static())
    assert {NAME: mapping_info("A")} == infos(node)


def test_mapping_when_it_is_of_another_set_s_name_then_it_is_passed_over() -> None:
    """A set that was renamed still has its old name there; it does not speak for that one."""
    node = Node()
    node.register(brokerName="other", brokerAddr="o:1", connection=2,
                  mappings=static(broker="other", epoch=5))  # fmt: skip
    node.register(mappings=static(broker="other", epoch=9))
    assert {"other": 5} == {name: one["epoch"] for name, one in infos(node).items()}


def test_mapping_when_java_registers_a_remap_broker_by_broker_then_each_queue_has_one_leader() -> (
    None
):
    """mqadmin's order: in (undecided), out, in again of the same epoch; queue 0 moves to c."""
    node = Node()
    others = {"brokerName": "c", "brokerAddr": "c:1", "connection": 2}
    node.register(mappings=static(epoch=7, leads={0: 0, 1: 1}))
    node.register(mappings=static(broker="c", epoch=7, leads={}), **others)
    assert {0: ("b", 0), 1: ("b", 1)} == leaders(node)
    node.register(mappings=static(broker="c", epoch=8, leads={0: 0}), counter=2, **others)
    assert {0: ("c", 0), 1: ("b", 1)} == leaders(node)
    node.register(mappings=static(epoch=8, leads={1: 1}), counter=2)
    node.register(mappings=static(broker="c", epoch=8, leads={0: 0}), counter=3, **others)
    assert {0: ("c", 0), 1: ("b", 1)} == leaders(node)


def leaders(node: Node) -> dict[int, tuple[str, int]]:
    """Set and physical queue by logical queue, worked out as Java's client does it."""
    found: dict[int, tuple[int, str, int]] = {}
    for name, info in infos(node).items():
        for logical, physical in info["currIdMap"].items():
            one = (info["epoch"], name, physical)
            found[int(logical)] = max(one, found.get(int(logical), one))
    return {logical: one[1:] for logical, one in found.items()}


# -- a topic that is no longer static ----------------------------------------------------------


def test_mapping_when_its_master_lists_the_topic_without_then_it_goes_the_second_time() -> None:
    """Made anew as an ordinary one while this name server could not be told of the deletion."""
    node = Node()
    node.register(mappings=static())
    node.register(counter=2)
    assert {NAME: mapping_info("A")} == infos(node)
    node.register(counter=2)
    assert {} == infos(node)
    assert 0 == node.machine.table.mapping_count


def test_mapping_when_java_splits_its_registrations_then_the_topic_stays_static() -> None:
    """Topics come first, without infos, and all infos with the last part, again and again."""
    node = Node()
    node.register(mappings=static())
    for counter in (2, 4, 6):
        node.register([topic("A"), topic("B")], counter=counter)
        assert {NAME} == set(infos(node)), counter
        node.register([topic("C")], counter=counter + 1, mappings=static())
        assert {NAME} == set(infos(node)), counter


def test_mapping_when_a_slave_speaks_for_the_set_without_it_then_it_stays() -> None:
    """It may not have copied the mapping yet; clients would take a static topic for another."""
    node = Node()
    acting = {"enableActingMaster": True}
    slave = {
        "brokerAddr": SLAVE,
        "haServerAddr": SLAVE_HA,
        "brokerId": 1,
        "connection": 2,
        **acting,
    }
    node.register(mappings=static(), **acting)
    node.register(**slave)
    node.close(1)
    for counter in (2, 3, 4):
        node.register(counter=counter, **slave)
    assert {NAME: mapping_info("A")} == infos(node)


def test_mapping_when_others_of_the_same_topic_have_none_then_theirs_go_only() -> None:
    """Each set speaks for itself."""
    node = Node()
    others = {"brokerName": "c", "brokerAddr": "c:1", "connection": 2}
    node.register(mappings=static())
    node.register(mappings=static(broker="c"), **others)
    for counter in (2, 3):
        node.register(counter=counter)
    assert {"c"} == set(infos(node))


def test_limit_when_known_mappings_are_registered_again_then_they_count_once() -> None:
    """A broker with more than half of them could not register a second time."""
    node = Node({"routesMax": "3"})
    known = static()
    assert [0, 0] == [node.register(mappings=known, counter=one).code for one in (1, 2)]
    more = {**known, **{f"T{one}": mapping_info(f"T{one}") for one in range(3)}}
    assert 1 == node.register(mappings=more, counter=3).code


# -- the status page ---------------------------------------------------------------------------

FACTS = NodeFacts("ns:1", "v", 0, 0, 0)


def test_page_when_topics_are_static_then_each_logical_queue_has_its_leader_set() -> None:
    """By the newest word about each; a queue that nobody claims is shown as such."""
    node = Node()
    node.register(mappings=static(epoch=7, leads={0: 0}))
    node.register(mappings=static(broker="c", epoch=8, leads={0: 5}), brokerName="c",
                  brokerAddr="c:1", connection=2)  # fmt: skip
    shown = at_once(document(FACTS, node.machine.table, {}))
    assert 1 == shown.node.facts["static topics"]
    queues = (LogicalQueueView(0, "c", 5), LogicalQueueView(1, None, None))
    assert (StaticTopicView("A", 8, 2, queues),) == shown.static_topics


def test_page_when_there_are_very_many_logical_queues_then_the_first_are_shown() -> None:
    """It is made every second, and sent to every browser."""
    node = Node()
    many = LOGICAL_QUEUES_MAX - 1
    node.register(
        mappings={
            "A": {**mapping_info("A"), "totalQueues": many},
            "B": {**mapping_info("B"), "totalQueues": many},
            "C": {**mapping_info("C"), "totalQueues": many},
        }
    )
    shown = at_once(document(FACTS, node.machine.table, {})).static_topics
    assert [("A", many), ("B", 1)] == [(one.topic, len(one.queues)) for one in shown]
    assert many == shown[1].total_queues


# -- who is shown what -------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, GO, JAVA_4_9_8])
def test_route_when_no_set_serves_old_clients_then_they_see_a_static_topic_without_queues(
    version: int,
) -> None:
    """Physical numbers would be taken for logical queues. A 17 would not keep them from sending."""
    node = Node({"orderMessageEnable": "true"})
    node.register(mappings=static())
    node.ask(100, {"namespace": "ORDER_TOPIC_CONFIG", "key": "A", "value": "b:4"})
    route = node.route(version=version)
    assert {
        "brokerName": NAME, "perm": 0, "readQueueNums": 0, "topicSysFlag": 0, "writeQueueNums": 0,
    } == route["queueDatas"][0]  # fmt: skip
    assert [NAME] == [one["brokerName"] for one in route["brokerDatas"]]
    assert {"orderTopicConf", "topicQueueMappingByBroker"}.isdisjoint(route)
    ordinary = node.route("B", version=version)
    assert 6 == ordinary["queueDatas"][0]["perm"]


def test_route_when_a_5x_client_asks_for_a_static_topic_then_it_has_mappings_and_no_order() -> None:
    """With an orderTopicConf Java's producers use physical queues all the same."""
    node = Node({"orderMessageEnable": "true"})
    node.register(mappings=static())
    for name in ("A", "B"):
        node.ask(100, {"namespace": "ORDER_TOPIC_CONFIG", "key": name, "value": "b:4"})
    route = node.route(version=JAVA_5_0_0)
    assert (6, {NAME: mapping_info("A")}) == (
        route["queueDatas"][0]["perm"], route["topicQueueMappingByBroker"],
    )  # fmt: skip
    assert "orderTopicConf" not in route
    assert "b:4" == node.route("B")["orderTopicConf"]


def test_route_when_a_topic_becomes_static_then_old_clients_lose_its_queues_and_are_noted() -> None:
    """The kept answer goes, and the log says once a form of it why nothing is served."""
    node = Node()
    node.register()
    assert [6] == perms(node, GO)
    node.register(mappings=static(), counter=2)
    asked = (GO, JAVA_4_9_8, GO, JAVA_5_0_0, JAVA_4_9_8)
    assert [[0], [0], [0], [6], [0]] == [perms(node, one) for one in asked]
    assert ["static_topic_refused"] * 2 == [
        one.event for one in node.effects if getattr(one, "event", "").startswith("static")
    ]
    node.ask(216, {"topic": "A", "clusterName": CLUSTER})
    node.register([topic("A"), topic("B")], counter=3)
    assert [6] == perms(node, GO)


def perms(node: Node, version: int) -> list[int]:
    """Of the queues that a client is shown."""
    return [one["perm"] for one in node.route(version=version)["queueDatas"]]


SERVES = {"rmqhaServesOldClients": True}
SHOWN = "__syslo__global__A"
C_SET = {"brokerName": "c", "brokerAddr": "c:1", "haServerAddr": "c:2", "connection": 2}


def two_sets(node: Node, **of_b: Any) -> None:
    """A leads nothing of set b and both queues of set c; only b serves old clients, where told so."""
    node.register(mappings=static(leads={}), **of_b)
    node.register(mappings=static(broker="c", epoch=8, leads={0: 0, 1: 1}), **C_SET)


def front(node: Node, version: int = GO, perm: int = 6) -> tuple[dict[str, str], list[str]]:
    """The addresses of the one set that has queues, and the names of the others."""
    route = node.route(version=version)
    (queues,) = route["queueDatas"]
    assert {
        "brokerName": SHOWN, "perm": perm, "readQueueNums": 2, "topicSysFlag": 0, "writeQueueNums": 2,
    } == queues  # fmt: skip
    brokers = {one["brokerName"]: one["brokerAddrs"] for one in route["brokerDatas"]}
    assert {"orderTopicConf", "topicQueueMappingByBroker"}.isdisjoint(route)
    return brokers.pop(SHOWN), sorted(brokers)


@pytest.mark.parametrize("version", [0, GO, JAVA_4_9_8])
def test_route_when_a_set_serves_old_clients_then_it_has_all_logical_queues_for_them(
    version: int,
) -> None:
    """Under the name of no set; the others are there without queues, so that they know the group."""
    node = Node()
    two_sets(node, **SERVES)
    assert ({"0": MASTER}, ["c"]) == front(node, version)
    new = node.route(version=JAVA_5_0_0)
    assert {NAME, "c"} == {one["brokerName"] for one in new["queueDatas"]}
    assert {NAME, "c"} == {one["brokerName"] for one in node.route("B", version)["queueDatas"]}


def test_route_when_several_sets_serve_old_clients_then_who_leads_most_does() -> None:
    """Least is passed on; what clients call it stays the same when it is another one."""
    node = Node()
    two_sets(node, **SERVES)
    node.register(
        mappings=static(broker="c", epoch=8, leads={0: 0, 1: 1}), counter=2, **C_SET, **SERVES
    )
    assert ({"0": "c:1"}, [NAME]) == front(node)
    node.register(mappings=static(epoch=9, leads={0: 2, 1: 3}), counter=2, **SERVES)
    assert ({"0": MASTER}, ["c"]) == front(node)


def test_route_when_the_serving_set_loses_its_master_then_another_one_serves() -> None:
    """At once, as the route of any topic; without another one what is left of it is shown."""
    node = Node()
    slave = {"brokerAddr": SLAVE, "haServerAddr": SLAVE_HA, "brokerId": 2, "connection": 3}
    node.register(mappings=static(epoch=9), **SERVES)
    node.register(mappings=static(epoch=9), **slave, **SERVES)
    assert ({"0": MASTER}, []) == front(node)
    node.close(1)
    assert ({"2": SLAVE}, []) == front(node)
    node.register(mappings=static(broker="c", epoch=8, leads={}), **C_SET, **SERVES)
    assert ({"0": "c:1"}, [NAME]) == front(node)


def test_route_when_a_java_replica_becomes_master_then_its_set_serves_no_old_clients() -> None:
    """What counts is who is asked: it would take their requests as those of any client."""
    node = Node()
    node.register(mappings=static(), **SERVES)
    assert ({"0": MASTER}, []) == front(node)
    node.register(mappings=static(), brokerAddr=SLAVE, epoch=2, connection=2)
    assert [0] == perms(node, GO)
    # The same address, and another release of this project.
    node.register(mappings=static(), brokerAddr=SLAVE, epoch=2, connection=2, **SERVES)
    assert ({"0": SLAVE}, []) == front(node)


def test_route_when_a_set_is_closed_for_writing_then_another_one_serves() -> None:
    """It is about to be switched off."""
    node = Node()
    two_sets(node, **SERVES)
    node.register(
        mappings=static(broker="c", epoch=8, leads={0: 0, 1: 1}), counter=2, **C_SET, **SERVES
    )
    node.ask(205, {"brokerName": "c"})
    assert ({"0": MASTER}, ["c"]) == front(node, perm=4)


def test_route_when_all_leaders_are_closed_then_old_clients_write_no_more() -> None:
    """A set was drained, and old producers went on; who leads nothing plays no part."""
    node = Node()
    two_sets(node, **SERVES)
    assert ({"0": MASTER}, ["c"]) == front(node)
    node.ask(205, {"brokerName": NAME})
    assert ({"0": MASTER}, ["c"]) == front(node)
    node.ask(205, {"brokerName": "c"})
    assert ({"0": MASTER}, ["c"]) == front(node, perm=4)
    node.ask(327, {"brokerName": "c"})
    assert ({"0": MASTER}, ["c"]) == front(node)


def test_route_when_one_of_two_leaders_is_closed_then_old_clients_may_what_the_other_allows() -> (
    None
):
    """They know no queue from the next; without any permission of a leader they may nothing."""
    node = Node()
    node.register([topic("A", perm=5), topic("B")], mappings=static(leads={0: 0}), **SERVES)
    node.register(mappings=static(broker="c", leads={1: 0}), **C_SET)
    assert ({"0": MASTER}, ["c"]) == front(node)
    node.ask(205, {"brokerName": "c"})
    assert ({"0": MASTER}, ["c"]) == front(node, perm=4)
    node = Node()
    node.register([topic("A", perm=1), topic("B")], mappings=static(), **SERVES)
    assert ({"0": MASTER}, []) == front(node, perm=0)


def test_route_when_nobody_leads_a_queue_then_old_clients_see_it_open() -> None:
    """As between two words of a remapping: they ask again."""
    node = Node()
    node.register([topic("A", perm=4), topic("B")], mappings=static(leads={}), **SERVES)
    assert ({"0": MASTER}, []) == front(node)


def test_route_when_a_leader_does_not_list_the_topic_then_the_others_count() -> None:
    """Java's split registrations list topics first and mappings later; no answer may be lost by it."""
    node = Node()
    node.register([topic("A", perm=4), topic("B")], mappings=static(leads={0: 0}), **SERVES)
    node.register([topic("B"), topic("D")], mappings=static(broker="c", leads={1: 0}), **C_SET)
    assert "c" in infos(node)
    assert ({"0": MASTER}, []) == front(node, perm=4)


def test_route_when_many_topics_lie_alike_then_the_sets_share_their_old_clients() -> None:
    """By the topics' names: each name server chooses the same set."""
    node, names = Node(), [f"T{number}" for number in range(40)]
    infos = {name: mapping_info(name, leads={}) for name in names}
    node.register([topic(name) for name in names], mappings=infos, **SERVES)
    infos = {name: mapping_info(name, "c", leads={}) for name in names}
    node.register([topic(name) for name in names], mappings=infos, **C_SET, **SERVES)
    chosen = Counter(
        next(
            one["brokerAddrs"]["0"] for one in node.route(name, GO)["brokerDatas"]
            if one["brokerName"].startswith("__syslo__")
        )
        for name in names
    )  # fmt: skip
    assert {MASTER, "c:1"} == {*chosen}
    assert min(chosen.values()) > 10


def test_route_when_it_is_served_to_old_clients_then_the_log_says_by_whom() -> None:
    """Once for each change, as for one that is refused."""
    node = Node()
    two_sets(node, **SERVES)
    for _ in range(3):
        node.route(version=GO)
    assert [("static_topic_served", NAME)] == [
        (one.event, one.facts["by"]) for one in node.effects
        if isinstance(one, Note) and one.event.startswith("static")
    ]  # fmt: skip


def test_compressed_body_when_it_has_mappings_then_their_epochs_count_as_well() -> None:
    """The other form of a registration ends in the same rules."""
    node = Node()
    node.register(mappings=static(epoch=9))
    info = b'{"bname":"b","currIdMap":{0:0},"epoch":3,"topic":"A","totalQueues":2}'
    body = compressed_body([b"A 4 4 6 SINGLE_TAG", b"B 4 4 6 SINGLE_TAG"], infos=[info])
    node.ask(103, broker_fields(compressed=True, brokerAddr=MASTER), body)
    assert 9 == infos(node)[NAME]["epoch"]


def test_mapping_when_its_master_sends_news_of_another_topic_then_it_stays() -> None:
    """A registration of some topics says nothing about the others."""
    node = Node()
    node.register(mappings=static())
    for counter in (2, 3, 4):
        node.register([topic("B")], counter=counter)
    assert infos(node)


def test_limit_when_all_mappings_that_may_be_are_registered_again_then_they_are_taken() -> None:
    """The limit is reached, and nothing is new."""
    node = Node({"routesMax": "2"})
    both = {"A": mapping_info("A"), "B": mapping_info("B")}
    assert [node.register(mappings=both, counter=counter).code for counter in (1, 2)] == [0, 0]
