"""Addresses that brokers register: which can be one, and which are sent a signature."""

from __future__ import annotations

import pytest

from rmqha.auth import registered
from rmqha.auth.registered import ProvenAddresses, address_trouble
from rmqha.auth.signature import Credentials
from rmqha.remoting.command import RemotingCommand

INNER = Credentials("inner", "inner-secret")
ADDRESS = "10.0.0.1:10911"


def named(
    code: int, by: Credentials | None = INNER, field: str = "brokerAddr", address: str = ADDRESS
) -> list[RemotingCommand]:
    """A chunk with one request that names an address."""
    command = RemotingCommand(code, ext_fields={"brokerName": "b", field: address})
    if by is not None:
        by.sign(command)
    return [command]


def is_signed(proven: ProvenAddresses, address: str = ADDRESS) -> bool:
    """Whether what goes to an address gets a signature."""
    command = RemotingCommand(1008, ext_fields={"masterAddress": "anything"})
    proven.sign(address, command)
    found = INNER.have_signed(command)
    assert found == ("Signature" in (command.ext_fields or {}))
    return found


@pytest.mark.parametrize(
    ("code", "field"), [(103, "brokerAddr"), (904, "brokerAddr"), (1003, "brokerAddress")]
)
def test_address_when_it_was_named_with_the_server_s_own_signature_then_it_is_sent_one(
    code: int, field: str
) -> None:
    """Whoever signs so knows the secret; of all others it would make super users."""
    proven = ProvenAddresses(INNER)
    assert not is_signed(proven)
    for by in (None, Credentials("ann", "ann-secret"), Credentials("inner", "guessed"),
               Credentials("other", "inner-secret")):  # fmt: skip
        proven.hear(1, named(code, by, field))
        assert not is_signed(proven)
    changed = named(code, INNER, field)
    changed[0].ext_fields = {**(changed[0].ext_fields or {}), field: "10.0.0.2:10911"}
    proven.hear(1, changed)
    assert not is_signed(proven, "10.0.0.2:10911")
    proven.hear(1, named(code, INNER, field))
    assert is_signed(proven)
    assert not is_signed(proven, "10.0.0.2:10911")


def test_address_when_another_request_names_it_then_it_proves_nothing() -> None:
    """An operator's request may name anybody's address, and so may an answer's fields."""
    proven = ProvenAddresses(INNER)
    for code, field in ((1002, "brokerAddr"), (104, "brokerAddr"), (1003, "brokerAddr"),
                        (904, "brokerAddress")):  # fmt: skip
        proven.hear(1, named(code, INNER, field))
    proven.hear(1, [RemotingCommand(904)])
    assert not is_signed(proven)


def test_address_when_its_last_connection_ends_then_it_is_forgotten() -> None:
    """Another process may listen there next."""
    proven = ProvenAddresses(INNER)
    for connection in (1, 2):
        for _ in range(3):
            proven.hear(connection, named(904))
    proven.closed(1)
    assert is_signed(proven)
    proven.closed(1)
    proven.closed(2)
    assert not is_signed(proven)
    proven.hear(3, named(904))
    assert is_signed(proven)


def test_addresses_when_there_are_too_many_then_those_beyond_get_no_signature(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And a connection that ends makes room."""
    monkeypatch.setattr(registered, "PROVEN_MAX", 2)
    proven = ProvenAddresses(INNER)
    for number in (1, 2, 3):
        proven.hear(number, named(904, address=f"h:{number}"))
    assert [is_signed(proven, f"h:{number}") for number in (1, 2, 3)] == [True, True, False]
    proven.closed(1)
    proven.hear(3, named(904, address="h:3"))
    assert [is_signed(proven, f"h:{number}") for number in (1, 2, 3)] == [False, True, True]


def test_server_when_it_has_no_credentials_then_it_signs_nothing() -> None:
    proven = ProvenAddresses(None)
    proven.hear(1, named(904))
    assert not is_signed(proven)
    proven.closed(1)


@pytest.mark.parametrize(
    "text",
    ["127.0.0.1:10911", "broker-a.shop_1.local:1", "[::1]:10911", "[fe80::1%eth0]:65535",
     "fe80::1:10911", "b\u00fccher.example:80"],
)  # fmt: skip
def test_address_when_a_broker_can_be_reached_there_then_it_is_taken(text: str) -> None:
    """All that brokers, Java's too, register."""
    assert address_trouble(text, "brokerAddr") is None


@pytest.mark.parametrize(
    "text",
    ["", "h", "h:", ":1", "h:0", "h:65536", "h:-1", "h:1 ", " h:1", "h:1\n", "h\n:1", "a b:1",
     "k=v:1", "k=v\n#:1", "[::1%x=y]:1", "[::1%x\ny=z#]:1", "[h]:1", "h:1;h:2", "h:1,h:2",
     "\u2003h:1", "h\x00:1", "enableTopicList=false\n#", "[::1:1", "h:\u0661"],
)  # fmt: skip
def test_address_when_it_is_none_then_it_is_told_so(text: str) -> None:
    """It goes into requests to others, who would read a property file or a second address."""
    found = address_trouble(text, "brokerAddr")
    assert found is not None
    assert found.startswith("brokerAddr ")
