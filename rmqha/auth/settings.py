"""Settings of users and permissions, under Java's names, for all three kinds of servers.

Source: AuthConfig of RocketMQ 5.3.3. Java's providers and strategies are classes of its own and
have no counterpart here.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from rmqha.auth.accounts import Account, UserType, read_user
from rmqha.auth.refused import ChangeRefused
from rmqha.auth.signature import Credentials
from rmqha.base.errors import ConfigInvalid, RemoteProtocolError
from rmqha.remoting import fastjson

DEFAULTS: dict[str, str] = {
    "authenticationEnabled": "false",
    "authenticationWhitelist": "",
    "authorizationEnabled": "false",
    "authorizationWhitelist": "",
    "initAuthenticationUser": "",
    "innerClientAuthenticationCredentials": "",
}
BROKER_DEFAULTS: dict[str, str] = {
    **DEFAULTS, "migrateAuthFromV1Enabled": "false", "plainAclPath": "",
}  # fmt: skip
SERVER_DEFAULTS: dict[str, str] = {
    **DEFAULTS, "authUsersPath": "", "authUsersReloadMs": "5000",
}  # fmt: skip
"""Of name servers and controllers, which have no log that users could be kept in."""


class AuthSettings(Struct, frozen=True):
    """A checked configuration.

    Attributes:
        authentication, authorization: whether requests are looked at.
        authentication_free, authorization_free: request codes that are not. Who is asked what he
            may has to sign in any case.
        named: users that the configuration itself names, by name: the first user, and who this
            server's own requests come from. Both are super users.
        credentials: what this server signs with; None when it does not.
    """

    authentication: bool
    authorization: bool
    authentication_free: frozenset[int]
    authorization_free: frozenset[int]
    named: Mapping[str, Account]
    credentials: Credentials | None


def load_settings(values: Mapping[str, str]) -> AuthSettings:
    """Check the keys of :data:`DEFAULTS`.

    Raises:
        ConfigInvalid: the first that cannot be used, and why. No secret is in the text.
    """
    authentication = _boolean(values, "authenticationEnabled")
    authorization = _boolean(values, "authorizationEnabled")
    if authorization and not authentication:
        raise ConfigInvalid(
            "authorizationEnabled=true needs authenticationEnabled=true: without signatures"
            " everybody could say to be anybody"
        )
    named: dict[str, Account] = {}
    first = _object(values, "initAuthenticationUser")
    if first is not None:
        _add(named, "initAuthenticationUser", first.get("username"), first.get("password"))
    inner, credentials = _object(values, "innerClientAuthenticationCredentials"), None
    if inner is not None:
        key, secret = inner.get("accessKey", ""), inner.get("secretKey", "")
        _add(named, "innerClientAuthenticationCredentials", key, secret)
        credentials = Credentials(key, secret, inner.get("securityToken") or "")
    return AuthSettings(
        authentication, authorization, _codes(values, "authenticationWhitelist"),
        _codes(values, "authorizationWhitelist"), named, credentials,
    )  # fmt: skip


def _add(named: dict[str, Account], key: str, name: object, password: object) -> None:
    if not isinstance(name, str) or not isinstance(password, str):
        raise ConfigInvalid(f"{key} needs a name and a password, both text")
    try:
        account = read_user(name, {"password": password, "userType": str(UserType.SUPER)}, None)
    except ChangeRefused as error:
        raise ConfigInvalid(f"{key}: {error}") from error
    if name in named and named[name] != account:
        raise ConfigInvalid(f"{key}: user {name} stands here with another password, too")
    named[name] = account


def _object(values: Mapping[str, str], key: str) -> dict[str, str] | None:
    text = values[key].strip()
    if not text:
        return None
    try:
        found = fastjson.loads(text.encode())
    except RemoteProtocolError:
        found = None
    if not isinstance(found, dict):
        raise ConfigInvalid(f"{key} is no JSON object")
    return found


def _codes(values: Mapping[str, str], key: str) -> frozenset[int]:
    parts = [part.strip() for part in values[key].split(",") if part.strip()]
    for part in parts:
        if not part.isascii() or not part.isdigit():
            raise ConfigInvalid(f"{key}: {part!r} is no request code")
    return frozenset(map(int, parts))


def _boolean(values: Mapping[str, str], key: str) -> bool:
    text = values[key].strip().lower()
    if text not in ("true", "false"):
        raise ConfigInvalid(f"{key}={text} is neither true nor false")
    return text == "true"
