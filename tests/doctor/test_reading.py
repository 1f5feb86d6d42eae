"""Answers of nodes as facts: of ours, of Java's, of releases that leave members out, and of none."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from types import SimpleNamespace

import pytest

from rmqha.base.errors import (
    ConfigInvalid,
    ConnectFailed,
    ConnectionLost,
    RemoteProtocolError,
    RequestTimeout,
)
from rmqha.client.runtime_info import broker_clock_ms
from rmqha.doctor.aio.asking import Asker
from rmqha.doctor.facts import Door, HaFacts, SetView, Silent
from rmqha.doctor.reading import ha_facts, peers_of, topic_names, view_of
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand

Answers = Mapping[tuple[str, int], RemotingCommand | Exception]


class Nodes:
    """A client whose nodes answer what a test says, and refuse everything else."""

    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        self.asked: list[tuple[str, int]] = []

    async def invoke(
        self, address: str, command: RemotingCommand, timeout_ms: int
    ) -> RemotingCommand:
        """Answer, fail, or refuse as Java does."""
        key = (address, command.code)
        self.asked.append(key)
        found = self.answers.get(key) or self.answers.get((address, 0))
        if isinstance(found, Exception):
            raise found
        if found is not None:
            return found
        code = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        return RemotingCommand(code, remark=f"request type {command.code}\n not supported")


class Noon:
    """A clock that stands still."""

    def wall_ms(self) -> int:
        """Noon of some day."""
        return 1_700_000_000_000


def asker(answers: Answers) -> tuple[Asker, Nodes]:
    """An asker of such nodes."""
    nodes = Nodes(answers)
    return Asker(nodes, Noon(), 100), nodes  # type: ignore[arg-type]  # all that is used of them


def good(body: object = None, **fields: str) -> RemotingCommand:
    """A good answer."""
    packed = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    return RemotingCommand(ResponseCode.SUCCESS, ext_fields=fields, body=packed)


def test_peers_when_read_then_both_flavours_of_java_and_ours_are_known() -> None:
    assert peers_of("n0:10.0.0.1:9878;n1:c1:9878;") == {"n0": "10.0.0.1:9878", "n1": "c1:9878"}
    assert peers_of("10.0.0.1:9880;10.0.0.2:9880") == {
        "10.0.0.1:9880": "10.0.0.1:9880", "10.0.0.2:9880": "10.0.0.2:9880",
    }  # fmt: skip
    assert peers_of("") == {}


def test_ha_when_members_are_missing_then_they_are_empty() -> None:
    assert ha_facts(b'{"master":true,"haConnectionInfo":[{"diff":-5},{"diff":7}]}') == HaFacts(
        True, lags=(0, 7)
    )
    one = (
        b'{"master":true,"inSyncSlaveNums":2,"haConnectionInfo":[{"inSync":true},{"inSync":false}]}'
    )
    assert ha_facts(one) == HaFacts(True, in_sync_slaves=2, lags=(0, 0), connected_in_sync=1)
    known = {"addr": "/10.0.1.2:40000", "inSync": True}, {"addr": "10.0.1.3:40000", "inSync": False}
    of_both = json.dumps({"master": True, "haConnectionInfo": known}).encode()
    assert ha_facts(of_both).in_sync_from == ("10.0.1.2:40000",)
    slave = {"master": False, "haClientRuntimeInfo": {"masterAddr": "a:1", "activated": True}}
    assert ha_facts(json.dumps(slave).encode()) == HaFacts(False, "a:1", transfers=True)
    with pytest.raises(RemoteProtocolError):
        ha_facts(b"[]")


@pytest.mark.parametrize(("silence_ms", "transfers"), [(19_000, True), (21_000, False)])
def test_ha_when_java_does_not_say_activated_then_a_master_heard_lately_counts(
    silence_ms: int, transfers: bool
) -> None:
    """A 5.3.3 slave that copies says activated=false: seen on a real one."""
    client = {"masterAddr": "a:1", "activated": False, "lastReadTimestamp": 1_000_000 - silence_ms}
    body = json.dumps({"master": False, "haClientRuntimeInfo": client}).encode()
    assert ha_facts(body, 1_000_000).transfers is transfers
    assert not ha_facts(body).transfers


def test_view_when_a_set_has_no_master_then_it_has_none() -> None:
    body = {"nodeId": "n1", "role": "leader", "term": 3, "mayVote": False, "standing": "new",
            "appliedIndex": 5,
            "commitIndex": 6, "brokerSets": {"a": {"syncStateSet": [1]}}}  # fmt: skip
    view = view_of(json.dumps(body).encode())
    assert (view.node_id, view.term, view.may_vote, view.applied_index) == ("n1", 3, False, 5)
    assert view.standing == "new"
    body["members"] = [{"id": "n0", "votes": True}, {"id": "n1", "votes": False}]
    joins = view_of(json.dumps(body).encode())
    assert (joins.standing, joins.joining) == ("", {"n1"})
    assert view.sets == {"a": SetView(None, 0, (1,), 0)}


def test_topics_when_read_then_names_alone_are_kept() -> None:
    assert topic_names(b'{"topicConfigTable":{"A":{},"B":{}}}') == {"A", "B"}


@pytest.mark.parametrize(
    ("runtime", "clock_ms"),
    [
        ({"bootTimestamp": "1000", "runtime": "[ 1 days, 2 hours, 3 minutes, 4 seconds ]"},
         1_000 + 93_784_000),
        ({"bootTimestamp": "1000"}, None),
        ({"bootTimestamp": "x", "runtime": "[ 0 days, 0 hours, 0 minutes, 1 seconds ]"}, None),
    ],
)  # fmt: skip
def test_clock_when_start_and_duration_are_told_then_it_is_their_sum(
    runtime: dict[str, str], clock_ms: int | None
) -> None:
    assert broker_clock_ms(runtime) == clock_ms


def test_controllers_when_one_is_named_then_its_peers_are_asked_once() -> None:
    meta = good(isLeader="true", controllerLeaderAddress="c0:1", peers="n0:c0:1;n1:c1:1;n2:c2:1")
    of_follower = good(isLeader="false", controllerLeaderAddress="c0:1", peers="n0:c0:1;n1:c1:1")
    ask, nodes = asker({
        ("c0:1", 1005): meta, ("c1:1", 1005): of_follower, ("c2:1", 0): ConnectFailed("down"),
        ("c0:1", 1010): good(b"enableElectUncleanMaster=true\n"),
    })  # fmt: skip
    found = asyncio.run(ask.controllers(["c1:1"]))
    assert [(one.address, one.leads, one.answers) for one in found] == [
        ("c1:1", False, True), ("c0:1", True, True), ("c2:1", False, False),
    ]  # fmt: skip
    assert found[1].config == {"enableElectUncleanMaster": "true"}
    assert found[1].view is None
    assert found[2].silent == Silent(False, "down")
    assert nodes.asked.count(("c0:1", 1005)) == 1


def test_servers_when_they_are_others_then_their_refusal_is_one_line() -> None:
    ask, _ = asker({})
    (controller,) = asyncio.run(ask.controllers(["ns:1"]))
    (server,) = asyncio.run(ask.name_servers(["c:1"]))
    assert controller.refused == "code 3 request type 1005 not supported"
    assert server.refused == "code 3 request type 106 not supported"


def test_servers_when_they_refuse_who_asks_then_that_is_told_apart() -> None:
    """A server that wants a user is the one that was meant."""
    denied = RemotingCommand(ResponseCode.NO_PERMISSION, remark="no\n user")
    ask, _ = asker({
        ("c0:1", 0): denied, ("ns:1", 0): denied, ("b:1", 0): denied,
        ("c1:1", 1005): good(isLeader="true"), ("c1:1", 0): denied,
    })  # fmt: skip
    shut, part = asyncio.run(ask.controllers(["c0:1", "c1:1"]))
    assert (shut.denied, shut.answers) == ("code 16 no user", False)
    assert (part.denied, part.answers, part.leads) == ("code 16 no user", True, True)
    (server,) = asyncio.run(ask.name_servers(["ns:1"]))
    assert (server.denied, server.answers) == ("code 16 no user", False)
    (broker,) = asyncio.run(ask.brokers({"b:1": "broker-a"}))
    assert (broker.denied, broker.silent) == ("code 16 no user", None)


@pytest.mark.parametrize(
    ("error", "connected"),
    [
        (ConnectFailed("refused"), False),
        (ConnectionLost("lost"), True),
        (RequestTimeout("late"), True),
        (RemoteProtocolError("HTTP"), True),
    ],
)
def test_broker_when_it_says_nothing_then_why_is_told(error: Exception, connected: bool) -> None:
    ask, _ = asker({("b:1", 0): error})
    (found,) = asyncio.run(ask.brokers({"b:1": "broker-a"}))
    ended = connected and not isinstance(error, RequestTimeout)
    is_other = isinstance(error, RemoteProtocolError)
    assert found.silent == Silent(connected, str(error), ended=ended, is_other=is_other)
    assert found.silent.hangs is isinstance(error, RequestTimeout)
    assert found.listed_as == "broker-a"


@pytest.mark.parametrize(
    ("error", "speaks_tls", "is_tried"),
    [
        (ConnectionLost("lost"), False, True), (ConnectionLost("lost"), True, True),
        (ConnectFailed("handshake"), True, True), (ConnectFailed("refused"), False, False),
        (RequestTimeout("late"), False, False), (RequestTimeout("late"), True, False),
    ],
)  # fmt: skip
def test_door_when_a_node_hangs_or_is_gone_then_no_time_is_lost_on_it(
    error: Exception, speaks_tls: bool, is_tried: bool
) -> None:
    """A look at a large cluster of which a part is down takes one timeout, not three."""

    async def of(_: str) -> Door:
        return Door.TLS

    doors = SimpleNamespace(of=of, speaks_tls=speaks_tls)
    ask = Asker(Nodes({("b:1", 0): error}), Noon(), 100, doors)  # type: ignore[arg-type]
    (found,) = asyncio.run(ask.brokers({"b:1": "broker-a"}))
    assert found.silent is not None
    assert (found.silent.door is Door.TLS) is is_tried


def test_broker_when_it_refuses_some_questions_then_the_rest_counts() -> None:
    """A broker without controllers knows no epochs; with ACL it may refuse its configuration."""
    table = {
        "bootTimestamp": "1699999990000",
        "runtime": "[ 0 days, 0 hours, 1 minutes, 0 seconds ]",
    }
    ask, _ = asker({("b:1", RequestCode.GET_BROKER_RUNTIME_INFO): good({"table": table})})
    (found,) = asyncio.run(ask.brokers({"b:1": "broker-a"}))
    assert found.silent is None
    assert found.clock_ahead_ms == 50_000
    assert (found.ha, found.epochs, found.config, found.topics) == (None, None, {}, None)


@pytest.mark.parametrize(
    ("theirs_s", "ahead_ms"), [(0, -1_000), (1, 0), (4, 0), (7, 0), (9, 2_000)]
)
def test_clock_when_a_broker_answers_late_then_its_clock_is_not_called_wrong(
    theirs_s: int, ahead_ms: int
) -> None:
    """It may have looked at any moment between question and answer, which were six seconds apart."""
    table = {
        "bootTimestamp": "0", "runtime": f"[ 0 days, 0 hours, 0 minutes, {theirs_s} seconds ]",
    }  # fmt: skip
    nodes = Nodes({("b:1", RequestCode.GET_BROKER_RUNTIME_INFO): good({"table": table})})
    moments = iter((1_000, 7_000))
    clock = SimpleNamespace(wall_ms=lambda: next(moments))
    ask = Asker(nodes, clock, 100)  # type: ignore[arg-type]  # all that is used of them
    (found,) = asyncio.run(ask.brokers({"b:1": "broker-a"}))
    assert found.clock_ahead_ms == ahead_ms


def test_sets_when_the_leader_refuses_then_nothing_is_known() -> None:
    ask, _ = asker({("c0:1", 1006): good({"replicasInfoTable": {}})})
    assert asyncio.run(ask.sets("c0:1", ["broker-a"])) == ({}, "")
    assert asyncio.run(ask.sets("c1:1", ["broker-a"])) == (None, "")


@pytest.mark.parametrize(
    ("words", "is_other"),
    [
        ("is lost: it is an HTTP port, of a status page or of metrics", True),
        ("is lost: frame length 1397966893 is outside 4..16777212", True),
        ("is lost: frame length -2 is outside 4..16777212", True),
        ("is lost: frame length 20000000 is outside 4..16777212", False),
        ("is lost: [Errno 104] Connection reset by peer", False), ("is lost", False),
    ],
)  # fmt: skip
def test_silence_when_another_protocol_is_spoken_then_it_is_told_apart(
    words: str, is_other: bool
) -> None:
    """An answer that is too long is one of a large cluster, not of another server."""
    ask, _ = asker({("b:1", 0): ConnectionLost(words)})
    (found,) = asyncio.run(ask.brokers({"b:1": "broker-a"}))
    assert found.silent == Silent(True, words, ended=True, is_other=is_other)


def test_reason_when_the_host_is_ipv6_then_its_port_can_be_told_from_it() -> None:
    """Cannot connect to ::1:10911, it said."""
    for words in ("cannot connect to ::1:10911: refused", "cannot connect to [::1]:10911: refused"):
        ask, _ = asker({("[::1]:10911", 0): ConnectFailed(words)})
        (found,) = asyncio.run(ask.brokers({"[::1]:10911": "broker-a"}))
        assert found.silent == Silent(False, "cannot connect to [::1]:10911: refused")
    ask, _ = asker({("nonsense", 0): ConfigInvalid("no address")})
    (found,) = asyncio.run(ask.brokers({"nonsense": "broker-a"}))
    assert found.silent == Silent(False, "no address")
