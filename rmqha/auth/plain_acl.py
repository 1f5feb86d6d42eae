"""Accounts out of a ``plain_acl.yml`` of ACL 1.0: its accounts as users with policies.

Whitelists of addresses let anybody in without a signature; ACL 2.0 has no such thing, so they are
left out and named. So are names with an asterisk: ACL 1.0 means that very name, which no topic and
no group has, while an account that is written down means by it whatever begins so.

Source: AuthMigrator of RocketMQ 5.3.3, plain_acl.yml of 4.9.8.
"""

from __future__ import annotations

import re
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
from rmqha.auth.resources import (
    ALL_NAMES,
    Action,
    Pattern,
    Resource,
    ResourceType,
    group,
    topic,
)
from rmqha.base.errors import ConfigInvalid

_ALLOWED: dict[str, tuple[Action, ...]] = {
    "PUB": (Action.PUB,),
    "SUB": (Action.SUB,),
    "PUB|SUB": (Action.PUB, Action.SUB),
    "SUB|PUB": (Action.PUB, Action.SUB),
    "ANY": (Action.ALL,),
}
_PERMISSIONS = {"topicPerms": topic, "groupPerms": group}
_TRUE = frozenset({"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"})
_NONE = frozenset({"", "~", "null", "Null", "NULL"})
_TAG = "tag:yaml.org,2002:"


class _AsWritten(yaml.SafeLoader):
    """Keeps every scalar as it stands in the file, as Java's fields of strings do: a key of digits
    is no number, and a name like a day is no date. It knows text, lists, mappings and merge keys."""


_READERS = _AsWritten.yaml_constructors
_AsWritten.yaml_constructors = {
    tag: _READERS[tag] for tag in (f"{_TAG}str", f"{_TAG}seq", f"{_TAG}map", None)
}
_AsWritten.yaml_implicit_resolvers = {"<": [(f"{_TAG}merge", re.compile("<<"))]}


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
        found = yaml.load(text, _AsWritten)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigInvalid(f"plain_acl.yml is no YAML: {error}") from error
    if not isinstance(found or {}, dict):
        raise ConfigInvalid("plain_acl.yml holds no accounts")
    found = found or {}
    everywhere = "globalWhiteRemoteAddresses"
    left_out = [everywhere] if found.get(everywhere) and _text(found, everywhere) else []
    accounts: dict[str, Account] = {}
    for value in _list(found, "accounts"):
        account = _account(value)
        accounts.setdefault(account.name, account)
        left_out += [f"{one} of {account.name}" for one in _with_asterisk(value)]
        if _text(value, "whiteRemoteAddress"):
            left_out.append(f"whiteRemoteAddress of {account.name}")
    return PlainAcl(tuple(accounts.values()), tuple(left_out))


def _account(value: Any) -> Account:
    if not isinstance(value, dict):
        raise ConfigInvalid("plain_acl.yml: an account is no mapping")
    name = _text(value, "accessKey")
    try:
        account = read_user(name, {"password": _text(value, "secretKey")}, None)
        account = account.with_policies(_policies(value))
    except ChangeRefused as error:
        raise ConfigInvalid(f"plain_acl.yml: account {name}: {error}") from error
    kind = UserType.SUPER if _text(value, "admin") in _TRUE else UserType.NORMAL
    return replace(account, user_type=kind)


def _named(value: Mapping[str, Any], key: str) -> list[tuple[str, str]]:
    """Names and what is permitted."""
    pairs = (str(one).partition("=") for one in _list(value, key))
    return [(name.strip(), permission) for name, equals, permission in pairs if equals]


def _with_asterisk(value: Mapping[str, Any]) -> list[str]:
    """What is left out, as it stands in the file."""
    return [
        f"{key} {name}={permission}"
        for key in _PERMISSIONS
        for name, permission in _named(value, key)
        if ALL_NAMES in name
    ]


def _policies(value: Mapping[str, Any]) -> list[Policy]:
    custom = [
        _entry(resource(name), permission)
        for key, resource in _PERMISSIONS.items()
        for name, permission in _named(value, key)
        if name and ALL_NAMES not in name
    ]
    default = [
        _entry(Resource(kind, "", Pattern.ANY), permission)
        for key, kind in (
            ("defaultTopicPerm", ResourceType.TOPIC),
            ("defaultGroupPerm", ResourceType.GROUP),
        )
        if (permission := _text(value, key)) is not None
    ]
    found = ((PolicyType.CUSTOM, custom), (PolicyType.DEFAULT, default))
    return [Policy(kind, ()).updated(entries) for kind, entries in found if entries]


def _entry(resource: Resource, permission: str) -> Entry:
    """What allows nothing that is known denies all: Java's migration allows all then."""
    actions = _ALLOWED.get(permission.strip().upper())
    if actions is None:
        return Entry(resource, (Action.ALL,), Decision.DENY)
    return Entry(resource, actions, Decision.ALLOW)


def _text(found: Mapping[str, Any], key: str) -> str | None:
    """A value as it is written; None where there is none, or one of YAML's words for that."""
    value = found.get(key)
    return None if value is None or str(value).strip() in _NONE else str(value)


def _list(found: Mapping[str, Any], key: str) -> list[Any]:
    value = [] if _text(found, key) is None else found[key]
    if not isinstance(value, list):
        raise ConfigInvalid(f"plain_acl.yml: {key} is no list")
    return value
