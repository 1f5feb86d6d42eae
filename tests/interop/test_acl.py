"""Real Java clients and tools against a broker and a name server of ours that ask for signatures.

Lines of ``java/AclPeer.java``; ``-`` for a user's name and password is nobody:

==============================================  ================================================
producer NAME SERVERS USER PASSWORD             start a producer
send|batch NAME TOPIC COUNT PREFIX              send PREFIX-0, PREFIX-1, ...
transaction SERVERS USER PASSWORD TOPIC BODY    send a message in a transaction that commits
push NAME SERVERS GROUP TOPIC USER PASSWORD     start a consumer
got NAME                                        bodies that it has
==============================================  ================================================
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqha.testing.real import wire
from rmqha.testing.real.cluster import FAST_BROKER, FAST_CONTROLLER, Cluster
from rmqha.testing.real.mqadmin import mqadmin
from rmqha.testing.real.processes import wait_until
from rmqha.testing.real.producer import Producer, assert_nothing_lost
from tests.interop import required
from tests.interop.alone import Alone
from tests.interop.client_peer import SOURCE, ClientPeer
from tests.interop.peers import PeerError

ROOT = ("root", "root-secret")
INNER = json.dumps({"accessKey": "inner", "secretKey": "inner-secret"})
ASKING: dict[str, object] = {
    "authenticationEnabled": True,
    "initAuthenticationUser": json.dumps({"username": ROOT[0], "password": ROOT[1]}),
    "innerClientAuthenticationCredentials": INNER,
}
PROGRAM = SOURCE.with_name("AclPeer.java")
TOPIC, GROUP = "Guarded", "CG-Guarded"


@pytest.fixture(scope="module")
def alone(folder: Path) -> Iterator[Alone]:
    """A broker and a name server that ask."""
    required.require_classpath()
    users = folder / "users.json"
    users.write_text(json.dumps([
        {"username": "ann", "password": "ann-secret"}, {"username": "old", "password": "old-secret"},
    ]))  # fmt: skip
    naming = {**ASKING, "authUsersPath": users}
    with (
        wire.signing(*ROOT),
        Alone("python", folder, naming, authorizationEnabled=True, **ASKING) as one,
    ):
        yield one


def admin(alone: Alone, *words: str) -> str:
    """Java's mqadmin, signed by root."""
    return mqadmin(*words, "-n", alone.servers, signed_by=ROOT)


@pytest.mark.parametrize("version", ["5.3.3", "4.9.8"])
def test_java_clients_when_their_user_may_then_as_ever_and_else_not(
    alone: Alone, folder: Path, version: str
) -> None:
    """Made and allowed by Java's mqadmin; the signature is that of ACL 1.0 as well."""
    required.require_classpath(version)
    user, secret = ("ann", "ann-secret") if version == "5.3.3" else ("old", "old-secret")
    topic, group = f"{TOPIC}-{user}", f"{GROUP}-{user}"
    address, servers = alone.broker.address, alone.servers
    assert f"create topic to {address} success" in admin(
        alone, "updateTopic", "-b", address, "-t", topic, "-r", "4", "-w", "4"
    )
    said = admin(alone, "createUser", "-b", address, "-u", user, "-p", secret)
    assert f"create user to {address} success." in said
    with ClientPeer(folder / f"acl-{version}", version, f"acl-{version}", PROGRAM) as peer:
        peer.ask(f"producer nobody {servers} - -")
        with pytest.raises(PeerError, match=r"No route|authentication field is null\."):
            peer.ask(f"send nobody {topic} 1 x")
        peer.ask(f"producer good {servers} {user} {secret}")
        with pytest.raises(PeerError, match=f"CODE 16 User:{user} has no permission to access"):
            peer.ask(f"send good {topic} 1 x")
        for resource, action in ((f"Topic:{topic}", "Pub,Sub"), (f"Group:{group[:-1]}*", "Sub")):
            said = admin(
                alone, "createAcl", "-b", address, "-s", f"User:{user}", "-r", resource,
                "-a", action, "-d", "Allow",
            )  # fmt: skip
            assert f"create acl to {address} success." in said
        peer.ask(f"send good {topic} 20 good")
        peer.ask(f"batch good {topic} 5 batch")
        assert peer.ask(f"transaction {servers} {user} {secret} {topic} whole") == "SEND_OK"
        peer.ask(f"producer wrong {servers} {user} wrong")
        with pytest.raises(PeerError, match=r"No route|check signature failed\."):
            peer.ask(f"send wrong {topic} 1 x")
        peer.ask(f"push one {servers} {group} {topic} {user} {secret}")
        wanted = {f"good-{n}" for n in range(20)} | {f"batch-{n}" for n in range(5)} | {"whole"}
        wait_until(lambda: set(peer.ask("got one").split(",")) >= wanted, 40, "what was sent")
        assert set(peer.ask("got one").split(",")) == wanted


def test_java_mqadmin_when_users_and_acls_are_kept_then_it_shows_them(alone: Alone) -> None:
    """All ten requests, as Java's tool sends them; its text is ours with --plain."""
    address = alone.broker.address
    admin(alone, "createUser", "-b", address, "-u", "bob", "-p", "b-secret", "-t", "Normal")
    admin(alone, "updateUser", "-b", address, "-u", "bob", "-s", "disable")
    shown = admin(alone, "getUser", "-b", address, "-u", "bob")
    assert ["bob", "b-secret", "Normal", "disable"] in [line.split() for line in shown.splitlines()]
    listed = admin(alone, "listUser", "-c", "DefaultCluster", "-f", "bob")
    assert "#UserName" in listed
    assert f"get user from {address} success." in listed
    admin(alone, "createAcl", "-b", address, "-s", "User:bob", "-r", "Topic:a,Group:b*", "-a",
          "Pub,Sub", "-i", "10.0.0.0/8", "-d", "Deny")  # fmt: skip
    admin(alone, "updateAcl", "-b", address, "-s", "User:bob", "-r", "Topic:a", "-a", "All",
          "-d", "Allow")  # fmt: skip
    acls = admin(alone, "getAcl", "-b", address, "-s", "User:bob")
    lines = [line.split() for line in acls.splitlines()]
    assert ["User:bob", "Custom", "Topic:a", "[All]", "null", "Allow"] in lines
    assert ["User:bob", "Custom", "Group:b*", "[Pub,", "Sub]", "[10.0.0.0/8]", "Deny"] in lines
    assert "Group:b*" in admin(alone, "listAcl", "-b", address, "-s", "bob", "-r", "Group")
    admin(alone, "deleteAcl", "-b", address, "-s", "User:bob", "-r", "Topic:a")
    assert "Topic:a" not in admin(alone, "getAcl", "-b", address, "-s", "User:bob")
    said = admin(alone, "deleteUser", "-b", address, "-u", "bob")
    assert f"delete user to {address} success." in said
    assert "bob" not in admin(alone, "listUser", "-b", address)
    unsigned = mqadmin("listUser", "-b", address, "-n", alone.servers)
    assert "CODE: 16" in unsigned


def test_java_brokers_when_they_sign_then_our_controllers_let_them_and_they_fail_over(
    folder: Path,
) -> None:
    """Two brokers of 5.3.3 whose innerClientAuthenticationCredentials our controllers know."""
    provider = (
        "org.apache.rocketmq.auth.authentication.provider.LocalAuthenticationMetadataProvider"
    )
    brokers = {
        **FAST_BROKER, "innerClientAuthenticationCredentials": INNER,
        "authenticationMetadataProvider": provider,
    }  # fmt: skip
    controllers = {**FAST_CONTROLLER, **ASKING, "raftSecret": "0123456789abcdef0123"}
    with (
        wire.signing(*ROOT),
        Cluster(
            folder / "signed", "rmqha", brokers=2, broker_settings=brokers,
            controller_settings=controllers,
        ) as cluster,
    ):  # fmt: skip
        cluster.start()
        address = cluster.controllers.addresses[0]
        assert "CODE: 16" in mqadmin("getControllerConfig", "-a", address)
        assert "******" in mqadmin("getControllerConfig", "-a", address, signed_by=ROOT)
        old = cluster.master()
        with Producer(cluster.name_server.address, "Signed") as producer:
            producer.wait_for_acks(50)
            old.child.kill()
            info = cluster.controllers.wait_for_master("broker-a", other_than=old.controller_id)
            producer.wait_for_acks(50)
            assert_nothing_lost(cluster, producer, replicas=[cluster.broker(info.master_id)])
