"""One look: whom it asks follows from what others answered, and host names are looked up."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

from rmqha.doctor.aio.looking import StorePaths, Target, look
from rmqha.doctor.facts import ConfFacts, PortFacts
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


def test_look_when_one_set_matters_then_no_other_is_asked_for() -> None:
    ask, nodes = asker(NODES)
    facts = asyncio.run(look(ask, Target(("localhost:1",), ("ns:1",), "a")))
    assert [one.address for one in facts.brokers] == ["10.0.1.1:10911"]
    assert set(facts.name_servers[0].sets) == {"a"}
    assert not any(address == "10.0.2.1:10911" for address, _ in nodes.asked)


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


def test_look_when_ports_are_wanted_then_those_in_use_are_told() -> None:
    ask, _ = asker({})
    with socket.create_server((LOOPBACK, 0)) as taken:
        port = taken.getsockname()[1]
        facts = asyncio.run(look(ask, Target(ports=(("listenPort", port),), bind_host=LOOPBACK)))
        assert facts.ports == (PortFacts("listenPort", port, is_free=False),)
    facts = asyncio.run(look(ask, Target(ports=(("listenPort", port),), bind_host=LOOPBACK)))
    assert facts.ports == (PortFacts("listenPort", port, is_free=True),)


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
