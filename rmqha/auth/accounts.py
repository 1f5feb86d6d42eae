"""Users and what they may do. An account is a user with the policies that were made for it.

Java keeps users and ACLs apart, and allows no ACL without its user; so here they are one thing.

Source: User, Acl, Policy, PolicyEntry and the bodies UserInfo and AclInfo of RocketMQ 5.3.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from rmqha.auth.addresses import address_error, is_in_range
from rmqha.auth.refused import ChangeRefused
from rmqha.auth.resources import Action, NamedT, Resource, named, parse_resource
from rmqha.runtime.properties import shown

SUBJECT_PREFIX = "User:"
USERNAME_LENGTH_MAX = 255
PASSWORD_LENGTH_MAX = 1024
ENTRIES_MAX = 1_000
"""Of one account: each of a request's resources is compared to all of them."""


class UserType(StrEnum):
    """Whom policies bind; a super user may do everything."""

    SUPER = "Super"
    NORMAL = "Normal"


class UserStatus(StrEnum):
    """Whether a user's signatures count."""

    ENABLE = "enable"
    DISABLE = "disable"


class Decision(StrEnum):
    """What an entry says about those that match it."""

    ALLOW = "Allow"
    DENY = "Deny"


class PolicyType(StrEnum):
    """A default policy counts where no custom one says anything."""

    CUSTOM = "Custom"
    DEFAULT = "Default"


class Entry(Struct, frozen=True):
    """One line of a policy.

    Attributes:
        source_ips: addresses and ranges that it counts for; empty for all.
    """

    resource: Resource
    actions: tuple[Action, ...]
    decision: Decision
    source_ips: tuple[str, ...] = ()

    def matches(self, asked: Resource, actions: Iterable[Action], source_ip: str) -> bool:
        """Whether it says something about a request that does any of ``actions``."""
        if not self.resource.matches(asked):
            return False
        if Action.ALL not in self.actions and not any(one in self.actions for one in actions):
            return False
        return not self.source_ips or any(is_in_range(source_ip, one) for one in self.source_ips)

    def members(self) -> dict[str, Any]:
        """As in Java's bodies."""
        found: dict[str, Any] = {
            "actions": [str(one) for one in self.actions],
            "decision": str(self.decision),
            "resource": self.resource.key,
        }
        if self.source_ips:
            found["sourceIps"] = list(self.source_ips)
        return found


class Policy(Struct, frozen=True):
    """Entries; at most one for each resource."""

    kind: PolicyType
    entries: tuple[Entry, ...]

    def members(self) -> dict[str, Any]:
        """As in Java's bodies."""
        return {"entries": [one.members() for one in self.entries], "policyType": str(self.kind)}

    def updated(self, entries: Iterable[Entry]) -> Policy:
        """Entries replace those of the same resource, or stand behind the others."""
        found = {one.resource: one for one in self.entries}
        found.update({one.resource: one for one in entries})
        return Policy(self.kind, tuple(found.values()))


class Account(Struct, frozen=True):
    """A user and its policies.

    Attributes:
        policies: at most one of each kind.
        broker_names: of an identity that brokers use: the names and prefixes (``shop-*``) of the
            broker sets that it may speak for.
    """

    name: str
    password: str
    user_type: UserType = UserType.NORMAL
    user_status: UserStatus = UserStatus.ENABLE
    policies: tuple[Policy, ...] = ()
    broker_names: tuple[str, ...] = ()

    @property
    def is_super(self) -> bool:
        """Whether this user may do everything."""
        return self.user_type is UserType.SUPER

    @property
    def is_enabled(self) -> bool:
        """Whether this user's signatures count."""
        return self.user_status is UserStatus.ENABLE

    @property
    def subject(self) -> str:
        """The name as policies know it."""
        return SUBJECT_PREFIX + self.name

    def policy(self, kind: PolicyType) -> Policy | None:
        """The policy of a kind, or None."""
        return next((one for one in self.policies if one.kind is kind), None)

    def with_policies(self, policies: Iterable[Policy]) -> Account:
        """Each policy's entries added to, or replacing those of, the policy of its kind.

        Raises:
            ChangeRefused: these are too many.
        """
        found = {one.kind: one for one in self.policies}
        for policy in policies:
            found[policy.kind] = found.get(policy.kind, Policy(policy.kind, ())).updated(
                policy.entries
            )
        if sum(len(one.entries) for one in found.values()) > ENTRIES_MAX:
            raise ChangeRefused(f"a user has at most {ENTRIES_MAX} policy entries")
        return replace(self, policies=tuple(found.values()))

    def without_policies(self, kind: PolicyType, resource: Resource | None) -> Account:
        """Without the entry for a resource, or without any; a policy without entries is none."""
        if resource is None:
            return replace(self, policies=())
        left = (
            Policy(one.kind, tuple(e for e in one.entries if e.resource != resource))
            if one.kind is kind
            else one
            for one in self.policies
        )
        return replace(self, policies=tuple(one for one in left if one.entries))

    def user_members(self) -> dict[str, Any]:
        """``UserInfo``, the password included: that is what mqadmin copies users by."""
        return {
            "password": self.password,
            "userStatus": str(self.user_status),
            "userType": str(self.user_type),
            "username": self.name,
        }

    def acl_members(self) -> dict[str, Any]:
        """The body ``AclInfo`` of Java."""
        return {"policies": [one.members() for one in self.policies], "subject": self.subject}

    def members(self) -> dict[str, Any]:
        """As records of the log and files have it."""
        found = self.user_members()
        if self.policies:
            found["policies"] = [one.members() for one in self.policies]
        if self.broker_names:
            found["brokerNames"] = list(self.broker_names)
        return found


_USER_KEYS = {"username", "password", "userType", "userStatus", "policies", "brokerNames"}
_POLICY_KEYS = {"policyType", "entries"}
_ENTRY_KEYS = {"resource", "actions", "decision", "sourceIps"}


def read_user(name: str | None, members: Mapping[str, Any], old: Account | None) -> Account:
    """What ``UserInfo`` asks for.

    Args:
        name: of the user.
        members: what misses stays as it is, or has Java's default.
        old: None to make one, which needs a password.

    Raises:
        ChangeRefused: no user can be like that, or a word is none of ours: Java takes it for one
            that was left out, and who switched a user off by it is told that all went well.
    """
    if not name or not name.strip():
        raise ChangeRefused("username can not be blank")
    if len(name) > USERNAME_LENGTH_MAX or not name.isprintable():
        raise ChangeRefused(f"a username has at most {USERNAME_LENGTH_MAX} printable characters")
    password = _text(members, "password")
    if old is None and not (password and password.strip()):
        raise ChangeRefused("password can not be blank")
    if password and len(password) > PASSWORD_LENGTH_MAX:
        raise ChangeRefused(f"a password has at most {PASSWORD_LENGTH_MAX} characters")
    kept = old or Account(name, password or "")
    return replace(
        kept,
        password=password if password and password.strip() else kept.password,
        user_type=_word(UserType, members, "userType") or kept.user_type,
        user_status=_word(UserStatus, members, "userStatus") or kept.user_status,
    )


def read_account(members: Mapping[str, Any]) -> Account:
    """Read :meth:`Account.members`; raises ChangeRefused."""
    name = _text(members, "username")
    account = read_user(name, members, None)
    names = _list(members, "brokerNames")
    if not all(isinstance(one, str) and one for one in names):
        raise ChangeRefused("brokerNames holds other than names")
    account = replace(account, broker_names=tuple(names))
    return account.with_policies(read_policies(members)) if members.get("policies") else account


def read_written_account(members: Mapping[str, Any]) -> Account:
    """:func:`read_account` of a file that a person has written.

    Raises:
        ChangeRefused: also for a key or a word that is none of ours; left out, as of a request, it
            could leave a user on whom somebody wanted to switch off. Keys that begin with ``_`` are
            notes.
    """
    _check_keys(members, _USER_KEYS)
    for policy in _list(members, "policies"):
        if isinstance(policy, dict):
            _check_keys(policy, _POLICY_KEYS)
            _word(PolicyType, policy, "policyType")
            for entry in _list(policy, "entries"):
                _check_entry(entry)
    return read_account(members)


def _check_entry(value: object) -> None:
    if isinstance(value, dict):
        _check_keys(value, _ENTRY_KEYS)
        for one in _list(value, "actions"):
            _word(Action, {"actions": one}, "actions")


def _check_keys(members: Mapping[str, Any], known: set[str]) -> None:
    for key in members:
        if key not in known and not key.startswith("_"):
            raise ChangeRefused(f"{shown(key)} is none of {', '.join(sorted(known))}")


def read_policies(members: Mapping[str, Any]) -> tuple[Policy, ...]:
    """The policies of ``AclInfo``, checked as Java's manager does.

    Raises:
        ChangeRefused: they cannot be used, in Java's words.
    """
    policies = _list(members, "policies")
    if not policies:
        raise ChangeRefused("The policies is empty.")
    return tuple(_policy(one) for one in policies)


def _policy(value: object) -> Policy:
    members = value if isinstance(value, dict) else {}
    entries = _list(members, "entries")
    if not entries:
        raise ChangeRefused("The policy entries is empty.")
    kind = _named(PolicyType, _text(members, "policyType")) or PolicyType.CUSTOM
    return Policy(kind, ()).updated(_entry(one) for one in entries)


def _entry(value: object) -> Entry:
    members = value if isinstance(value, dict) else {}
    key = _text(members, "resource")
    resource = parse_resource(key) if key else None
    if resource is None:
        raise ChangeRefused("The resource is null.")
    actions = tuple(
        action for one in _list(members, "actions")
        if isinstance(one, str) and (action := _named(Action, one)) is not None
    )  # fmt: skip
    if not actions:
        raise ChangeRefused("The actions is empty.")
    if Action.ANY in actions:
        raise ChangeRefused("The actions can not be Any.")
    decision = _named(Decision, _text(members, "decision"))
    source_ips = _list(members, "sourceIps")
    for one in source_ips:
        error = address_error(one)
        if error is not None:
            raise ChangeRefused(error)
    if decision is None:
        raise ChangeRefused("The decision is null or illegal.")
    return Entry(resource, actions, decision, tuple(source_ips))


def user_of(subject: str | None) -> str | None:
    """The user's name of ``User:name``, in any case of letters before the colon; None for others."""
    kind, colon, name = (subject or "").partition(":")
    return name if colon and f"{kind}:".lower() == SUBJECT_PREFIX.lower() and name else None


def _text(members: Mapping[str, Any], name: str) -> str | None:
    value = members.get(name)
    if value is not None and not isinstance(value, str):
        raise ChangeRefused(f"{name} is no text")
    return value


def _named(kind: type[NamedT], text: str | None) -> NamedT | None:
    """The member that is written so, with or without spaces around it."""
    return named(kind, None if text is None else text.strip())


def _word(kind: type[NamedT], members: Mapping[str, Any], name: str) -> NamedT | None:
    """One of some words, in any case of letters; None where there is none."""
    text = _text(members, name)
    if text is None or not text.strip():
        return None
    found = _named(kind, text)
    if found is None:
        raise ChangeRefused(f"{name} {shown(text)} is none of {', '.join(kind)}")
    return found


def _list(members: Mapping[str, Any], name: str) -> list[Any]:
    value = members.get(name) or []
    if not isinstance(value, list):
        raise ChangeRefused(f"{name} is no list")
    return value
