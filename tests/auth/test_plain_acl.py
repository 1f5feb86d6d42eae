"""A plain_acl.yml of ACL 1.0 becomes users with policies."""

from __future__ import annotations

import pytest

from rmqha.auth.accounts import UserType
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
