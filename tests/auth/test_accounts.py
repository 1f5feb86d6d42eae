"""Users and policies: what bodies may hold, and how changes join what is there."""

from __future__ import annotations

from typing import Any

import pytest

from rmqha.auth.accounts import (
    ENTRIES_MAX,
    Account,
    PolicyType,
    UserStatus,
    UserType,
    read_account,
    read_policies,
    read_user,
    read_written_account,
    user_of,
)
from rmqha.auth.refused import ChangeRefused
from rmqha.auth.resources import parse_resource


def acl(*resources: str, kind: str | None = None, **entry: Any) -> dict[str, Any]:
    """The policies of a body."""
    made = {"actions": ["Pub"], "decision": "Allow", **entry}
    policy: dict[str, Any] = {"entries": [{"resource": one, **made} for one in resources]}
    return {"policies": [policy | ({} if kind is None else {"policyType": kind})]}


def test_user_when_made_then_java_s_defaults() -> None:
    """And names in any case of letters."""
    assert read_user("ann", {"password": "p"}, None) == Account("ann", "p")
    found = read_user("ann", {"password": "p", "userType": "SUPER", "userStatus": "Disable"}, None)
    assert (found.user_type, found.user_status) == (UserType.SUPER, UserStatus.DISABLE)
    changed = read_user("ann", {"userStatus": "enable", "userType": None}, found)
    assert changed == read_user("ann", {"userStatus": "enable", "userType": ""}, found)
    assert changed == Account("ann", "p", UserType.SUPER)


@pytest.mark.parametrize(
    ("name", "members", "remark"),
    [
        ("", {"password": "p"}, "username can not be blank"),
        (" ", {"password": "p"}, "username can not be blank"),
        ("ann", {}, "password can not be blank"),
        ("ann", {"password": " "}, "password can not be blank"),
        ("a" * 256, {"password": "p"}, "a username has at most"),
        ("a\nb", {"password": "p"}, "a username has at most"),
        ("ann", {"password": 7}, "password is no text"),
        ("ann", {"password": "p" * 1025}, "a password has at most"),
        ("ann", {"password": "p", "userStatus": "disabled"}, "userStatus disabled is none of"),
        (
            "ann",
            {"password": "p", "userType": "Supper"},
            "userType Supper is none of Super, Normal",
        ),
    ],
)
def test_user_when_it_cannot_be_then_it_is_refused(
    name: str, members: dict[str, Any], remark: str
) -> None:
    """Before anything is written."""
    with pytest.raises(ChangeRefused, match=remark):
        read_user(name, members, None)


def test_user_when_it_is_changed_by_a_word_that_is_none_then_it_is_refused() -> None:
    """Java says that all went well, and the user goes on."""
    for members in ({"userStatus": "disabled"}, {"userType": "normal user"}):
        with pytest.raises(ChangeRefused, match="is none of"):
            read_user("ann", members, Account("ann", "p"))


@pytest.mark.parametrize(
    ("members", "remark"),
    [
        ({"usertype": "Super"}, "usertype is none of brokerNames, password, policies"),
        ({"userStatus": "off"}, "userStatus off is none of enable, disable"),
        (acl("Topic:T", kind="Defualt"), "policyType Defualt is none of Custom, Default"),
        (acl("Topic:T", actions=["Pub", "Sbu"]), "actions Sbu is none of All"),
        (acl("Topic:T", actions=["Pub", 7]), "actions is no text"),
        (
            acl("Topic:T", sourceIPs=["10.0.0.1"]),
            "sourceIPs is none of actions, decision, resource",
        ),
        ({"policies": [{"entrys": []}]}, "entrys is none of entries, policyType"),
        ({"policies": [7]}, "The policy entries is empty"),
        ({"policies": [{"entries": [7]}]}, "The resource is null"),
    ],
)
def test_file_when_it_has_a_key_or_a_word_that_is_none_then_it_is_refused(
    members: dict[str, Any], remark: str
) -> None:
    """Left out, it could leave a user on whom somebody wanted to switch off."""
    with pytest.raises(ChangeRefused, match=remark):
        read_written_account({"username": "ann", "password": "p", **members})


def test_file_when_it_has_notes_and_spaces_then_it_says_what_it_says() -> None:
    """Older releases took such files; but by them `` disable `` left the user on."""
    policies = acl(
        "Topic:T", kind=" Default ", actions=[" pub", "Sub "], decision=" Deny ", _why="a note"
    )
    policies["policies"][0]["_comment"] = "a note"
    found = read_written_account({
        "_comment": "of the shop", "username": "ann", "password": " p ", "userType": "Super ",
        "userStatus": " disable ", **policies,
    })  # fmt: skip
    assert found == read_account({
        "username": "ann", "password": " p ", "userType": "Super", "userStatus": "disable",
        **acl("Topic:T", kind="Default", actions=["Pub", "Sub"], decision="Deny"),
    })  # fmt: skip


def test_file_when_it_has_what_is_shown_then_it_is_the_same_account() -> None:
    account = read_account({
        "username": "ann", "password": "p", "userStatus": "disable", "brokerNames": ["shop-*"],
        **acl("Topic:T", kind="Default", sourceIps=["10.0.0.1"]),
    })  # fmt: skip
    assert read_written_account(account.members()) == account


@pytest.mark.parametrize(
    ("body", "remark"),
    [
        ({}, "The policies is empty."),
        ({"policies": [{}]}, "The policy entries is empty."),
        ({"policies": [7]}, "The policy entries is empty."),
        (acl("Nothing:x"), "The resource is null."),
        (acl(""), "The resource is null."),
        (acl("Topic:x", actions=[]), "The actions is empty."),
        (acl("Topic:x", actions=["Fly"]), "The actions is empty."),
        (acl("Topic:x", actions=["Any"]), "The actions can not be Any."),
        (acl("Topic:x", sourceIps=["one"]), "The source ip is invalid."),
        (acl("Topic:x", sourceIps=[""]), "The source ip is empty."),
        (acl("Topic:x", sourceIps=["10.0.0.0/33"]), "The source ip is invalid."),
        (acl("Topic:x", decision="Maybe"), "The decision is null or illegal."),
    ],
)
def test_policy_when_it_cannot_be_then_it_is_refused_in_java_s_words(
    body: dict[str, Any], remark: str
) -> None:
    """``AuthorizationMetadataManagerImpl.validate``."""
    with pytest.raises(ChangeRefused, match=remark):
        read_policies(body)


def test_entries_when_changed_then_those_of_the_same_resource_are_replaced() -> None:
    """And a policy without entries is gone."""
    account = Account("ann", "p").with_policies(read_policies(acl("Topic:a", "Topic:b*")))
    account = account.with_policies(read_policies(acl("Topic:a", decision="deny", actions=["SUB"])))
    account = account.with_policies(read_policies(acl("*", kind="Default")))
    assert account.acl_members() == {
        "policies": [
            {
                "entries": [
                    {"actions": ["Sub"], "decision": "Deny", "resource": "Topic:a"},
                    {"actions": ["Pub"], "decision": "Allow", "resource": "Topic:b*"},
                ],
                "policyType": "Custom",
            },
            {
                "entries": [{"actions": ["Pub"], "decision": "Allow", "resource": "*"}],
                "policyType": "Default",
            },
        ],
        "subject": "User:ann",
    }
    assert read_account(account.members()) == account
    left = account.without_policies(PolicyType.CUSTOM, parse_resource("Topic:a"))
    assert [len(one.entries) for one in left.policies] == [1, 1]
    left = left.without_policies(PolicyType.CUSTOM, parse_resource("Topic:b*"))
    assert [one.kind for one in left.policies] == [PolicyType.DEFAULT]
    assert left.without_policies(PolicyType.CUSTOM, None).policies == ()


def test_entries_when_there_are_too_many_then_no_more_are_taken() -> None:
    """Every request is compared to all of them."""
    names = [f"Topic:t{number}" for number in range(ENTRIES_MAX)]
    account = Account("ann", "p").with_policies(read_policies(acl(*names)))
    with pytest.raises(ChangeRefused, match="at most 1000"):
        account.with_policies(read_policies(acl("Topic:more")))
    assert account.with_policies(read_policies(acl("Topic:t0"))) == account


def test_subject_when_it_is_no_user_then_there_is_none() -> None:
    """The kind is read in any case of letters."""
    assert user_of("User:ann") == user_of("user:ann") == "ann"
    assert user_of("User:a:b") == "a:b"
    assert [user_of(one) for one in ("ann", "User:", "Role:x", None, "")] == [None] * 5
