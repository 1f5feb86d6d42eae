"""Users who name what is theirs, and mean what is another's: a record by its place, a group's retries."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest

from rmqha.auth.signature import Credentials
from rmqha.broker.topics.aio.ports import TABLE_FIELD, TABLE_WANTED
from rmqha.broker.topics.aio.rights import SLAVE_USER
from rmqha.ha.events import Role
from rmqha.remoting.command import RemotingCommand
from tests.broker.replicas import NAME, TOPIC, ReplicaCluster, master_of, send_fields
from tests.broker.test_accounts_in_simulator import (
    ANN,
    INNER,
    KEYS,
    ROOT,
    ask,
    cluster,
    done,
    make_acl,
    make_user,
    refused,
)

__all__ = ["cluster"]

BOB = Credentials("bob", "bob-s-password")
SIZE = struct.Struct(">i")
HA_SECRET = "0123456789abcdef0123"
OTHER_SECRET = "of-another-roll-0123"


def places(cluster: ReplicaCluster) -> Iterator[tuple[int, bytes]]:
    """Every record of the log, and where it is."""
    store = master_of(cluster).store
    at = 0
    while at < store.confirm_offset:
        (size,) = SIZE.unpack(store.view(at, 4))
        yield at, bytes(store.view(at, size))
        at += size


def place_of(cluster: ReplicaCluster, text: bytes) -> int:
    """Where the record is that holds a text."""
    return next(at for at, record in places(cluster) if text in record)


def join(cluster: ReplicaCluster, *groups: str) -> None:
    """Make groups and their retry topics, as consumers do."""
    consumers = [
        {
            "groupName": one, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": [],
            "unitMode": False,
        }
        for one in groups
    ]  # fmt: skip
    body = {"clientID": "c@1", "consumerDataSet": consumers, "producerDataSet": []}
    done(ask(cluster, 34, {}, body))


def pull(topic: str, group: str) -> dict[str, str]:
    """The fields of 11, from the first message of queue 0."""
    return {
        "consumerGroup": group, "topic": topic, "queueId": "0", "queueOffset": "0",
        "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
        "subscription": "*", "subVersion": "0", "expressionType": "TAG",
    }  # fmt: skip


# -- records by their places -----------------------------------------------------------------------


@pytest.mark.parametrize("by", [ANN, ROOT])
def test_users_when_their_record_is_asked_for_by_its_place_then_there_is_none(
    cluster: ReplicaCluster, by: Credentials
) -> None:
    """Their passwords are in it; Ann might look at a topic that need not even be there."""
    done(make_user(cluster))
    done(make_user(cluster, BOB, userType="Super"))
    for resource, actions in (("Topic:*", ("Get", "Sub")), ("Group:mine", ("Sub",))):
        done(make_acl(cluster, resource, *actions))
    join(cluster, "mine")
    at = place_of(cluster, b"bob-s-password")
    found = ask(cluster, 33, {"offset": str(at), "topic": "mine"}, by=by)
    assert (found.code, found.remark) == (1, f"can not find message by the offset, {at}")
    back = {"offset": str(at), "group": "mine", "delayLevel": "1", "originTopic": "mine"}
    found = ask(cluster, 36, back, by=by)
    assert (found.code, found.remark) == (1, f"can not find message by the offset, {at}")


def test_message_when_named_by_its_place_then_its_own_topic_is_asked_for(
    cluster: ReplicaCluster,
) -> None:
    """33 shows it and 36 copies it to a topic of the asker's, whichever topic was named."""
    done(make_user(cluster))
    done(ask(cluster, 310, send_fields(1), b"of orders"))
    done(make_acl(cluster, "Topic:mine", "Get", "Sub"))
    done(make_acl(cluster, "Group:mine", "Sub"))
    join(cluster, "mine")
    at = place_of(cluster, b"of orders")
    view = {"offset": str(at), "topic": "mine"}
    back = {"offset": str(at), "group": "mine", "delayLevel": "1", "originTopic": "mine"}
    assert f"Topic:{TOPIC}" in refused(ask(cluster, 33, view, by=ANN))
    assert f"Topic:{TOPIC}" in refused(ask(cluster, 36, back, by=ANN))
    assert master_of(cluster).refusals.counts["no_policy"] == 2
    done(make_acl(cluster, f"Topic:{TOPIC}", "Get"))
    assert b"of orders" in done(ask(cluster, 33, view, by=ANN))
    assert f"Topic:{TOPIC}" in refused(ask(cluster, 36, back, by=ANN))
    done(make_acl(cluster, f"Topic:{TOPIC}", "Sub"))
    done(ask(cluster, 36, back, by=ANN))
    # What was delivered once more is a message of the group's own, and goes back again.
    cluster.run_for(2_000)
    again = [at for at, one in places(cluster) if b"%RETRY%mine" in one and b"of orders" in one]
    done(make_acl(cluster, f"Topic:{TOPIC}", "Sub", decision="Deny"))
    done(ask(cluster, 36, {**back, "offset": str(again[-1])}, by=ANN))


def test_message_when_it_waits_for_its_time_then_its_own_topic_is_asked_for(
    cluster: ReplicaCluster,
) -> None:
    """It lies in a topic of the broker's; who may see that topic's messages may see it."""
    done(make_user(cluster))
    fields = send_fields(1)
    done(ask(cluster, 310, {**fields, "i": fields["i"] + "DELAY\x0118\x02"}, b"later"))
    done(make_acl(cluster, "Topic:SCHEDULE_TOPIC_XXXX", "Get"))
    view = {"offset": str(place_of(cluster, b"later")), "topic": TOPIC}
    assert f"Topic:{TOPIC}" in refused(ask(cluster, 33, view, by=ANN))
    done(make_acl(cluster, f"Topic:{TOPIC}", "Get"))
    assert b"later" in done(ask(cluster, 33, view, by=ANN))


@pytest.mark.parametrize(
    ("topic", "queue", "flag", "properties"),
    [
        ("SCHEDULE_TOPIC_XXXX", 17, "0", "DELAY\x0118\x02"),
        ("rmq_sys_wheel_timer", 0, "0", "TIMER_DELAY_SEC\x01100\x02"),
        ("RMQ_SYS_TRANS_HALF_TOPIC", 0, "4", "TRAN_MSG\x01true\x02PGROUP\x01P\x02"),
    ],
)
def test_message_when_it_waits_in_the_brokers_own_topic_then_who_reads_that_reads_the_cluster(
    cluster: ReplicaCluster, topic: str, queue: int, flag: str, properties: str
) -> None:
    """A topic that was denied to Ann was hers with its messages' delay, or before their commit."""
    done(make_user(cluster))
    for resource, decision in (("Topic:*", "Allow"), ("Group:mine", "Allow"), ("Topic:S", "Deny")):
        done(make_acl(cluster, resource, "Sub", "Get", decision=decision))
    join(cluster, "mine")
    sent = send_fields(0, "S") | {"e": "0", "f": flag, "i": f"UNIQ_KEY\x01A1\x02{properties}"}
    done(ask(cluster, 310, sent, b"secret", by=ROOT))
    wanted = pull(topic, "mine") | {"queueId": str(queue)}
    for code in (11, 361, 200050, 200052, 12):
        assert "Cluster:" in refused(ask(cluster, code, wanted, by=ANN)), code
    assert b"secret" in ask(cluster, 11, wanted, by=ROOT).body
    done(make_acl(cluster, "Cluster:DefaultCluster", "Get"))
    assert b"secret" in ask(cluster, 11, wanted, by=ANN).body


def test_message_when_an_operator_has_a_consumer_take_it_then_its_own_topic_is_asked_for(
    cluster: ReplicaCluster,
) -> None:
    """309 sends its bytes to a client that its sender chooses, which may be the sender's own."""
    done(make_user(cluster))
    done(make_user(cluster, BOB, userType="Super"))
    answer = ask(cluster, 310, send_fields(1), b"of orders")
    done(make_acl(cluster, "Group:mine", "Sub"))
    join(cluster, "mine")
    told: list[RemotingCommand] = []
    master_of(cluster).clients.invoke = _noting(told)  # type: ignore[method-assign]
    message_id = (answer.ext_fields or {})["msgId"]
    asked = {"consumerGroup": "mine", "clientId": "c@1", "msgId": message_id}
    assert f"Topic:{TOPIC}" in refused(ask(cluster, 309, asked, by=ANN))
    assert not told
    done(make_acl(cluster, f"Topic:{TOPIC}", "Sub"))
    done(ask(cluster, 309, asked, by=ANN))
    assert b"of orders" in told[0].body
    secret = f"{message_id[:16]}{place_of(cluster, b'bob-s-password'):016X}"
    found = ask(cluster, 309, {**asked, "msgId": secret}, by=ROOT)
    assert (found.code, len(told)) == (1, 1)


@pytest.mark.parametrize(
    "message_id", [None, "", "zz", "0" * 31, "-" + "1" * 31, "F" * 32, "0" * 56]
)
def test_consumer_when_it_shall_take_a_message_that_is_not_there_then_it_is_sent_nothing(
    cluster: ReplicaCluster, message_id: str | None
) -> None:
    """Whoever asked chose the bytes that the group's consumer took for a message (309)."""
    join(cluster, "mine")
    told: list[RemotingCommand] = []
    master_of(cluster).clients.invoke = _noting(told)  # type: ignore[method-assign]
    asked = {"consumerGroup": "mine", "clientId": "c@1"}
    if message_id is not None:
        asked["msgId"] = message_id
    found = ask(cluster, 309, asked, b"bytes of the asker's")
    assert found.code == 1
    assert "message" in (found.remark or "")
    assert not told


def test_consumer_when_an_operator_asks_through_the_broker_then_it_is_given_no_signature(
    cluster: ReplicaCluster,
) -> None:
    """It covers no names and no code: a consumer could ask for other things in the operator's name."""
    answer = ask(cluster, 310, send_fields(1), b"of orders")
    join(cluster, "mine")
    told: list[RemotingCommand] = []
    master_of(cluster).clients.invoke = _noting(told)  # type: ignore[method-assign]
    token = Credentials("root", "root-secret", "a token")
    asked = {"consumerGroup": "mine", "clientId": "c@1"}
    done(ask(cluster, 307, {**asked, "jstackEnable": "true"}, by=token))
    message_id = (answer.ext_fields or {})["msgId"]
    done(ask(cluster, 309, {**asked, "msgId": message_id}, b"bytes of the asker's", by=token))
    assert [one.ext_fields for one in told] == [
        {**asked, "jstackEnable": "true"}, {**asked, "msgId": message_id, "brokerName": NAME},
    ]  # fmt: skip
    assert b"of orders" in told[1].body


def test_reply_when_its_topic_is_another_s_then_it_is_not_stored(cluster: ReplicaCluster) -> None:
    """Any user may reply (324, 325), into the cluster's topic of replies, and into no other."""
    done(make_user(cluster))
    done(ask(cluster, 310, send_fields(1), b"by root"))

    def replied(number: int, topic: str = TOPIC, body: bytes = b"forged", **more: str) -> str:
        fields = {**send_fields(number), "b": topic, "e": "0", **more}
        answer = ask(cluster, 325, fields, body, by=ANN)
        assert (answer.code, "REPLY_TO_CLIENT" in (answer.remark or "")) == (1, True)
        return (answer.ext_fields or {})["msgId"]

    assert replied(2) == "0"
    plain = {"topic": TOPIC, "producerGroup": "PG", "defaultTopic": "TBW102", "queueId": "0",
             "defaultTopicQueueNums": "4", "sysFlag": "0", "bornTimestamp": "0", "flag": "0",
             "properties": ""}  # fmt: skip
    assert (ask(cluster, 324, plain, b"forged", by=ANN).ext_fields or {})["msgId"] == "0"
    assert not any(b"forged" in record for _, record in places(cluster))
    assert master_of(cluster).refusals.counts["no_policy"] == 2
    assert replied(3, "DefaultCluster_REPLY_TOPIC", b"a reply") != "0"
    done(make_acl(cluster, f"Topic:{TOPIC}", "Pub"))
    assert replied(4, body=b"a message") != "0"
    for flag in ("4", "8", "12"):
        half = {"f": flag, "i": send_fields(5)["i"] + "TRAN_MSG\x01true\x02"}
        assert replied(5, "DefaultCluster_REPLY_TOPIC", b"half", **half) == "0"
    assert replied(6, "DefaultCluster_REPLY_TOPIC", b"x" * (5 << 20)) == "0"


def _noting(told: list[RemotingCommand]) -> Any:
    async def invoke(_: object, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        told.append(command)
        return RemotingCommand(0)

    return invoke


def test_transaction_when_another_topic_is_named_then_the_half_message_s_own_is_asked_for(
    cluster: ReplicaCluster,
) -> None:
    """Clients before 5.2 name none at all."""
    done(make_user(cluster))
    fields = send_fields(1)
    properties = fields["i"] + "TRAN_MSG\x01true\x02PGROUP\x01PG\x02"
    done(ask(cluster, 310, {**fields, "f": "4", "i": properties}, b"half"))
    done(make_acl(cluster, "Topic:mine", "Pub"))
    end = {
        "producerGroup": "PG", "tranStateTableOffset": "0", "commitOrRollback": "8",
        "commitLogOffset": str(place_of(cluster, b"half")), "fromTransactionCheck": "false",
        "msgId": "U1", "transactionId": "U1",
    }  # fmt: skip
    for named in ({"topic": "mine"}, {}):
        assert f"Topic:{TOPIC}" in refused(ask(cluster, 37, end | named, by=ANN))
    assert master_of(cluster).store.reader.max_offset(TOPIC, 1) == 0
    done(make_acl(cluster, f"Topic:{TOPIC}", "Pub"))
    done(ask(cluster, 37, end, by=ANN))
    assert master_of(cluster).store.reader.max_offset(TOPIC, 1) == 1


# -- retry topics ------------------------------------------------------------------------------------


def test_retry_topic_when_it_is_another_group_s_then_that_group_is_asked_for(
    cluster: ReplicaCluster,
) -> None:
    """Java lets whoever may consume as some group read what any other group could not handle."""
    done(make_user(cluster))
    done(make_acl(cluster, "Group:mine", "Sub"))
    join(cluster, "mine", "theirs")
    done(ask(cluster, 310, {**send_fields(1), "b": "%RETRY%theirs", "e": "0"}, b"of theirs"))
    for code in (11, 361):
        assert "Group:theirs" in refused(ask(cluster, code, pull("%RETRY%theirs", "mine"), by=ANN))
        assert "Group:theirs" in refused(
            ask(cluster, code, pull("%RETRY%theirs", "theirs"), by=ANN)
        )
        assert ask(cluster, code, pull("%RETRY%mine", "mine"), by=ANN).code != 16
    done(make_acl(cluster, "Group:theirs", "Sub"))
    assert ask(cluster, 11, pull("%RETRY%theirs", "theirs"), by=ANN).code == 0


@pytest.mark.costly
def test_popped_message_when_it_came_again_then_who_may_consume_may_acknowledge_it(
    cluster: ReplicaCluster,
) -> None:
    """Java asks for a group by the name of the retry topic, which nobody has: it comes for ever."""
    done(make_user(cluster))
    done(make_acl(cluster, f"Topic:{TOPIC}", "Sub"))
    done(make_acl(cluster, "Group:CG", "Sub"))
    done(ask(cluster, 310, send_fields(0), b"again"))
    pop = {
        "consumerGroup": "CG", "topic": TOPIC, "queueId": "-1", "maxMsgNums": "1",
        "invisibleTime": "10000", "pollTime": "0", "bornTime": "0", "initMode": "0",
        "order": "false", "expType": "TAG", "exp": "*",
    }  # fmt: skip
    found: list[RemotingCommand] = []

    def is_popped() -> bool:
        found.append(ask(cluster, 200_050, pop, by=ANN))
        return found[-1].code == 0

    cluster.until(is_popped, "a first delivery")
    cluster.until(is_popped, "a second delivery")
    fields = found[-1].ext_fields or {}
    mark, queue, start = fields["startOffsetInfo"].split(" ")
    assert mark == "1", "of a retry topic"
    extra = " ".join(
        [start, fields["popTime"], fields["invisibleTime"], fields["reviveQid"], mark, NAME, queue,
         start]
    )  # fmt: skip
    handle = {
        "consumerGroup": "CG", "topic": f"%RETRY%CG_{TOPIC}", "queueId": queue,
        "extraInfo": extra, "offset": start,
    }  # fmt: skip
    later = {**handle, "invisibleTime": "20000"}
    changed = ask(cluster, 200_053, later, by=ANN)
    assert changed.code == 0, changed.remark
    other = {**handle, "topic": f"%RETRY%CGX_{TOPIC}"}
    assert "Group:CGX" in refused(ask(cluster, 200_051, other, by=ANN))
    done(make_acl(cluster, f"Topic:{TOPIC}", "Sub", decision="Deny"))
    for code, asked in ((200_051, handle), (200_053, later)):
        assert f"Topic:{TOPIC}" in refused(ask(cluster, code, asked, by=ANN))


def test_users_when_who_may_read_the_cluster_copies_them_then_he_gets_them(
    cluster: ReplicaCluster,
) -> None:
    """As ``getUser`` shows them; it takes no super user where permissions are checked."""
    done(make_user(cluster))
    asked = {TABLE_FIELD: TABLE_WANTED}
    assert "Cluster:" in refused(ask(cluster, 201, asked, by=ANN))
    done(make_acl(cluster, "Cluster:DefaultCluster", "Get"))
    assert b"ann-secret" in done(ask(cluster, 201, asked, by=ANN))


# -- where not everything is switched on ---------------------------------------------------------------


def test_settings_when_users_are_asked_for_but_not_their_permissions_then_super_users_alone() -> (
    None
):
    """Who has any user's name must not do more than a stranger where nothing is switched on."""
    keys = {**KEYS, "authorizationEnabled": "false"}
    with ReplicaCluster(seed=45, replicas=1, **keys) as cluster:
        cluster.controller_keys = {**KEYS, "raftSecret": HA_SECRET, "authorizationEnabled": "false"}
        cluster.boot_all()
        done(make_user(cluster))
        for code, fields in ((25, {}), (3004, {"username": "root"}), (3005, {})):
            remark = refused(ask(cluster, code, fields, b"transactionCheckMax=9", by=ANN))
            assert remark == "only a super user may do this, for there is one"
        refused(ask(cluster, 201, {TABLE_FIELD: TABLE_WANTED}, by=ANN))
        done(ask(cluster, 25, body=b"transactionCheckMax=9", by=ROOT))
        done(ask(cluster, 26, by=ANN))
        done(ask(cluster, 310, send_fields(1), b"x", by=ANN))


@pytest.mark.parametrize(
    ("keys", "may_copy"),
    [
        ({}, {"nobody", "ann", "bob", "inner", "slave"}),
        ({"haSecret": HA_SECRET}, {"bob"}),
        ({"haSecret": HA_SECRET, "haSecretAccepted": OTHER_SECRET}, {"bob", "slave"}),
        ({"haSecret": HA_SECRET, "haProofOptional": "true"},
         {"nobody", "ann", "bob", "inner", "slave"}),
        ({"innerClientAuthenticationCredentials": KEYS["innerClientAuthenticationCredentials"]},
         {"bob", "inner"}),
    ],
)  # fmt: skip
def test_users_when_authentication_is_off_then_only_slaves_and_super_users_copy_them(
    keys: dict[str, str], may_copy: set[str]
) -> None:
    """With their passwords; a set by which slaves can prove nothing shows them to who replicates."""
    with ReplicaCluster(seed=46, replicas=2, **keys) as cluster:
        cluster.boot_all()
        asked = {TABLE_FIELD: TABLE_WANTED}
        inner = "innerClientAuthenticationCredentials" in keys  # it is a super user
        assert (ask(cluster, 201, asked, by=None).code == 16) == inner
        done(make_user(cluster, by=INNER if inner else None))
        done(make_user(cluster, BOB, by=INNER if inner else None, userType="Super"))
        slave_of_before = Credentials(SLAVE_USER, OTHER_SECRET)
        who = {"nobody": None, "ann": ANN, "bob": BOB, "inner": INNER, "slave": slave_of_before}
        got = {name: ask(cluster, 201, asked, by=by) for name, by in who.items()}
        shown = {name for name, one in got.items() if b"bob-s-password" in bytes(one.body)}
        assert shown == may_copy
        # Java's slaves and tools get the groups, as ever.
        assert b"bob-s-password" not in done(ask(cluster, 201, by=None))
        # A slave whose disk was lost gets them, by whatever it can prove.
        slave = next(one for one in cluster.replicas.values() if one.role is Role.SLAVE)
        host = cluster.host_of(slave)
        cluster.kill(host)
        cluster.disks[host].wipe()
        cluster.boot(host)
        cluster.until(lambda: cluster.replicas[host].metadata.is_known, "tables")
        assert cluster.replicas[host].accounts.table.items.keys() == {"ann", "bob"}
