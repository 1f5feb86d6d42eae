"""A plain_acl.yml of ACL 1.0 becomes users with policies."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.auth.accounts import UserType, read_account
from rmqha.auth.decide import check_allowed
from rmqha.auth.plain_acl import read_plain_acl
from rmqha.auth.refused import Refused
from rmqha.auth.resources import Action, Resource, group, topic
from rmqha.base.errors import ConfigInvalid

FILE = """
globalWhiteRemoteAddresses:
  - 10.10.103.*
accounts:
  - accessKey: RocketMQ
    secretKey: 12345678
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - topicA=DENY
      - topicB=PUB|SUB
      - topicC=SUB
      - topicD=ANY
      - topicE=FLY
    groupPerms:
      - groupA=DENY
      - groupB=PUB|SUB
  - accessKey: rocketmq2
    secretKey: secret-of-two
    whiteRemoteAddress: 192.168.1.*
    admin: true
  - accessKey: RocketMQ
    secretKey: another
"""


def test_file_when_read_then_users_may_what_they_might() -> None:
    """What 4.9.8's file says of PUB, SUB, DENY and ANY, for topics, groups and the rest."""
    found = read_plain_acl(FILE)
    first, second = found.accounts
    assert (first.name, first.password, first.user_type) == (
        "RocketMQ", "12345678", UserType.NORMAL,
    )  # fmt: skip
    assert (second.name, second.is_super, second.policies) == ("rocketmq2", True, ())
    assert found.left_out == ("globalWhiteRemoteAddresses", "whiteRemoteAddress of rocketmq2")

    def may(resource: Resource) -> str:
        allowed = []
        for action in (Action.PUB, Action.SUB, Action.GET):
            try:
                check_allowed(first, resource, (action,), "10.0.0.1")
            except Refused:
                continue
            allowed.append(str(action))
        return " ".join(allowed)

    assert [may(topic(f"topic{one}")) for one in "ABCDEF"] == [
        "", "Pub Sub", "Sub", "Pub Sub Get", "", "",
    ]  # fmt: skip
    assert [may(group(f"group{one}")) for one in "ABC"] == ["", "Pub Sub", "Sub"]


@pytest.mark.parametrize(
    "text",
    [
        "accounts: 7",
        "- a\n- b",
        "accounts: [7]",
        "accounts:\n - accessKey: x",
        "accounts:\n - secretKey: x",
        "accounts: [",
        "accounts: !!python/object/apply:os.system ['true']",
        "accounts:\n - {accessKey: a, secretKey: b, topicPerms: {x: y}}",
    ],
)
def test_file_when_it_is_none_then_the_broker_does_not_start(text: str) -> None:
    """Nobody is let in, or kept out, by half a file."""
    with pytest.raises(ConfigInvalid):
        read_plain_acl(text)


def test_file_when_it_is_empty_then_there_are_no_users() -> None:
    """As Java's own first one is."""
    assert read_plain_acl("").accounts == ()


def yaml_file(key: str, secret: str = "12345678", **more: str) -> str:
    """A file with one account, its values written as given."""
    members = {"accessKey": key, "secretKey": secret, **more}
    return "accounts:\n  - {" + ", ".join(f"{name}: {it}" for name, it in members.items()) + "}\n"


@pytest.mark.parametrize(
    "scalar",
    [
        "01234567", "0x12345678", "1234_5678", "12345678.10", "1e10", "0b1010", ".inf", "yes", "True",
        "2001-99-99", "2001-12-14", "1:20:30:40", "=",
    ],
)  # fmt: skip
def test_key_when_yaml_reads_more_into_it_then_it_is_as_it_stands_in_the_file(scalar: str) -> None:
    """Java's fields are strings: who signs with what the file shows must be let in."""
    (account,) = read_plain_acl(yaml_file(scalar, scalar)).accounts
    assert (account.name, account.password) == (scalar, scalar)


@pytest.mark.parametrize(
    ("word", "is_super"),
    [
        ("true", True), ("True", True), ("TRUE", True), ("yes", True), ("On", True),
        ('"true"', True), ("'yes'", True),
        ("false", False), ('"false"', False), ("no", False), ("off", False), ("1", False),
        ("~", False), ('""', False), ("[true]", False),
    ],
)  # fmt: skip
def test_admin_when_it_is_a_word_of_yaml_for_true_then_the_user_is_super(
    word: str, is_super: bool
) -> None:
    """Quoted or not, as where a field of Java's is a boolean; every other word gives nothing."""
    (account,) = read_plain_acl(yaml_file("somebody", admin=word)).accounts
    assert account.is_super is is_super


@pytest.mark.parametrize("word", ["", "~", "null", "Null"])
def test_value_when_it_is_none_then_it_counts_as_left_out(word: str) -> None:
    """As where the key is not there: such a word is nobody's password."""
    more = {"whiteRemoteAddress": word, "defaultTopicPerm": word, "topicPerms": word}
    found = read_plain_acl(yaml_file("somebody", **more))
    assert (found.left_out, found.accounts[0].policies) == ((), ())
    with pytest.raises(ConfigInvalid, match="password"):
        read_plain_acl(yaml_file("somebody", word))


def test_accounts_when_they_share_members_then_each_has_them() -> None:
    """Merge keys are YAML 1.1, and Java's reader knows them."""
    text = (
        "accounts:\n  - &first {accessKey: one-user, secretKey: 12345678, admin: true}\n"
        "  - {<<: *first, accessKey: two-user}\n"
    )
    first, second = read_plain_acl(text).accounts
    assert (second.name, second.password, second.is_super) == ("two-user", first.password, True)


@pytest.mark.costly
@pytest.mark.parametrize(
    "text",
    ["[" * 5000, "a: !!timestamp 2001-99-99", "accounts: !!int x", "\x01", "a: &a [*a]\n<<: 7"],
)
def test_file_when_no_reader_can_take_it_then_that_is_said(text: str) -> None:
    """What its reader raises is not always an error of YAML's."""
    with pytest.raises(ConfigInvalid):
        read_plain_acl(text)


def test_name_when_it_has_an_asterisk_then_it_is_left_out_and_named() -> None:
    """ACL 1.0 means that very name, which nothing has; written down as a user's it means them all."""
    text = (
        "accounts:\n  - {accessKey: somebody, secretKey: 12345678, topicPerms: ['*=PUB|SUB',"
        " 'ord*=PUB', orders=PUB, '%RETRY%*=SUB'], groupPerms: ['a*b=DENY', readers=SUB]}\n"
    )
    found = read_plain_acl(text)
    (policy,) = found.accounts[0].policies
    assert [one.resource.key for one in policy.entries] == ["Topic:orders", "Group:readers"]
    assert found.left_out == (
        "topicPerms *=PUB|SUB of somebody", "topicPerms ord*=PUB of somebody",
        "topicPerms %RETRY%*=SUB of somebody", "groupPerms a*b=DENY of somebody",
    )  # fmt: skip
    (alone,) = read_plain_acl(yaml_file("somebody", topicPerms="['*=PUB']")).accounts
    assert alone.policies == ()


@pytest.mark.costly
@given(st.lists(st.text(st.sampled_from("ab*:%|. -"), max_size=5), max_size=4))
def test_account_when_it_is_written_down_and_read_then_it_may_the_same(names: list[str]) -> None:
    """Records and files keep an account as text: no name becomes a pattern on the way."""
    lines = [f"{name}=PUB" for name in names]
    more = {key: json.dumps(lines) for key in ("topicPerms", "groupPerms")}
    (account,) = read_plain_acl(yaml_file("somebody", **more, defaultTopicPerm="SUB")).accounts
    assert read_account(account.members()) == account
