"""What one record of the log's internal topic says (ADR 0022): topics, mappings, groups, accounts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import MsgspecError, Raw, Struct
from msgspec.json import Decoder
from orjson import Fragment

from rmqha.auth.accounts import Account
from rmqha.base.errors import RemoteProtocolError
from rmqha.broker.common.json_members import json_object
from rmqha.broker.topics.account_table import account_of
from rmqha.broker.topics.group_table import GroupConfig
from rmqha.broker.topics.topic_table import TopicConfig
from rmqha.remoting import fastjson
from rmqha.remoting.topic_names import topic_error
from rmqha.statictopic.mapping import TopicQueueMappingDetail
from rmqha.statictopic.mapping_body import decode_detail, encode_detail
from rmqha.statictopic.rules import detail_error
from rmqha.store.consume_queue import name_error

_PARTS = Decoder(dict[str, Raw])
_LIST = Decoder(list[Raw])


class Change(Struct, frozen=True, kw_only=True):
    """What one record says; all of it, or nothing.

    Attributes:
        topics, mappings, groups, accounts: made, or replaced.
        ended_topics: deleted, with their mappings, their queues and what groups have stored of them.
        ended_groups: deleted.
        forgotten_groups: of which all stored offsets are deleted.
        ended_accounts: deleted.
    """

    topics: tuple[TopicConfig, ...] = ()
    mappings: tuple[TopicQueueMappingDetail, ...] = ()
    groups: tuple[GroupConfig, ...] = ()
    ended_topics: tuple[str, ...] = ()
    ended_groups: tuple[str, ...] = ()
    forgotten_groups: tuple[str, ...] = ()
    accounts: tuple[Account, ...] = ()
    ended_accounts: tuple[str, ...] = ()

    def encode(self) -> bytes:
        """The record's body."""
        members = {
            "topics": [topic.members() for topic in self.topics],
            "mappings": [Fragment(encode_detail(mapping)) for mapping in self.mappings],
            "groups": [group.members() for group in self.groups],
            "endedTopics": list(self.ended_topics),
            "endedGroups": list(self.ended_groups),
            "forgottenGroups": list(self.forgotten_groups),
            "accounts": [account.members() for account in self.accounts],
            "endedAccounts": list(self.ended_accounts),
        }
        return fastjson.dumps({name: value for name, value in members.items() if value})

    @classmethod
    def decode(cls, body: bytes) -> Change:
        """Read a record's body; what a newer release adds is passed over.

        Raises:
            RemoteProtocolError: no broker of this kind wrote it.
        """
        members = _members(body)
        topics = tuple(TopicConfig.of(one) for one in _items(members, "topics"))
        for topic in topics:
            # Java makes topics that it would let nobody else make: %RETRY%group+topic, and the
            # retry topics of groups whose names its 200 does not check.
            error = name_error(topic.name.encode("utf-8", "surrogatepass"))
            if error is not None:
                raise RemoteProtocolError(error)
        mappings = tuple(map(_mapping, _items(members, "mappings")))
        for mapping in mappings:
            error = topic_error(mapping.topic) or detail_error(mapping)
            if error is not None:
                raise RemoteProtocolError(error)
        return cls(
            topics=topics,
            mappings=mappings,
            groups=tuple(GroupConfig.of(one) for one in _items(members, "groups")),
            ended_topics=_names(members, "endedTopics"),
            ended_groups=_names(members, "endedGroups"),
            forgotten_groups=_names(members, "forgottenGroups"),
            accounts=tuple(account_of(one) for one in _items(members, "accounts")),
            ended_accounts=_names(members, "endedAccounts"),
        )


def _members(body: bytes) -> dict[str, Any]:
    """What a record holds; mappings, which may be long, are left as they are where that can be."""
    try:
        raw = _PARTS.decode(body)
        mappings = _LIST.decode(raw.pop("mappings", b"[]"))
        return {
            "mappings": mappings,
            **{name: fastjson.loads(bytes(one)) for name, one in raw.items()},
        }
    except (MsgspecError, UnicodeDecodeError, RecursionError):
        return json_object(fastjson.loads(body), "a change of metadata")


def _mapping(value: object) -> TopicQueueMappingDetail:
    if isinstance(value, Raw):
        return decode_detail(bytes(value))
    return TopicQueueMappingDetail.of(value)


def _items(members: Mapping[str, Any], name: str) -> list[Any]:
    found = members.get(name) or []
    if not isinstance(found, list):
        raise RemoteProtocolError(f"{name} of a change of metadata is no list")
    return found


def _names(members: Mapping[str, Any], name: str) -> tuple[str, ...]:
    found = _items(members, name)
    if not all(isinstance(one, str) for one in found):
        raise RemoteProtocolError(f"{name} of a change of metadata holds other than names")
    return tuple(found)
