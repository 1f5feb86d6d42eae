"""Users who say in a heartbeat that they are another's producer: they are told nothing of his.

A group of producers needs no permission, and a client calls itself as it likes.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmqha.auth.addresses import ip_of
from rmqha.auth.resources import Action
from rmqha.auth.signature import Credentials
from rmqha.base.ids import ConnectionId
from rmqha.broker.groups.memberships import Client
from rmqha.broker.topics.aio.rights import Rights
from rmqha.remoting.command import RemotingCommand
from tests.broker.replicas import TOPIC, ReplicaCluster, master_of, send_fields
from tests.broker.subscriber import Subscriber, heartbeat
from tests.broker.test_accounts_in_simulator import (
    ANN,
    CONTROLLER_KEYS,
    KEYS,
    ROOT,
    ask,
    done,
    make_acl,
    make_user,
)

CHECK_MS = 1_000
MANY = 400
CHECK, PUSH_REPLY = 39, 326


@pytest.fixture
def cluster() -> Iterator[ReplicaCluster]:
    """One replica that soon asks about half messages, and Ann without a policy."""
    periods = {"transactionCheckInterval": CHECK_MS, "transactionTimeOut": 500}
    with ReplicaCluster(seed=41, replicas=1, **periods, **KEYS) as one:
        one.controller_keys = CONTROLLER_KEYS
        one.boot_all()
        one.until(one.in_sync, "SyncStateSet of one")
        done(make_user(one))
        yield one


def producer(cluster: ReplicaCluster, by: Credentials | None, client_id: str) -> Subscriber:
    """A client of the group PG that takes whatever it is told."""
    found = Subscriber(cluster, master_of(cluster).config.address, client_id)
    found.reply = lambda asked: RemotingCommand(0, asked.opaque, 1)
    beat(found, by)
    return found


def beat(client: Subscriber, by: Credentials | None) -> None:
    """One more heartbeat of it."""
    body = heartbeat(client.client_id, "", producers=("PG",))
    command = RemotingCommand(34, ext_fields={}, body=body)
    if by is not None:
        by.sign(command)
    done(client.ask(34, command.ext_fields, body))


def send_half(cluster: ReplicaCluster) -> None:
    """By root, who never says what became of it."""
    fields = send_fields(1)
    fields["i"] += "TRAN_MSG\x01true\x02PGROUP\x01PG\x02"
    done(ask(cluster, 310, {**fields, "f": "4"}, b"a secret order"))


def reply_to(cluster: ReplicaCluster, client_id: str) -> int:
    """Ann's answer to a client; its code."""
    fields = send_fields(1)
    fields["i"] += f"REPLY_TO_CLIENT\x01{client_id}\x02"
    topic = {"b": "DefaultCluster_REPLY_TOPIC", "e": "0"}
    return ask(cluster, 325, {**fields, **topic}, b"the answer", by=ANN).code


def test_half_message_when_one_of_its_group_may_not_send_to_its_topic_then_she_is_not_asked(
    cluster: ReplicaCluster,
) -> None:
    """The question has the message's body, and whoever is asked may answer nothing."""
    ann = producer(cluster, ANN, "a@1")
    send_half(cluster)
    cluster.run_for(3 * CHECK_MS)
    assert ann.told(CHECK) == []
    root = producer(cluster, ROOT, "r@1")
    cluster.until(lambda: len(root.told(CHECK)) >= 3, "three rounds, all to root")
    assert ann.told(CHECK) == []
    assert b"a secret order" in root.told(CHECK)[0].body


def test_half_message_when_policies_change_then_the_present_ones_count(
    cluster: ReplicaCluster,
) -> None:
    """Nobody sends a new heartbeat because of them; and a disabled user is told nothing."""
    ann = producer(cluster, ANN, "a@1")
    send_half(cluster)
    cluster.run_for(2 * CHECK_MS)
    done(make_acl(cluster, f"Topic:{TOPIC}", "Pub"))
    cluster.until(lambda: ann.told(CHECK), "Ann is asked")
    done(ask(cluster, 3002, {"username": "ann"}, {"userStatus": "disable"}))
    asked = len(ann.told(CHECK))
    cluster.run_for(3 * CHECK_MS)
    assert len(ann.told(CHECK)) == asked
    done(ask(cluster, 3002, {"username": "ann"}, {"userStatus": "enable"}))
    cluster.until(lambda: len(ann.told(CHECK)) > asked, "Ann is asked again")
    done(make_acl(cluster, f"Topic:{TOPIC}", "Pub", decision="Deny"))
    asked = len(ann.told(CHECK))
    cluster.run_for(3 * CHECK_MS)
    assert len(ann.told(CHECK)) == asked


def test_reply_when_another_user_calls_herself_as_the_client_then_he_gets_it(
    cluster: ReplicaCluster,
) -> None:
    """She had the older connection, but not the name."""
    ann = producer(cluster, ANN, "a@1")
    victim = producer(cluster, ROOT, "victim@1")
    ann.client_id = "victim@1"
    beat(ann, ANN)
    other = producer(cluster, ANN, "victim@1")
    assert reply_to(cluster, "victim@1") == 0
    again = producer(cluster, ROOT, "victim@1")
    assert reply_to(cluster, "victim@1") == 0
    assert [len(one.told(PUSH_REPLY)) for one in (ann, victim, other, again)] == [0, 1, 0, 1]


def test_half_message_when_a_policy_is_for_some_addresses_then_who_beats_from_there_is_asked(
    cluster: ReplicaCluster,
) -> None:
    """Her address is that of her connection."""
    elsewhere, there = producer(cluster, ANN, "a@1"), producer(cluster, ANN, "a@2")
    client_ips = {
        one.client_id: ip_of(one.address) for one in master_of(cluster).producers.clients("PG")
    }
    done(make_acl(cluster, f"Topic:{TOPIC}", "Pub", sourceIps=[client_ips["a@2"]]))
    send_half(cluster)
    cluster.until(lambda: len(there.told(CHECK)) >= 2, "two rounds")
    assert elsewhere.told(CHECK) == []


def test_half_messages_when_none_of_very_many_may_take_them_then_each_is_looked_at_once_a_round(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The master stood for seconds: a hundred half messages, each offered to thousands."""
    looks: list[tuple[str, str]] = []
    may_be_sent = Rights.may_be_sent

    def counted(self: Rights, user: str, source_ip: str, topic: str, *actions: Action) -> bool:
        looks.append((source_ip, topic))
        return may_be_sent(self, user, source_ip, topic, *actions)

    monkeypatch.setattr(Rights, "may_be_sent", counted)
    producers = master_of(cluster).producers
    for number in range(MANY):
        ip = f"10.9.{number >> 8}.{number & 255}"
        client = Client(ConnectionId(10_000 + number), f"m{number}", "JAVA", 479, f"{ip}:1", "ann")
        producers.register(master_of(cluster).clock.now_ms(), "PG", client)
    for _ in range(3):
        send_half(cluster)
    cluster.until(lambda: looks, "a round")
    cluster.run_for(CHECK_MS // 2)
    assert len(looks) == len({*looks}) == MANY


def test_half_message_when_there_is_nobody_to_ask_then_the_log_says_why(
    cluster: ReplicaCluster,
) -> None:
    """A group that is away comes back; one whose users may not needs an operator."""

    def told(reason: str) -> bool:
        line = f"transaction_without_producer group=PG reason={reason}"
        return any(line in one for one in cluster.trace.lines)

    why = "none of its producers may send to the topic"
    send_half(cluster)
    cluster.until(lambda: told("there is no producer"), "a round")
    assert not told(why)
    producer(cluster, ANN, "a@1")
    cluster.until(lambda: told(why), "one more")


@pytest.mark.parametrize("code", ["10", "310", "320"])
def test_half_message_when_sends_need_no_permission_then_its_producer_needs_none(
    code: str,
) -> None:
    """His transactions were lost by an upgrade: nobody had ever made a policy for him."""
    free = {"authorizationWhitelist": f"7777, {code}"}
    periods = {"transactionCheckInterval": CHECK_MS, "transactionTimeOut": 500}
    with ReplicaCluster(seed=41, replicas=1, **periods, **KEYS, **free) as cluster:
        cluster.controller_keys = CONTROLLER_KEYS
        cluster.boot_all()
        cluster.until(cluster.in_sync, "SyncStateSet of one")
        done(make_user(cluster))
        client = producer(cluster, ANN, "a@1")
        send_half(cluster)
        cluster.until(lambda: client.told(CHECK), "she is asked")


def test_reply_when_its_client_is_cut_off_for_a_moment_then_who_waits_behind_gets_none(
    cluster: ReplicaCluster,
) -> None:
    """And once his user is switched off, a client that came back with another one gets it."""
    victim = producer(cluster, ROOT, "victim@1")
    other = producer(cluster, ANN, "victim@1")
    victim.connection.close()
    cluster.run_for(100)
    assert reply_to(cluster, "victim@1") != 0
    again = producer(cluster, ROOT, "victim@1")
    assert reply_to(cluster, "victim@1") == 0
    assert [len(one.told(PUSH_REPLY)) for one in (victim, other, again)] == [0, 0, 1]


def test_reply_when_the_user_of_a_dead_connection_is_disabled_then_it_goes_to_the_new_one(
    cluster: ReplicaCluster,
) -> None:
    """A client that is started again with another user waited two minutes for its replies."""
    before = producer(cluster, ANN, "c@1")
    now = producer(cluster, ROOT, "c@1")
    done(ask(cluster, 3002, {"username": "ann"}, {"userStatus": "disable"}))
    fields = send_fields(1)
    fields["i"] += "REPLY_TO_CLIENT\x01c@1\x02"
    topic = {"b": "DefaultCluster_REPLY_TOPIC", "e": "0"}
    assert ask(cluster, 325, {**fields, **topic}, b"the answer").code == 0
    assert [len(one.told(PUSH_REPLY)) for one in (before, now)] == [0, 1]


def test_client_when_permissions_are_not_looked_at_then_whoever_beats_is_told() -> None:
    """As ever: whoever reaches the broker may pull everything."""
    periods = {"transactionCheckInterval": CHECK_MS, "transactionTimeOut": 500}
    with ReplicaCluster(seed=41, replicas=1, **periods) as cluster:
        cluster.boot_all()
        cluster.until(cluster.in_sync, "SyncStateSet of one")
        first, second = producer(cluster, None, "c@1"), producer(cluster, None, "c@1")
        send_half(cluster)
        cluster.until(lambda: first.told(CHECK) and second.told(CHECK), "both are asked")
        assert reply_to(cluster, "c@1") == 0
        assert [len(one.told(PUSH_REPLY)) for one in (first, second)] == [0, 1]


def test_client_when_users_are_known_but_not_their_permissions_then_whoever_beats_is_told() -> None:
    """Any user may pull everything then; a client that comes again with another user is the same."""
    keys = {**KEYS, "authorizationEnabled": "false"}
    with ReplicaCluster(seed=41, replicas=1, **keys) as cluster:
        cluster.controller_keys = CONTROLLER_KEYS
        cluster.boot_all()
        cluster.until(cluster.in_sync, "SyncStateSet of one")
        done(make_user(cluster))
        first, second = producer(cluster, ROOT, "c@1"), producer(cluster, ANN, "c@1")
        assert reply_to(cluster, "c@1") == 0
        assert [len(one.told(PUSH_REPLY)) for one in (first, second)] == [0, 1]


def test_heartbeat_when_it_needs_no_permission_then_who_is_told_needs_none() -> None:
    """``authorizationWhitelist`` has the code: its operator lets clients beat that sign nothing."""
    free = {"authenticationWhitelist": "34", "authorizationWhitelist": "34"}
    periods = {"transactionCheckInterval": CHECK_MS, "transactionTimeOut": 500}
    with ReplicaCluster(seed=41, replicas=1, **periods, **KEYS, **free) as cluster:
        cluster.controller_keys = CONTROLLER_KEYS
        cluster.boot_all()
        cluster.until(cluster.in_sync, "SyncStateSet of one")
        client = producer(cluster, None, "c@1")
        send_half(cluster)
        cluster.until(lambda: client.told(CHECK), "it is asked")
