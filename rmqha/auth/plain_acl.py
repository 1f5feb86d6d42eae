"""Accounts out of a ``plain_acl.yml`` of ACL 1.0: its accounts as users with policies.

Whitelists of addresses let anybody in without a signature; ACL 2.0 has no such thing, so they are
left out and named.

Source: AuthMigrator of RocketMQ 5.3.3, plain_acl.yml of 4.9.8.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import yaml
from msgspec.structs import replace

from rmqha.auth.accounts import (
    Account,
    Decision,
    Entry,
    Policy,
    PolicyType,
    UserType,
    read_user,
)
from rmqha.auth.refused import ChangeRefused
from rmqha.auth.resources import Action, Pattern, Resource, ResourceType, group, topic
from rmqha.base.errors import ConfigInvalid

_ALLOWED: dict[str, tuple[Action, ...]] = {
    "PUB": (Action.PUB,),
    "SUB": (Action.SUB,),
    "PUB|SUB": (Action.PUB, Action.SUB),
    "SUB|PUB": (Action.PUB, Action.SUB),
    "ANY": (Action.ALL,),
}


class PlainAcl(NamedTuple):
    """What a file holds.

    Attributes:
        left_out: what has no counterpart, for people.
    """

    accounts: tuple[Account, ...]
    left_out: tuple[str, ...]


def read_plain_acl(text: str) -> PlainAcl:
    """Read a file's text; of two accounts with one accessKey the first counts.

    Raises:
        ConfigInvalid: it is no such file, or has an account that no user can be made of.
    """
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigInvalid(f"plain_acl.yml is no YAML: {error}") from error
    if not isinstance(found or {}, dict):
        raise ConfigInvalid("plain_acl.yml holds no accounts")
    found = found or {}
    left_out = ["globalWhiteRemoteAddresses"] if found.get("globalWhiteRemoteAddresses") else []
    accounts: dict[str, Account] = {}
    for value in _list(found, "accounts"):
        account = _account(value)
        accounts.setdefault(account.name, account)
        if str(value.get("whiteRemoteAddress") or "").strip():
            left_out.append(f"whiteRemoteAddress of {account.name}")
    return PlainAcl(tuple(accounts.values()), tuple(left_out))


def _account(value: Any) -> Account:
    if not isinstance(value, dict):
        raise ConfigInvalid("plain_acl.yml: an account is no mapping")
    name, password = value.get("accessKey"), value.get("secretKey")
    # YAML reads a key of digits as a number.
    members = {"password": None if password is None else str(password)}
    try:
        account = read_user(None if name is None else str(name), members, None)
        account = account.with_policies(_policies(value))
    except ChangeRefused as error:
        raise ConfigInvalid(f"plain_acl.yml: account {name}: {error}") from error
    kind = UserType.SUPER if value.get("admin") is True else UserType.NORMAL
    return replace(account, user_type=kind)


def _policies(value: Mapping[str, Any]) -> list[Policy]:
    custom = [
        _entry(resource(name.strip()), permission)
        for key, resource in (("topicPerms", topic), ("groupPerms", group))
        for one in _list(value, key)
        for name, equals, permission in [str(one).partition("=")]
        if equals and name.strip()
    ]
    default = [
        _entry(Resource(kind, "", Pattern.ANY), str(value[key]))
        for key, kind in (
            ("defaultTopicPerm", ResourceType.TOPIC),
            ("defaultGroupPerm", ResourceType.GROUP),
        )
        if str(value.get(key) or "").strip()
    ]
    found = ((PolicyType.CUSTOM, custom), (PolicyType.DEFAULT, default))
    return [Policy(kind, ()).updated(entries) for kind, entries in found if entries]


def _entry(resource: Resource, permission: str) -> Entry:
    """What allows nothing that is known denies all: Java's migration allows all then."""
    actions = _ALLOWED.get(permission.strip().upper())
    if actions is None:
        return Entry(resource, (Action.ALL,), Decision.DENY)
    return Entry(resource, actions, Decision.ALLOW)


def _list(found: Mapping[str, Any], key: str) -> list[Any]:
    value = found.get(key) or []
    if not isinstance(value, list):
        raise ConfigInvalid(f"plain_acl.yml: {key} is no list")
    return value
