"""Settings of users and permissions."""

from __future__ import annotations

import pytest

from rmqha.auth.settings import DEFAULTS, load_settings
from rmqha.auth.signature import Credentials
from rmqha.base.errors import ConfigInvalid
from rmqha.controller.settings import load_config
from rmqha.runtime.properties import shown_properties

GROUP = {
    "controllerDLegerGroup": "g", "controllerDLegerSelfId": "n0",
    "controllerDLegerPeers": "n0-127.0.0.1:1;n1-127.0.0.1:2",
}  # fmt: skip


def test_settings_when_nothing_is_said_then_nothing_is_asked() -> None:
    """Java's default."""
    found = load_settings(DEFAULTS)
    assert not found.authentication
    assert not found.authorization
    assert found.credentials is None
    assert found.named == {}


def test_settings_when_users_are_named_then_they_are_super_users() -> None:
    """Also the one that this server's own requests come from."""
    found = load_settings({
        **DEFAULTS, "authenticationEnabled": "TRUE", "authorizationEnabled": "true",
        "authenticationWhitelist": "10, 11,", "authorizationWhitelist": "34",
        "initAuthenticationUser": '{"username":"root","password":"p"}',
        "innerClientAuthenticationCredentials": '{"accessKey":"in","secretKey":"s"}',
    })  # fmt: skip
    assert found.authentication_free == {10, 11}
    assert found.authorization_free == {34}
    assert sorted(found.named) == ["in", "root"]
    assert all(one.is_super for one in found.named.values())
    assert found.credentials == Credentials("in", "s")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("authenticationEnabled", "yes"),
        ("authorizationEnabled", "true"),
        ("authenticationWhitelist", "ten"),
        ("initAuthenticationUser", "root"),
        ("initAuthenticationUser", '["root"]'),
        ("initAuthenticationUser", '{"username":"root"}'),
        ("initAuthenticationUser", '{"username":"","password":"geheim"}'),
        ("innerClientAuthenticationCredentials", '{"accessKey":"x","secretKey":7}'),
    ],
)
def test_settings_when_one_cannot_be_used_then_it_is_named_and_no_secret(
    key: str, value: str
) -> None:
    """They go to terminals and logs."""
    with pytest.raises(ConfigInvalid, match=key) as caught:
        load_settings({**DEFAULTS, key: value})
    assert "geheim" not in str(caught.value)


def test_controllers_when_they_ask_without_a_raft_secret_then_they_do_not_start() -> None:
    """A stranger could speak as one of them."""
    with pytest.raises(ConfigInvalid, match="raftSecret"):
        load_config({**GROUP, "authenticationEnabled": "true"}, home="", user_home="/h")
    secret = {"authenticationEnabled": "true", "raftSecret": "0123456789abcdef"}
    assert load_config({**GROUP, **secret}, home="", user_home="/h").auth.authentication


def test_settings_when_shown_then_secrets_are_not() -> None:
    """26, 319 and 1010."""
    shown = shown_properties({
        "initAuthenticationUser": "geheim", "innerClientAuthenticationCredentials": "geheim",
        "authenticationWhitelist": "10",
    })  # fmt: skip
    assert b"geheim" not in shown
    assert b"authenticationWhitelist=10" in shown
