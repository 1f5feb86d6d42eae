"""Registering and leaving: every step and every trap of Java's algorithm."""

from __future__ import annotations

import zlib

import pytest

from rmqha.base.machine import Note
from rmqha.namesrv.messages import CloseConnection, NotifyMinBrokerId
from rmqha.remoting import fastjson
from rmqha.remoting.headers import ext_fields
from tests.namesrv.node import (
    CLUSTER,
    MASTER,
    MASTER_HA,
    NAME,
    SLAVE,
    SLAVE_HA,
    Node,
    broker_fields,
    compressed_body,
    mapping_info,
    registration_body,
    topic,
)

NOBODY: dict[str, str] = {}


def pair(**settings: str) -> Node:
    """A master over connection 1 and slave 2 over connection 2."""
    node = Node(settings)
    node.register()
    node.register(brokerId=2, brokerAddr=SLAVE, haServerAddr=SLAVE_HA, connection=2)
    node.effects.clear()
    return node


def acting_pair(**settings: str) -> Node:
    """The same in slave-acting-master mode."""
    node = Node(settings)
    node.register(enableActingMaster=True)
    node.register(
        brokerId=2, brokerAddr=SLAVE, haServerAddr=SLAVE_HA, connection=2, enableActingMaster=True
    )
    node.effects.clear()
    return node


# -- steps 1 to 7: who is listed as what -------------------------------------------------------


def test_master_when_it_registers_then_it_is_listed_and_told_nothing() -> None:
    """An empty header is success: the broker takes no master's address from it."""
    node = Node()
    answer = node.register()
    assert (0, {}, b"") == (answer.code, answer.ext_fields, answer.body)
    assert {"0": MASTER} == node.addresses()
    assert {"A": 6, "B": 6} == node.perms()


def test_slave_when_its_master_lives_then_it_is_told_both_addresses() -> None:
    """Step 11: without the HA address a Java slave replicates from nobody."""
    node = Node()
    node.register()
    answer = node.register(brokerId=2, brokerAddr=SLAVE, haServerAddr=SLAVE_HA)
    assert {"masterAddr": MASTER, "haServerAddr": MASTER_HA} == answer.ext_fields


def test_slave_when_the_listed_master_is_not_heard_then_it_is_told_nothing() -> None:
    """Step 11: an address whose broker was dropped is nobody to follow."""
    node = pair()
    node.machine.table.drop_live(next(key for key in node.machine.table.live if key[1] == MASTER))
    assert {} == node.register(brokerId=2, brokerAddr=SLAVE).ext_fields


def test_slave_when_it_becomes_master_then_its_address_has_one_id_only() -> None:
    """Step 4: the same process under two ids would be consumed from twice."""
    node = pair()
    node.close(1)
    node.register(brokerId=0, brokerAddr=SLAVE, haServerAddr=SLAVE_HA, epoch=2, connection=2)
    assert {"0": SLAVE} == node.addresses()


@pytest.mark.parametrize(("epoch", "wins"), [(1, False), (2, True), (3, True)])
def test_two_masters_when_both_register_then_the_larger_epoch_wins(
    epoch: int, *, wins: bool
) -> None:
    """Step 5: a master that was replaced must not take the route back; equal epochs: the newer."""
    node = Node()
    node.register(epoch=2)
    answer = node.register(brokerAddr=SLAVE, epoch=epoch, connection=2)
    assert (0, {}) == (answer.code, answer.ext_fields)
    assert {"0": SLAVE if wins else MASTER} == node.addresses()
    assert ((CLUSTER, SLAVE) in node.machine.table.live) == wins


def test_old_master_when_it_claims_its_id_again_then_its_slave_id_goes() -> None:
    """Step 5 after 4: what is dropped from the live table must not stay in the route for ever."""
    node = pair()
    node.register(brokerId=0, brokerAddr=SLAVE, epoch=0, connection=2)
    assert {"0": MASTER} == node.addresses()
    assert [(CLUSTER, MASTER)] == list(node.machine.table.live)


@pytest.mark.parametrize("count", [0, 2])
def test_first_registration_when_it_has_other_than_one_topic_then_it_is_taken(count: int) -> None:
    """Step 6: only exactly one topic looks like news of a topic."""
    node = Node()
    assert 0 == node.register([topic(f"T{n}") for n in range(count)]).code
    assert {"0": MASTER} == node.addresses()


def test_first_registration_when_it_has_one_topic_then_it_is_refused_and_changes_nothing() -> None:
    """Step 6. Java leaves the name in its cluster for ever; so it would show a ghost."""
    node = Node()
    answer = node.register([topic("A")])
    assert (1, "register broker failed") == (answer.code, answer.remark)
    assert {"brokerAddrTable": {}, "clusterAddrTable": {}} == fastjson.loads(node.ask(106).body)
    assert not node.machine.table.live


def test_slave_when_its_first_word_as_master_is_one_topic_then_its_old_id_stays() -> None:
    """Java takes the old id away and then refuses: the broker is gone from the route."""
    node = pair()
    assert 1 == node.register([topic("A")], brokerId=1, brokerAddr=SLAVE, connection=2).code
    assert {"0": MASTER, "2": SLAVE} == node.addresses()


def test_known_broker_when_it_sends_one_topic_then_only_that_topic_changes() -> None:
    """An increment after a whole registration."""
    node = pair()
    node.register([topic("N", queues=7)], counter=2)
    assert {"A", "B", "N"} == set(node.perms())


# -- step 8: whose topics count ----------------------------------------------------------------


def test_slave_when_a_master_is_there_then_its_topics_do_not_count() -> None:
    """Slaves copy late: their table is older than the master's."""
    node = pair()
    node.register([topic("X"), topic("Y")], brokerId=2, brokerAddr=SLAVE, counter=9)
    assert {"A", "B"} == set(node.perms())


def test_slave_of_5x_when_it_has_the_smallest_id_then_it_speaks_for_the_set() -> None:
    """The prime slave; readers must find the topics of a set without a master."""
    node = Node()
    node.register(brokerId=2, brokerAddr=SLAVE)
    assert {"A": 6, "B": 6} == node.perms()


def test_slave_of_4x_when_it_has_the_smallest_id_then_its_topics_do_not_count() -> None:
    """It does not say enableActingMaster at all."""
    node = Node()
    node.register(brokerId=2, brokerAddr=SLAVE, enableActingMaster=None)
    assert ({}, {"2": SLAVE}) == (node.perms(), node.addresses())


def test_prime_slave_when_it_acts_as_master_then_nothing_can_be_written() -> None:
    """Clients must not send to a set without a master."""
    node = Node()
    node.register(brokerId=2, brokerAddr=SLAVE, enableActingMaster=True)
    assert {"A": 4, "B": 4} == node.perms()


def test_topics_when_the_version_is_the_same_then_wiped_permissions_stay() -> None:
    """Step 8: a periodic registration must not undo an operator's wipe; a change does."""
    node = pair()
    node.ask(205, {"brokerName": NAME})
    node.register()
    assert {"A": 4, "B": 4} == node.perms()
    node.register(counter=2)
    assert {"A": 6, "B": 6} == node.perms()


def test_topics_when_they_miss_at_the_same_version_then_they_are_listed_again() -> None:
    """Step 8: 216 took the topic from the route, but the broker still has it."""
    node = pair()
    node.ask(216, {"topic": "A"})
    node.register()
    assert {"A", "B"} == set(node.perms())


@pytest.mark.parametrize("delete", ["false", "true"])
def test_topics_when_they_are_not_registered_any_more_then_by_the_setting(delete: str) -> None:
    """deleteTopicWithBrokerRegistration, off by default."""
    node = pair(deleteTopicWithBrokerRegistration=delete)
    node.register([topic("B"), topic("N")], counter=2)
    assert ({"B", "N"} if delete == "true" else {"A", "B", "N"}) == set(node.perms())


def test_topics_when_static_ones_are_registered_then_none_is_deleted() -> None:
    """The setting does not know static topics, as in Java."""
    node = pair(deleteTopicWithBrokerRegistration="true")
    node.register([topic("B"), topic("N")], counter=2, mappings={"B": mapping_info("B")})
    assert {"A", "B", "N"} == set(node.perms())


# -- the body ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("shift", "code"), [(0, 0), (1, 1)])
def test_crc_when_it_is_given_then_the_body_must_match(shift: int, code: int) -> None:
    """Of the bytes as sent, without the sign bit; 0 asks for no check."""
    body = registration_body([topic("A"), topic("B")])
    crc = (zlib.crc32(body) + shift) & 0x7FFFFFFF
    answer = Node().ask(103, broker_fields(bodyCrc32=crc), body)
    assert (code, "crc32 not match" if code else None) == (answer.code, answer.remark)


def test_compressed_body_when_it_is_from_5x_then_topics_and_mappings_are_read() -> None:
    """compressedRegister=true; flags are lost in this form."""
    node = Node()
    info = fastjson.dumps(mapping_info("A"))
    body = compressed_body(
        [b"A 3 4 7 SINGLE_TAG {}", b"B 1 2 6 SINGLE_TAG"], filters=b'["f:1"]', infos=[info]
    )
    crc = zlib.crc32(body) & 0x7FFFFFFF
    assert 0 == node.ask(103, broker_fields(compressed=True, bodyCrc32=crc), body).code
    route = node.route()
    assert [
        {"brokerName": NAME, "perm": 7, "readQueueNums": 3, "topicSysFlag": 0, "writeQueueNums": 4}
    ] == route["queueDatas"]
    assert {MASTER: ["f:1"]} == route["filterServerTable"]
    assert NAME in route["topicQueueMappingByBroker"]


def test_compressed_body_when_it_is_from_4x_then_it_ends_before_the_mappings() -> None:
    """Reading on would refuse every 4.9 broker."""
    node = Node()
    body = compressed_body([b"A 3 4 6 SINGLE_TAG", b"B 3 4 6 SINGLE_TAG"], infos=None)
    fields = broker_fields(compressed=True, enableActingMaster=None)
    assert 0 == node.ask(103, fields, body, version=399).code
    assert 1 == node.ask(103, fields, body, version=VERSION_5).code
    assert {"A", "B"} == set(node.perms())


VERSION_5 = 413


def test_body_of_3_0_10_when_it_is_only_the_topics_then_they_are_read() -> None:
    """Before 3.0.11 the wrapper was the whole body."""
    node = Node()
    body = fastjson.dumps(
        {"dataVersion": {"counter": 1, "timestamp": 2},
         "topicConfigTable": {"A": topic("A"), "B": topic("B")}}
    )  # fmt: skip
    assert 0 == node.ask(103, broker_fields(), body, version=36).code
    assert {"A", "B"} == set(node.perms())


@pytest.mark.parametrize(
    ("fields", "body"),
    [
        ({}, b"garbage"),
        ({}, b"[]"),
        ({}, b'{"topicConfigSerializeWrapper":[]}'),
        ({}, b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"A":5}}}'),
        ({}, b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"A":{"perm":-1}}}}'),
        ({}, b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"":{"perm":6}}}}'),
        ({}, b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"A":{"topicName":7}}}}'),
        ({}, b'{"topicConfigSerializeWrapper":{"dataVersion":{"counter":"x"}}}'),
        ({}, b'{"topicConfigSerializeWrapper":{"topicQueueMappingInfoMap":{"A":{}}}}'),
        ({}, b'{"filterServerList":7}'),
        ({"compressed": True}, b"garbage"),
        ({"compressed": True}, compressed_body([b"A 3"])),
        ({"compressed": True}, compressed_body([b"A x 4 6 SINGLE_TAG"])),
        ({"compressed": True}, compressed_body([b"\xff 3 4 6 SINGLE_TAG"])),
        ({"compressed": True}, compressed_body([b"A 3 4 6 SINGLE_TAG"])[:-9]),
        ({"compressed": True}, zlib.compress(b"\x7f\xff\xff\xff")),
        ({"brokerId": None}, b""),
        ({"brokerId": -1}, b""),
        ({"brokerName": None}, b""),
        ({"brokerName": " "}, b""),
        ({"brokerAddr": None}, b""),
        ({"clusterName": None}, b""),
        ({"brokerName": "n" * 513}, b""),
    ],
)
def test_registration_when_it_is_garbage_then_code_1_and_nothing_changes(
    fields: dict[str, object], body: bytes
) -> None:
    """Java's code; what was listed before is still listed."""
    node = pair()
    before = node.ask(106).body, node.ask(206).body
    answer = node.ask(103, broker_fields(**fields), body)
    assert 1 == answer.code
    assert answer.remark
    assert before == (node.ask(106).body, node.ask(206).body)


def test_registration_when_it_inflates_beyond_the_limit_then_it_is_refused() -> None:
    """A small body may stand for gigabytes."""
    node = Node({"registrationBytesMax": "10000"})
    body = compressed_body([b"A%d 3 4 6 SINGLE_TAG" % n for n in range(1000)])
    answer = node.ask(103, broker_fields(compressed=True), body)
    assert 1 == answer.code
    assert "10000" in str(answer.remark)


def test_registration_when_it_was_cut_off_within_the_limit_then_it_is_too_large_all_the_same() -> (
    None
):
    """All of it was read, and what it stands for is not all there: a part is no registration."""
    body = compressed_body([b"A%d 3 4 6 SINGLE_TAG" % n for n in range(1000)])
    cut, inflater = b"", zlib.decompressobj()
    for size in range(len(body)):  # as far as it says 10,000 bytes, and a little more
        cut, inflater = body[:size], zlib.decompressobj()
        if len(inflater.decompress(cut, 10_000)) == 10_000:
            break
    assert (inflater.unconsumed_tail, inflater.eof) == (b"", False)
    node = Node({"registrationBytesMax": "10000"})
    answer = node.ask(103, broker_fields(compressed=True), cut)
    assert answer.code == 1
    assert "larger than 10000 bytes" in str(answer.remark)


@pytest.mark.parametrize(
    ("settings", "name"), [({"brokersMax": "1"}, "brokers"), ({"routesMax": "3"}, "routes")]
)
def test_registration_when_a_limit_is_reached_then_it_is_refused(
    settings: dict[str, str], name: str
) -> None:
    """Memory is bounded whatever comes; known brokers go on."""
    node = Node(settings)
    assert 0 == node.register().code
    answer = node.register(brokerName="other", brokerAddr=SLAVE)
    assert 1 == answer.code
    assert name in str(answer.remark)
    assert 0 == node.register(counter=2).code


# -- leaving -----------------------------------------------------------------------------------


def test_connection_when_it_closes_then_its_brokers_leave_at_once() -> None:
    """kill -9 of a broker must show in routes before any timeout. Java forgets one of them only."""
    node = Node()
    node.register()
    node.register(brokerName="other", brokerAddr=SLAVE)
    node.close(1)
    assert {"brokerAddrTable": {}, "clusterAddrTable": {}} == fastjson.loads(node.ask(106).body)
    assert 17 == node.ask(105, {"topic": "A"}).code
    assert {"topicList": []} == fastjson.loads(node.ask(206).body)


def test_connection_when_a_newer_one_registered_then_the_old_close_changes_nothing() -> None:
    """A broker that connected anew is alive, whatever becomes of its old connection."""
    node = pair()
    node.register(connection=3)
    node.close(1)
    assert {"0": MASTER, "2": SLAVE} == node.addresses()


def test_old_master_when_its_id_was_taken_then_its_close_leaves_the_route_alone() -> None:
    """Failover: the new master holds 0. Java keeps the dead one in its live table for ever."""
    node = pair()
    node.register(brokerId=0, brokerAddr=SLAVE, epoch=2, connection=2)
    node.close(1)
    assert {"0": SLAVE} == node.addresses()
    assert [(CLUSTER, SLAVE)] == list(node.machine.table.live)


def test_silent_broker_when_its_own_timeout_passes_then_it_leaves_and_is_cut_off() -> None:
    """120 s, or what it registered with; a sign of life of any kind counts."""
    node = pair()
    node.register(brokerId=3, brokerAddr="10.0.0.3:1", heartbeatTimeoutMillis=9000, connection=3)
    node.tick(9000)
    assert {"0", "2", "3"} == set(node.addresses())
    node.tick(1)
    assert {"0", "2"} == set(node.addresses())
    assert CloseConnection(3) in node.effects
    node.now_ms += 100_000
    node.ask(904, broker_fields())
    node.tick(20_000)
    assert {"0": MASTER} == node.addresses()
    node.ask(322, broker_fields(), b"{}")
    node.tick(120_000)
    assert {"0": MASTER} == node.addresses()
    node.tick(1)
    assert {} == node.addresses()


def test_heartbeat_when_the_broker_is_not_listed_then_it_stays_unlisted() -> None:
    """904 and 322 never create an entry."""
    node = Node()
    assert 0 == node.ask(904, broker_fields()).code
    assert {"changed": "true"} == node.ask(322, broker_fields(), b"{}").ext_fields
    assert not node.machine.table.live


def test_unregister_when_asked_then_the_address_goes_and_the_rest_stays() -> None:
    """104 of a slave, then of the master: topics go with the last address."""
    node = pair()
    node.ask(104, broker_fields(brokerId=2, brokerAddr=SLAVE), connection=2)
    assert {"0": MASTER} == node.addresses()
    assert {"A": 6, "B": 6} == node.perms()
    node.ask(104, broker_fields())
    assert ({}, {}) == (node.addresses(), node.perms())


def test_unregister_when_the_broker_has_registered_anew_then_it_stays() -> None:
    """#11043, #5374: the old process's last word, or its end, took the new one off for 30 seconds."""
    node = Node()
    node.register(connection=1)
    node.register(connection=2, epoch=2)
    assert 0 == node.ask(104, broker_fields(), connection=1).code
    assert {"0": MASTER} == node.addresses()
    node.close(1)
    assert {"0": MASTER} == node.addresses()
    node.ask(104, broker_fields(), connection=2)
    assert {} == node.addresses()


def test_unregister_when_the_name_is_wrong_then_nothing_changes() -> None:
    """Java forgets that the broker lives and keeps its address in the route for ever."""
    node = pair()
    assert 0 == node.ask(104, broker_fields(brokerName="other")).code
    assert {"0": MASTER, "2": SLAVE} == node.addresses()
    node.close(1)
    assert {"2": SLAVE} == node.addresses()


def test_broker_when_it_comes_back_under_another_name_then_the_old_one_is_gone() -> None:
    """One address is one process."""
    node = Node()
    node.register()
    node.register(brokerName="other", connection=2)
    assert ({}, {"0": MASTER}) == (node.addresses(), node.addresses("other"))
    node.close(1)
    assert {"0": MASTER} == node.addresses("other")


def test_acting_group_when_its_master_leaves_then_the_write_bit_goes() -> None:
    """Only in slave-acting-master groups; otherwise perms stay."""
    node = acting_pair()
    node.close(1)
    assert {"A": 4, "B": 4} == node.perms()
    node = pair()
    node.close(1)
    assert {"A": 6, "B": 6} == node.perms()


# -- 905 ---------------------------------------------------------------------------------------


def notice(**fields: object) -> dict[str, str]:
    """The fields of 905."""
    return ext_fields(**fields)  # type: ignore[arg-type]  # texts and numbers


def test_min_id_when_the_master_goes_then_all_that_remain_are_told() -> None:
    """Acting groups only."""
    node = acting_pair(notifyMinBrokerIdChanged="true")
    node.close(1)
    fields = notice(minBrokerId=2, minBrokerAddr=SLAVE, offlineBrokerAddr=MASTER)
    assert [NotifyMinBrokerId((SLAVE,), fields)] == node.told()


def test_min_id_when_another_goes_or_nobody_asked_then_nobody_is_told() -> None:
    """A slave that goes changes no smallest id; without the setting or the mode, silence."""
    node = acting_pair(notifyMinBrokerIdChanged="true")
    node.close(2)
    assert [] == node.told()
    for other in (acting_pair(), pair(notifyMinBrokerIdChanged="true")):
        other.close(1)
        assert [] == other.told()


def test_min_id_when_a_smaller_one_registers_then_the_others_are_told() -> None:
    """With the newcomer's HA address; the newcomer itself is not told."""
    node = Node({"notifyMinBrokerIdChanged": "true"})
    for number in (3, 2):
        node.register(brokerId=number, brokerAddr=f"10.0.0.{number}:1", connection=number)
    node.told()
    node.register(connection=1)
    told = ("10.0.0.2:1", "10.0.0.3:1")
    fields = notice(minBrokerId=0, minBrokerAddr=MASTER, haBrokerAddr=MASTER_HA)
    assert [NotifyMinBrokerId(told, fields)] == node.told()
    node.register(connection=1)
    assert [] == node.told()


def test_min_id_when_a_lone_slave_becomes_master_then_it_is_told_itself() -> None:
    """One member left: everybody is told, that is, itself."""
    node = Node({"notifyMinBrokerIdChanged": "true"})
    node.register(brokerId=2, brokerAddr=SLAVE)
    node.told()
    node.register(brokerId=0, brokerAddr=SLAVE, haServerAddr=SLAVE_HA, epoch=2)
    fields = notice(minBrokerId=0, minBrokerAddr=SLAVE, haBrokerAddr=SLAVE_HA)
    assert [NotifyMinBrokerId((SLAVE,), fields)] == node.told()


# -- what people read --------------------------------------------------------------------------


def test_notes_when_brokers_come_change_and_go_then_one_each() -> None:
    """A failover must be readable from the log; a periodic registration must not fill it."""
    node = pair()
    node.register()
    assert [] == node.effects
    node.close(1)
    node.register(brokerId=0, brokerAddr=SLAVE, epoch=2, connection=2)
    notes = [one for one in node.effects if isinstance(one, Note)]
    assert ["broker_unregistered", "broker_role_changed"] == [note.event for note in notes]
    assert "connection closed" == notes[0].facts["reason"]
    assert (2, 0, 2) == tuple(notes[1].facts[key] for key in ("before_id", "broker_id", "epoch"))


def test_stale_newcomer_when_it_is_dropped_then_so_are_its_filter_servers() -> None:
    """A route would name servers of a broker that is not listed, for ever."""
    node = pair()
    node.register(brokerId=2, brokerAddr=SLAVE, connection=2, filters=["f:1"])
    table = node.machine.table
    assert list(table.filter_servers) == [(CLUSTER, SLAVE)]
    node.register(brokerId=0, brokerAddr=SLAVE, epoch=0, connection=2, filters=["f:1"])
    assert table.filter_servers == {}
    assert node.route()["filterServerTable"] == {}


def test_cluster_when_a_known_set_comes_into_it_then_kept_answers_name_it() -> None:
    """Nothing else of the set has changed: its addresses are as they were."""
    node = Node()
    node.register()
    before = node.ask(106).body
    node.register(clusterName="D", connection=1)
    assert fastjson.loads(before)["clusterAddrTable"] == {CLUSTER: [NAME]}
    assert fastjson.loads(node.ask(106).body)["clusterAddrTable"] == {CLUSTER: [NAME], "D": [NAME]}
