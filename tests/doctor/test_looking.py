"""One look: whom it asks follows from what others answered, and host names are looked up."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from rmqha.base.errors import ConnectFailed
from rmqha.doctor.aio import looking
from rmqha.doctor.aio.looking import StorePaths, Target, look
from rmqha.doctor.examine import diagnose
from rmqha.doctor.facts import ConfFacts, PortFacts
from rmqha.doctor.memory import ADDRESSES_MAX, Memory
from rmqha.remoting.command import RemotingCommand
from rmqha.testing.sockets import LOOPBACK
from tests.doctor.test_reading import asker, good

REPLICA = {"alive": True, "brokerAddress": "10.0.1.1:10911", "brokerId": 1, "brokerName": "a"}
SETS = {"replicasInfoTable": {"a": {"inSyncReplicas": [REPLICA], "masterBrokerId": 1,
                                    "masterAddress": "10.0.1.1:10911", "masterEpoch": 2}}}  # fmt: skip
GROUPS = {"brokerAddrTable": {
    "a": {"brokerAddrs": {"0": "10.0.1.1:10911"}, "brokerName": "a", "cluster": "C"},
    "b": {"brokerAddrs": {"0": "10.0.2.1:10911"}, "brokerName": "b", "cluster": "C"},
}}  # fmt: skip
NODES = {
    ("localhost:1", 1005): good(isLeader="true", peers="n0:localhost:1"),
    ("localhost:1", 1006): good(SETS),
    ("ns:1", 106): good(GROUPS),
}
LONG = "x" * 70 + ".example:1"
"""No resolver is asked for a name of which a part is that long."""


def test_look_when_nothing_is_left_out_then_every_set_is_asked_for() -> None:
    ask, nodes = asker(NODES)
    facts = asyncio.run(look(ask, Target(("localhost:1",), ("ns:1",))))
    assert facts.has_sets
    assert facts.sets["a"].master_epoch == 2
    assert [(one.address, one.listed_as) for one in facts.brokers] == [
        ("10.0.1.1:10911", "a"), ("10.0.2.1:10911", "b"),
    ]  # fmt: skip
    assert ("10.0.2.1:10911", 28) in nodes.asked


def controlled(controllers: str, mode: str = "true") -> RemotingCommand:
    """A broker's configuration."""
    return good(f"enableControllerMode={mode}\ncontrollerAddr={controllers}\n".encode())


OF_SLAVES = {
    ("ns:1", 106): good({"brokerAddrTable": {
        "a": {"brokerAddrs": {"2": "10.0.1.2:10911"}, "brokerName": "a", "cluster": "C"},
        "b": {"brokerAddrs": {"2": "10.0.2.2:10911"}, "brokerName": "b", "cluster": "C"},
    }}),
    ("10.0.1.2:10911", 26): controlled("10.0.0.8:1;127.0.0.1:1"),
    ("127.0.0.1:1", 1005): good(isLeader="true", peers="n0:127.0.0.1:1"),
    ("127.0.0.1:1", 1006): good(SETS),
}  # fmt: skip


@pytest.mark.parametrize("given", [(), ("10.0.0.9:1",)])
def test_look_when_no_controller_leads_then_those_that_brokers_name_are_asked(
    given: tuple[str, ...],
) -> None:
    """None was given, or one that is down: whether one leads is a question to the others."""
    ask, nodes = asker({**OF_SLAVES, ("10.0.2.2:10911", 26): controlled("localhost:1;10.0.0.7:1")})
    facts = asyncio.run(look(ask, Target(given, ("ns:1",))))
    assert [one.address for one in facts.leaders] == ["127.0.0.1:1"]
    assert {*given, "10.0.0.7:1", "10.0.0.8:1"} < {one.address for one in facts.controllers}
    assert facts.sets["a"].master_epoch == 2
    # What the leader names is asked, and nobody is asked twice.
    assert {one.address for one in facts.brokers} == {
        "10.0.1.1:10911", "10.0.1.2:10911", "10.0.2.2:10911",
    }  # fmt: skip
    assert nodes.asked.count(("10.0.1.2:10911", 26)) == 1
    assert all(nodes.asked.count((one, 1005)) == 1 for one in given)


@pytest.mark.parametrize(
    ("second", "given"),
    [
        (controlled("10.0.0.7:1"), ()), (controlled("10.0.0.8:1", "false"), ("127.0.0.1:1",)),
        (controlled("10.0.0.7:1"), ("127.0.0.1:1",)),
    ],
)  # fmt: skip
def test_look_when_brokers_are_of_several_groups_or_one_leads_then_no_other_is_asked(
    second: RemotingCommand, given: tuple[str, ...]
) -> None:
    """Each group has its leader by right: to ask both would be to find two."""
    ask, nodes = asker({**OF_SLAVES, ("10.0.2.2:10911", 26): second})
    facts = asyncio.run(look(ask, Target(given, ("ns:1",))))
    assert tuple(one.address for one in facts.controllers) == given
    assert not any(address == "10.0.0.8:1" for address, _ in nodes.asked)


def test_look_when_a_broker_has_no_controller_mode_then_nobody_decides_about_it() -> None:
    of_old = ("10.0.1.2:10911", 26)
    ask, _ = asker({**OF_SLAVES, of_old: controlled("127.0.0.1:1", "false")})
    assert asyncio.run(look(ask, Target((), ("ns:1",)))).controllers == ()


def test_look_when_answers_cannot_be_read_then_each_node_is_told_and_the_rest_counts() -> None:
    """One of them ended the check of all, with exit code 2 and without its name."""
    ask, _ = asker({
        **NODES, ("localhost:1", 1006): good(b"{not json"), ("localhost:1", 60022): good(b"[]"),
        ("ns:2", 106): good(b"{not json"), ("10.0.1.1:10911", 28): good(b"[1,2]"),
        ("10.0.1.1:10911", 26): good(b"brokerName=a\n"),
        ("10.0.2.1:10911", 26): good(b"key=\\u12\n"),
        ("10.0.2.1:10911", 1007): good({"brokerName": "b", "epochList": 7}),
    })  # fmt: skip
    facts = asyncio.run(look(ask, Target(("localhost:1",), ("ns:1", "ns:2"))))
    (leader,), (well, ill), (one, other) = facts.controllers, facts.name_servers, facts.brokers
    assert (leader.leads, leader.unreadable.split(" cannot")[0]) == (
        True, "its answer to 1006 (CONTROLLER_GET_SYNC_STATE_DATA)",
    )  # fmt: skip
    assert not facts.has_sets
    assert (well.unreadable, well.answers, ill.answers, ill.sets) == ("", True, False, {})
    assert "106 (GET_BROKER_CLUSTER_INFO) cannot be read: body is not JSON" in ill.unreadable
    assert "28 (GET_BROKER_RUNTIME_INFO)" in one.unreadable
    assert one.config == {"brokerName": "a"}
    assert "1007 (GET_BROKER_EPOCH_CACHE)" in other.unreadable
    found = {d.found.subject for d in diagnose(facts) if d.code == "answer-unreadable"}
    assert found == {"localhost:1", "ns:2", "10.0.1.1:10911", "10.0.2.1:10911"}


def test_look_when_one_set_matters_then_no_other_is_asked_for() -> None:
    ask, nodes = asker(NODES)
    facts = asyncio.run(look(ask, Target(("localhost:1",), ("ns:1",), "a")))
    assert [one.address for one in facts.brokers] == ["10.0.1.1:10911"]
    assert set(facts.name_servers[0].sets) == {"a"}
    assert not any(address == "10.0.2.1:10911" for address, _ in nodes.asked)


def sets_at(address: str) -> RemotingCommand:
    """The controllers' word, with the one broker at this address."""
    one = {**REPLICA, "brokerAddress": address}
    return good({"replicasInfoTable": {"a": {"inSyncReplicas": [one], "masterBrokerId": 1,
                                             "masterAddress": address, "masterEpoch": 2}}})  # fmt: skip


@pytest.mark.parametrize("is_there", [True, False])
def test_look_when_an_address_is_told_no_more_then_it_is_asked_all_the_same(is_there: bool) -> None:
    """Two processes of one id: each look saw the one whose heartbeat was the last."""
    controller = {("localhost:1", 1005): good(isLeader="true", peers="n0:localhost:1")}
    first, second = "10.0.1.1:10911", "10.0.1.9:10911"
    gone = {(first, 0): ConnectFailed("down")}
    ask, nodes = asker({**controller, ("localhost:1", 1006): sets_at(first)})
    target = Target(("localhost:1",), set_name="a")
    assert asyncio.run(look(ask, target)).moved == {}
    nodes.answers = {
        **controller, ("localhost:1", 1006): sets_at(second), **({} if is_there else gone),
    }  # fmt: skip
    facts = asyncio.run(look(ask, target))
    assert facts.moved == {("a", 1): (first, second)}
    wanted = [second, first] if is_there else [second]
    assert [(one.address, one.listed_as) for one in facts.brokers] == [(at, "a") for at in wanted]


def test_memory_when_it_is_full_then_no_more_is_learnt() -> None:
    """A check that goes on for long has an end of what it keeps."""
    memory = Memory()
    memory.learn({f"10.0.0.1:{port}": "a" for port in range(1, ADDRESSES_MAX + 1)}, {})
    memory.learn({"10.0.0.2:1": "a"}, {})
    assert len(memory.listed) == ADDRESSES_MAX


def test_look_when_a_broker_is_configured_then_it_is_asked_though_nobody_knows_it() -> None:
    ask, _ = asker({})
    conf = ConfFacts("broker.conf", {"brokerName": "a"}, address="10.0.1.9:10911")
    facts = asyncio.run(look(ask, Target(conf=conf)))
    assert [(one.address, one.listed_as) for one in facts.brokers] == [("10.0.1.9:10911", "a")]
    assert not facts.has_sets


def test_look_when_there_are_names_then_their_addresses_are_found_or_none() -> None:
    ask, _ = asker(NODES)
    facts = asyncio.run(look(ask, Target(("localhost:1",), ("10.0.0.4:9876", LONG))))
    assert LOOPBACK in facts.resolved["localhost"]
    assert facts.resolved[LONG.partition(":")[0]] == ()
    assert "10.0.0.4" not in facts.resolved
    assert facts.is_same("localhost:1", f"{LOOPBACK}:1")
    assert not facts.is_same("localhost:1", f"{LOOPBACK}:2")


def test_look_when_a_broker_names_its_name_servers_by_one_name_then_it_is_looked_up() -> None:
    """fetchNameSrvAddrByDnsLookup: else it looked as if it named none of those that there are."""
    good_config = {("10.0.1.9:10911", 26): good(b"namesrvAddr=localhost:9876")}
    ask, _ = asker(good_config)
    conf = ConfFacts("broker.conf", {"brokerName": "a"}, address="10.0.1.9:10911")
    facts = asyncio.run(look(ask, Target(conf=conf)))
    assert facts.is_same("localhost:9876", f"{LOOPBACK}:9876")


def test_look_when_ports_are_wanted_then_those_in_use_are_told() -> None:
    ask, _ = asker({})
    with socket.create_server((LOOPBACK, 0)) as taken:
        port = taken.getsockname()[1]
        facts = asyncio.run(look(ask, Target(ports=(("listenPort", port),), bind_host=LOOPBACK)))
        assert facts.ports == (PortFacts("listenPort", port, is_free=False),)
    facts = asyncio.run(look(ask, Target(ports=(("listenPort", port),), bind_host=LOOPBACK)))
    assert facts.ports == (PortFacts("listenPort", port, is_free=True),)


def test_look_when_a_port_is_taken_on_another_address_then_it_is_free_here() -> None:
    """A broker with a bindAddress of its own is not in the way of others, nor they in its."""
    ask, _ = asker({})
    with socket.create_server((LOOPBACK, 0)) as taken:
        ports = (("listenPort", taken.getsockname()[1]),)
        facts = asyncio.run(look(ask, Target(ports=ports, bind_host="127.0.0.2")))
    assert facts.ports[0].is_free


def test_look_when_a_name_server_of_names_hangs_then_its_name_has_no_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A resolver that does not answer held the check for as long as it liked."""

    class Loop(asyncio.SelectorEventLoop):
        async def getaddrinfo(self, *_: object, **__: object) -> list[object]:  # type: ignore[override]
            await asyncio.Event().wait()
            raise AssertionError

    monkeypatch.setattr(looking, "RESOLVE_S", 0.01)
    ask, _ = asker(NODES)
    with asyncio.Runner(loop_factory=Loop) as runner:
        facts = runner.run(asyncio.wait_for(look(ask, Target(("localhost:1",))), 5.0))
    assert facts.resolved["localhost"] == ()


def test_look_when_a_store_is_named_then_its_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "brokerIdentity").write_text("C#a#2")
    (tmp_path / "abort").touch()
    paths = StorePaths(tmp_path, tmp_path / "commitlog", tmp_path / "epochFileCheckpoint",
                       tmp_path / "brokerIdentity", 0)  # fmt: skip
    ask, _ = asker({})
    facts = asyncio.run(look(ask, Target(store=paths)))
    assert facts.identity is not None
    assert facts.identity.final is not None
    assert facts.store is not None
    assert facts.store.abort
