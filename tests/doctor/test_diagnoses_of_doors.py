"""Diagnoses of servers that work and tell nothing here: one each, and no guess about what is behind."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rmqha.doctor.diagnosis import Severity
from rmqha.doctor.facts import BrokerFacts, ControllerFacts, Door, Facts, NameServerFacts, Silent
from tests.doctor.healthy import (
    BROKERS,
    CONTROLLERS,
    HEALTHY,
    MASTER,
    NAME,
    NAME_SERVERS,
    SLAVE,
    broker,
    codes,
    controller,
    diagnose,
    info,
    name_server,
    only,
    replica,
    sets,
    silent,
    store,
)

REFUSAL = "code 16 authentication field is null."


@pytest.mark.parametrize("door", [None, *Door])
def test_doors_when_none_is_open_then_each_server_is_told_once_and_nothing_else(
    door: Door | None,
) -> None:
    """A healthy cluster that asks for a user, or TLS, was called one without controllers."""
    lost = None if door is None else Silent(True, "connection is lost", door)
    refused = REFUSAL if door is None else ""
    facts = Facts(
        controllers=tuple(
            ControllerFacts(one, lost, refused=refused, denied=refused) for one in CONTROLLERS
        ),
        name_servers=tuple(
            NameServerFacts(one, lost, refused=refused, denied=refused) for one in NAME_SERVERS
        ),
        brokers=tuple(BrokerFacts(one, NAME, lost, refused) for one in BROKERS.values()),
    )
    found = diagnose(facts)
    code = "credentials-refused" if door is None else "tls-differs"
    assert [(one.code, one.found.subject) for one in found] == [
        (code, one) for one in (*CONTROLLERS, *NAME_SERVERS, *BROKERS.values())
    ]
    kinds = ["controller"] * 3 + ["name server"] * 2 + ["broker"] * 3
    assert all(f"the {kind} " in one.found.what for kind, one in zip(kinds, found, strict=True))


def test_node_when_its_answer_cannot_be_read_then_it_is_named() -> None:
    """One such node ended the whole check with exit code 2, and nobody said which."""
    facts = controller(1, unreadable="its answer to 60022 cannot be read: no JSON")
    facts = name_server(0, broker(2, facts, unreadable="no UTF-8"), unreadable="no JSON")
    found = diagnose(facts)
    assert {(one.severity, one.code) for one in found} == {(Severity.ERROR, "answer-unreadable")}
    assert [one.found.subject for one in found] == [CONTROLLERS[1], NAME_SERVERS[0], SLAVE]
    assert "60022 cannot be read: no JSON" in found[0].found.what


def test_credentials_when_refused_then_what_was_answered_and_where_to_write_them_is_told() -> None:
    facts = name_server(0, refused=REFUSAL, denied=REFUSAL, sets={})
    found = only(facts, "credentials-refused").found
    assert REFUSAL in found.what
    assert "tools.yml" in found.next_step
    assert "RMQHA_TOOLS_FILE" in found.next_step


def test_credentials_when_a_part_is_refused_then_the_rest_is_judged_all_the_same() -> None:
    """A user that may ask who leads, and no more."""
    facts = broker(2, denied=REFUSAL, config={}, runtime={}, ha=None, epochs=None, topics=None)
    assert codes(facts) == ["credentials-refused"]
    assert codes(name_server(1, facts, sets={NAME: HEALTHY.name_servers[0].sets[NAME]})) == [
        "credentials-refused"
    ]


@pytest.mark.parametrize(
    ("door", "option"), [(Door.TLS, "--tls,"), (Door.PLAIN, "RMQHA_TLS_CONFIG"),
                         (Door.CERTIFICATE, "tls.client.certPath")],
)  # fmt: skip
def test_tls_when_it_differs_then_the_option_is_told(door: Door, option: str) -> None:
    facts = name_server(0, silent=Silent(True, "connection is lost", door), sets={})
    found = only(facts, "tls-differs").found
    assert option in found.next_step
    assert "connection is lost" in found.why


@pytest.mark.parametrize("is_connected", [True, False])
def test_broker_when_only_its_door_is_shut_then_it_is_neither_down_nor_hung(
    is_connected: bool,
) -> None:
    """Somebody answered at its port: its place in the set and its files are judged as of one that runs."""
    shut = Silent(is_connected, "reset", Door.TLS)
    dead = sets(info((replica(1), replica(3)), (replica(2, alive=False),)), silent(2, shut))
    kinds = {"tls-differs", "sync-state-set-differs", "replica-not-heard"}
    assert set(codes(dead)) == kinds
    dead = sets(info((replica(1), replica(2, alive=False), replica(3))), silent(2, shut))
    assert set(codes(dead)) == {"tls-differs", "replica-not-heard"}
    facts = store(silent(2, shut), abort=True)
    assert SLAVE == BROKERS[2]
    assert codes(facts) == ["tls-differs"], "neither port-taken nor unclean-stop"
    assert only(silent(1, shut), "tls-differs").found.subject == MASTER


def test_controller_when_one_alone_hides_then_nobody_is_said_to_lead_and_the_rest_is_judged() -> (
    None
):
    """It may be the one that leads: three files, of which one was forgotten when TLS came."""
    shut = ControllerFacts(CONTROLLERS[0], Silent(True, "reset", Door.TLS))
    followers = tuple(replace(one, leads=False) for one in HEALTHY.controllers[1:])
    facts = replace(HEALTHY, controllers=(shut, *followers), sets={}, has_sets=False)
    assert codes(facts) == ["tls-differs"]
