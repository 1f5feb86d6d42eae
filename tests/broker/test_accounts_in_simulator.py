"""A broker set and its controllers with authentication and authorization on.

Every request of the brokers and controllers among themselves is signed here, or there would be no
master. Users are as safe as messages: every change survives its master.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from rmqha.auth.signature import Credentials
from rmqha.broker.aio.replica import BrokerReplica
from rmqha.ha.events import Role
from rmqha.remoting.command import RemotingCommand
from rmqha.sim.cluster import CONTROLLER_PORT
from tests.broker.replicas import NAME, TOPIC, ReplicaCluster, master_of, send_fields

INNER = Credentials("inner", "inner-secret")
ROOT = Credentials("root", "root-secret")
ANN = Credentials("ann", "ann-secret")
KEYS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username":"root","password":"root-secret"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"inner-secret"}',
}
CONTROLLER_KEYS = {**KEYS, "raftSecret": "0123456789abcdef0123", "authorizationEnabled": "false"}
NO_PERMISSION = 16


@pytest.fixture
def cluster() -> Iterator[ReplicaCluster]:
    """Three replicas in sync."""
    with ReplicaCluster(seed=41, **KEYS) as one:
        one.controller_keys = CONTROLLER_KEYS
        one.boot_all()
        one.until(one.in_sync, "SyncStateSet of three")
        yield one


def ask(
    cluster: ReplicaCluster, code: int, fields: dict[str, str] | None = None, body: object = None,
    *, by: Credentials | None = ROOT, to: BrokerReplica | str | None = None,
) -> RemotingCommand:  # fmt: skip
    """A request with somebody's signature."""
    address = to if isinstance(to, str) else (to or master_of(cluster)).config.address
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    command = RemotingCommand(code, ext_fields=dict(fields or {}), body=data)
    if by is not None:
        by.sign(command)
    return cluster.ask(address, code, command.ext_fields, data)


def done(answer: RemotingCommand) -> bytes:
    """The body of a success."""
    assert (answer.code, answer.remark) == (0, None)
    return bytes(answer.body)


def refused(answer: RemotingCommand) -> str:
    """The remark of a refusal."""
    assert answer.code == NO_PERMISSION
    return answer.remark or ""


def make_user(
    cluster: ReplicaCluster,
    who: Credentials = ANN,
    *,
    by: Credentials | None = ROOT,
    **members: str,
) -> RemotingCommand:
    """3001."""
    body = {"username": who.access_key, "password": who.secret_key, **members}
    return ask(cluster, 3001, {"username": who.access_key}, body, by=by)


def make_acl(
    cluster: ReplicaCluster, resource: str, *actions: str, decision: str = "Allow", **more: Any
) -> RemotingCommand:
    """3006, for Ann."""
    entry = {"resource": resource, "actions": list(actions), "decision": decision, **more}
    body = {"subject": "User:ann", "policies": [{"policyType": "Custom", "entries": [entry]}]}
    return ask(cluster, 3006, {"subject": "User:ann"}, body)


def send(cluster: ReplicaCluster, number: int, by: Credentials | None = ANN) -> RemotingCommand:
    """A message."""
    return ask(cluster, 310, send_fields(number), f"body-{number}".encode(), by=by)


def test_request_when_nobody_has_signed_it_then_it_is_refused(cluster: ReplicaCluster) -> None:
    """With Java's code and words, whatever it asks for; and counted."""
    assert refused(send(cluster, 1, by=None)) == "username cannot be null."
    assert refused(ask(cluster, 28, by=None)) == "authentication field is null."
    assert refused(send(cluster, 1)) == "User:ann is not found."
    done(make_user(cluster))
    wrong = Credentials("ann", "another")
    assert refused(send(cluster, 1, by=wrong)) == "check signature failed."
    assert refused(ask(cluster, 28, by=wrong)) == "check signature failed."
    remark = refused(ask(cluster, 3002, {"username": "ann"}, {"userStatus": "disabled"}))
    assert remark == "userStatus disabled is none of enable, disable"
    done(ask(cluster, 3002, {"username": "ann"}, {"userStatus": "disable"}))
    assert refused(send(cluster, 1)) == "User:ann is disabled."
    assert master_of(cluster).refusals.counts == {
        "unsigned": 2, "unknown_user": 1, "wrong_signature": 2, "disabled_user": 1,
    }  # fmt: skip


def test_message_when_its_body_is_another_then_its_signature_does_not_fit(
    cluster: ReplicaCluster,
) -> None:
    """The quick way of messages is checked as all are."""
    command = RemotingCommand(310, ext_fields=send_fields(1), body=b"mine")
    ROOT.sign(command)
    address = master_of(cluster).config.address
    assert cluster.ask(address, 310, command.ext_fields, b"mine").code == 0
    assert refused(cluster.ask(address, 310, command.ext_fields, b"thine"))
    for name, value in (("b", "Other"), ("e", "2"), ("i", "KEYS\x01x\x02")):
        changed = {**(command.ext_fields or {}), name: value}
        assert refused(cluster.ask(address, 310, changed, b"mine")) == "check signature failed."


@pytest.mark.costly
def test_normal_user_when_policies_allow_then_that_and_nothing_else(
    cluster: ReplicaCluster,
) -> None:
    """By topic and group; what no rule names takes Update of the cluster."""
    done(make_user(cluster))
    assert refused(send(cluster, 1)) == (
        f"User:ann has no permission to access Topic:{TOPIC} from 10.0.2.1, no matched policies."
    )
    done(make_acl(cluster, f"Topic:{TOPIC[:3]}*", "Pub"))
    done(send(cluster, 1))
    pull = {
        "consumerGroup": "CG", "topic": TOPIC, "queueId": "1", "queueOffset": "0",
        "maxMsgNums": "1", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
        "subscription": "*", "subVersion": "0", "expressionType": "TAG",
    }  # fmt: skip
    for code in (11, 361):
        assert "Topic:Orders" in refused(ask(cluster, code, pull, by=ANN))
    done(make_acl(cluster, f"Topic:{TOPIC}", "Sub", "Pub"))
    assert "Group:CG" in refused(ask(cluster, 11, pull, by=ANN))
    done(make_acl(cluster, "Group:CG", "Sub"))
    assert ask(cluster, 11, pull, by=ANN).code == 0
    done(send(cluster, 2))
    done(make_acl(cluster, f"Topic:{TOPIC}", "Pub", decision="Deny"))
    assert refused(send(cluster, 3)).endswith("the decision is deny.")
    beat = {"clientID": "c", "consumerDataSet": [{"groupName": "Other"}], "producerDataSet": []}
    assert "Group:Other" in refused(ask(cluster, 34, body=beat, by=ANN))
    for code in (25, 3001, 200050, 63_000):
        assert refused(ask(cluster, code, {"username": "x"}, b"a=b", by=ANN)), code
    group = {"groupName": "Mine"}
    assert "Group:Mine" in refused(ask(cluster, 200, body=group, by=ANN))


def test_retry_topic_when_another_group_s_is_sent_to_then_the_sender_s_own_does_not_help(
    cluster: ReplicaCluster,
) -> None:
    """Java asks for the group that the sender names in the request."""
    done(make_user(cluster))
    done(make_acl(cluster, "Group:Mine", "Sub"))
    fields = {**send_fields(1), "a": "Mine", "b": "%RETRY%Theirs"}
    assert "Group:Theirs" in refused(ask(cluster, 310, fields, b"x", by=ANN))


@pytest.mark.costly
def test_users_when_the_master_dies_then_the_next_one_has_them(cluster: ReplicaCluster) -> None:
    """And one that comes back, too; what was deleted stays away."""
    done(make_user(cluster))
    done(make_user(cluster, Credentials("bob", "b")))
    done(make_acl(cluster, "Topic:*", "Pub"))
    done(ask(cluster, 3003, {"username": "bob"}))
    old = cluster.host_of(master_of(cluster))
    cluster.kill(old, power=True)
    cluster.until(lambda: cluster.master() is not None, "another master")
    assert cluster.host_of(master_of(cluster)) != old
    done(send(cluster, 1))
    assert "bob" not in master_of(cluster).accounts.table.items
    cluster.boot(old)
    cluster.until(cluster.in_sync, "all three again")
    tables = [one.accounts.table.items for one in cluster.replicas.values()]
    assert tables[0].keys() == {"ann"}
    assert tables[0] == tables[1] == tables[2]


@pytest.mark.costly
def test_users_when_a_fresh_replica_joins_then_it_has_them(cluster: ReplicaCluster) -> None:
    """Its log may begin behind the records of them."""
    done(make_user(cluster))
    done(make_acl(cluster, "Topic:*", "Pub"))
    slave = next(one for one in cluster.replicas.values() if one.role is Role.SLAVE)
    host = cluster.host_of(slave)
    cluster.kill(host)
    cluster.disks[host].wipe()
    cluster.boot(host)
    cluster.until(lambda: cluster.replicas[host].metadata.is_known, "tables")
    assert cluster.replicas[host].accounts.table.items.keys() == {"ann"}
    cluster.until(cluster.in_sync, "all three again")
    assert cluster.replicas[host].accounts.table.items == master_of(cluster).accounts.table.items


@pytest.mark.costly
def test_change_when_a_slave_is_asked_then_its_master_does_it(cluster: ReplicaCluster) -> None:
    """Java's mqadmin sends the same to all brokers of a cluster, in any order."""
    body = {"username": "ann", "password": "ann-secret"}
    brokers = sorted(cluster.replicas.values(), key=lambda one: one.role is Role.MASTER)
    for broker in brokers * 2:
        done(ask(cluster, 3001, {"username": "ann"}, body, to=broker))
    other = {**body, "password": "another"}
    assert refused(ask(cluster, 3001, {"username": "ann"}, other)) == "The user is existed"
    cluster.run_for(1000)
    for broker in brokers:
        found = json.loads(done(ask(cluster, 3004, {"username": "ann"}, to=broker)))
        assert found == {**body, "userType": "Normal", "userStatus": "enable"}


def test_super_users_when_a_normal_one_would_make_or_change_them_then_not(
    cluster: ReplicaCluster,
) -> None:
    """Though its policies let it keep the other users."""
    done(make_user(cluster))
    done(make_acl(cluster, "Cluster:*", "All"))
    eve = {"username": "eve", "password": "p", "userType": "Super"}
    answer = ask(cluster, 3001, {"username": "eve"}, eve, by=ANN)
    assert answer.remark == "The super user can only be create by super user"
    answer = ask(cluster, 3002, {"username": "ann"}, {"userType": "Super"}, by=ANN)
    assert answer.remark == "The super user can only be update by super user"
    for code in (3002, 3003):
        answer = ask(cluster, code, {"username": "root"}, {"password": "mine"}, by=ANN)
        assert refused(answer) == "The super user can only be update by super user"
    done(ask(cluster, 3001, {"username": "eve"}, {**eve, "userType": "Normal"}, by=ANN))
    assert "settings" in refused(ask(cluster, 3003, {"username": "root"}))


@pytest.mark.costly
def test_policies_when_listed_and_deleted_then_as_java_does(cluster: ReplicaCluster) -> None:
    """One resource, then all; a resource that cannot be read deletes nothing."""
    done(make_user(cluster))
    assert done(ask(cluster, 3009, {"subject": "User:ann"})) == b""
    assert refused(ask(cluster, 3009, {"subject": "User:bob"})) == "The subject is not exist."
    assert refused(ask(cluster, 3008, {"subject": "User:ann"})) == "The acl is not exist."
    for resource in ("Topic:a", "Topic:b", "Group:a"):
        done(make_acl(cluster, resource, "Sub", sourceIps=["10.0.0.0/8"]))
    found = json.loads(done(ask(cluster, 3010, {"resourceFilter": "Topic"})))
    keys = [one["resource"] for one in found[0]["policies"][0]["entries"]]
    assert keys == ["Topic:a", "Topic:b"]
    assert found[0]["policies"][0]["entries"][0]["sourceIps"] == ["10.0.0.0/8"]
    assert done(ask(cluster, 3010, {"subjectFilter": "bob"})) == b""
    wrong = {"subject": "User:ann", "resource": "Topik:a"}
    assert refused(ask(cluster, 3008, wrong)) == "The resource is null."
    done(ask(cluster, 3008, {"subject": "User:ann", "resource": "Topic:a"}))
    found = json.loads(done(ask(cluster, 3009, {"subject": "User:ann"})))
    assert [one["resource"] for one in found["policies"][0]["entries"]] == ["Topic:b", "Group:a"]
    done(ask(cluster, 3008, {"subject": "User:ann"}))
    assert done(ask(cluster, 3009, {"subject": "User:ann"})) == b""


def test_controller_when_asked_then_only_known_users_may(cluster: ReplicaCluster) -> None:
    """What Java has nothing for: #10956."""
    leader = cluster.leader()
    assert leader is not None
    address = f"{leader}:{CONTROLLER_PORT}"
    asked = {"brokerName": NAME}
    for code in (1001, 1002, 1003, 1004, 1005, 1009, 1010, 1011, 1012, 1013, 904):
        answer = ask(cluster, code, asked, b"enableElectUncleanMaster=true", by=None, to=address)
        assert refused(answer) == "username cannot be null."
    wrong = Credentials("inner", "wrong")
    assert refused(ask(cluster, 1004, asked, by=wrong, to=address)) == "check signature failed."
    done(ask(cluster, 1004, asked, by=INNER, to=address))
    shown = done(ask(cluster, 1010, by=ROOT, to=address)).decode()
    assert "initAuthenticationUser=******" in shown
    assert "innerClientAuthenticationCredentials=******" in shown
    assert "secret" not in shown.replace("raftSecret", "")
    done(ask(cluster, 1009, body=b"slaveNotifyDelayMs=200", by=ROOT, to=address))


PLAIN_ACL = b"""
accounts:
  - accessKey: ann
    secretKey: ann-secret
    topicPerms: [Orders=PUB]
  - accessKey: admin
    secretKey: admin-secret
    admin: true
"""


@pytest.mark.costly
def test_plain_acl_when_a_broker_reigns_then_its_accounts_are_users() -> None:
    """Once: what was changed since is not undone by the next master."""
    keys = {**KEYS, "migrateAuthFromV1Enabled": "true", "plainAclPath": "/conf/plain_acl.yml"}
    with ReplicaCluster(seed=43, **keys) as cluster:
        cluster.controller_keys = CONTROLLER_KEYS
        for host in cluster.broker_hosts:
            cluster.loop.run_until_complete(cluster.disks[host].make_dirs("/conf"))
            work = cluster.disks[host].write_atomic("/conf/plain_acl.yml", PLAIN_ACL)
            cluster.loop.run_until_complete(work)
        cluster.boot_all()
        cluster.until(cluster.in_sync, "SyncStateSet of three")
        cluster.until(lambda: master_of(cluster).accounts.find("ann"), "users")
        done(send(cluster, 1))
        admin = Credentials("admin", "admin-secret")
        done(ask(cluster, 3002, {"username": "ann"}, {"password": "newer"}, by=admin))
        cluster.kill(cluster.host_of(master_of(cluster)))
        cluster.until(lambda: cluster.master() is not None, "another master")
        cluster.run_for(2_000)
        assert refused(send(cluster, 2)) == "check signature failed."
        done(send(cluster, 3, by=Credentials("ann", "newer")))


def test_configuration_when_authentication_is_off_then_it_takes_a_super_user_once_there_is_one() -> (
    None
):
    """And messages go on as ever: no guard stands before them."""
    with ReplicaCluster(seed=44, replicas=1) as cluster:
        cluster.boot_all()
        address = master_of(cluster).config.address
        change = b"transactionCheckMax=7"
        done(ask(cluster, 25, body=change, by=None))
        done(make_user(cluster, Credentials("root", "root-secret"), userType="Super"))
        for by in (None, ANN, Credentials("root", "x")):
            refused(ask(cluster, 25, body=b"transactionCheckMax=9", by=by))
            refused(ask(cluster, 3005, by=by))
            refused(ask(cluster, 3001, {"username": "x"}, {"password": "x"}, by=by))
        done(ask(cluster, 26, by=None))
        done(ask(cluster, 310, send_fields(1), b"x", by=None, to=address))
        done(make_user(cluster))
        assert "super user" in refused(ask(cluster, 25, body=change, by=ANN))
        done(ask(cluster, 25, body=b"transactionCheckMax=9"))
