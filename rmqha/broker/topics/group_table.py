"""Subscription groups: what a group may do, kept in ``config/subscriptionGroup.json``.

Source: SubscriptionGroupManager and SubscriptionGroupConfig of RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from rmqha.base.errors import RemoteProtocolError
from rmqha.base.ids import MASTER_ID
from rmqha.broker.common.json_members import boolean, json_object, number, text
from rmqha.broker.common.refusal import Refusal
from rmqha.broker.common.versioned_table import COUNT_MAX, VersionedTable
from rmqha.broker.topics.topic_table import DataVersion
from rmqha.remoting import fastjson
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.topic_names import RETRY_PREFIX
from rmqha.store.consume_queue import FOLDER_NAME_MAX

GROUP_LENGTH_MAX = FOLDER_NAME_MAX - len(RETRY_PREFIX)
"""So that its retry topic can have a folder; Java lets clients make groups of up to 255."""
RETRY_QUEUES_MAX = 1024
SYSTEM_PREFIX = "CID_RMQ_SYS_"
OWN_GROUPS = frozenset({f"{SYSTEM_PREFIX}REVIVE_GROUP", f"{SYSTEM_PREFIX}TRANS"})
"""Under these names a broker's own services keep their positions: nobody else may move them. Others
with the prefix are free, and clients use them, as those of RocketMQ's MQTT do."""

FIRST_SLAVE_ID = 1

_GROUP = re.compile(r"[%|a-zA-Z0-9_-]+")
_SYSTEM_GROUPS = (
    ("TOOLS_CONSUMER", True), ("FILTERSRV_CONSUMER", True), ("SELF_TEST_C_GROUP", True),
    ("CID_ONS-HTTP-PROXY", True), ("CID_ONSAPI_PULL", True), ("CID_ONSAPI_PERMISSION", True),
    ("CID_ONSAPI_OWNER", True), ("CID_RMQ_SYS_TRANS", True),
)  # fmt: skip


class GroupConfig(Struct, frozen=True):
    """The configuration of one subscription group.

    Attributes:
        broker_id: where the group reads while it keeps up; 0 is the master.
        which_broker_when_consume_slowly: where it reads while it is far behind.
        retry_max_times: deliveries before a message goes to the dead letters.
        retry_policy: as the operator wrote it; clients of pop mode use it.
        more: members that newer releases added, kept as they came.
    """

    name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    retry_policy: Mapping[str, Any] = field(default_factory=lambda: {"type": "CUSTOMIZED"})
    broker_id: int = MASTER_ID
    which_broker_when_consume_slowly: int = FIRST_SLAVE_ID
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: int = 0
    consume_timeout_minute: int = 15
    attributes: Mapping[str, str] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def retry_topic(self) -> str:
        """Where messages go that a member could not handle."""
        return RETRY_PREFIX + self.name

    def members(self) -> dict[str, Any]:
        """The JSON members, under Java's names."""
        return {
            **self.more,
            "attributes": dict(self.attributes),
            "brokerId": self.broker_id,
            "consumeBroadcastEnable": self.consume_broadcast_enable,
            "consumeEnable": self.consume_enable,
            "consumeFromMinEnable": self.consume_from_min_enable,
            "consumeMessageOrderly": self.consume_message_orderly,
            "consumeTimeoutMinute": self.consume_timeout_minute,
            "groupName": self.name,
            "groupRetryPolicy": dict(self.retry_policy),
            "groupSysFlag": self.group_sys_flag,
            "notifyConsumerIdsChangedEnable": self.notify_consumer_ids_changed_enable,
            "retryMaxTimes": self.retry_max_times,
            "retryQueueNums": self.retry_queue_nums,
            "whichBrokerWhenConsumeSlowly": self.which_broker_when_consume_slowly,
        }

    @classmethod
    def of(cls, value: object) -> GroupConfig:
        """Read the JSON members; what misses has Java's default. Raises RemoteProtocolError.

        Any name is taken: Java's 200 checks none, and a table is read with all of its groups.
        """
        members = json_object(value, "a subscription group")
        attributes = json_object(members.get("attributes") or {}, "attributes")
        policy = members.get("groupRetryPolicy") or {"type": "CUSTOMIZED"}
        queues = number(members, "retryQueueNums", 1)
        if not 0 <= queues <= RETRY_QUEUES_MAX:
            raise RemoteProtocolError(f"retryQueueNums={queues} is not from 0 to 1024")
        found = cls(
            name=text(members, "groupName"),
            consume_enable=boolean(members, "consumeEnable", default=True),
            consume_from_min_enable=boolean(members, "consumeFromMinEnable", default=True),
            consume_broadcast_enable=boolean(members, "consumeBroadcastEnable", default=True),
            consume_message_orderly=boolean(members, "consumeMessageOrderly", default=False),
            retry_queue_nums=queues,
            retry_max_times=number(members, "retryMaxTimes", 16),
            retry_policy=json_object(policy, "groupRetryPolicy"),
            broker_id=number(members, "brokerId", MASTER_ID),
            which_broker_when_consume_slowly=number(
                members, "whichBrokerWhenConsumeSlowly", FIRST_SLAVE_ID
            ),
            notify_consumer_ids_changed_enable=boolean(
                members, "notifyConsumerIdsChangedEnable", default=True
            ),
            group_sys_flag=number(members, "groupSysFlag", 0),
            consume_timeout_minute=number(members, "consumeTimeoutMinute", 15),
            attributes={str(key): str(one) for key, one in attributes.items()},
            more={k: v for k, v in members.items() if k not in _NAMES},
        )
        if not found.name.strip():
            raise RemoteProtocolError("the group is blank")
        return found


_NAMES = frozenset(GroupConfig("g").members())


def group_error(name: str) -> str | None:
    """Why no new group can have this name; None when one can."""
    if not name.strip():
        return "the group is blank"
    if not _GROUP.fullmatch(name):
        return f"group {name!r} holds other than letters, digits and %|_-"
    if len(name) > GROUP_LENGTH_MAX:
        return f"the group is longer than {GROUP_LENGTH_MAX}"
    return None


def changed_group(old: GroupConfig | None, wanted: GroupConfig) -> GroupConfig | Refusal:
    """What a group is after 200 or 225.

    Its attributes stay: RocketMQ 5.3.3 has a language to change them, and none that there is.

    Args:
        old: None for a new one.
    """
    error = group_error(wanted.name) if old is None else None
    if error is not None:
        return Refusal(ResponseCode.INVALID_PARAMETER, error)
    attributes = {} if old is None else old.attributes
    if wanted.attributes and wanted.attributes != attributes:
        name = next(iter(wanted.attributes)).lstrip("+-")
        return Refusal(ResponseCode.SYSTEM_ERROR, f"unsupported key: {name}")
    return replace(wanted, attributes=attributes)


class GroupTable(VersionedTable[GroupConfig]):
    """All subscription groups of one broker.

    Attributes:
        groups: by name.
        forbidden: Java's table of what a group must not do to a topic, kept as it came.
    """

    def __init__(
        self,
        groups: Iterable[GroupConfig] = (),
        version: DataVersion | None = None,
        forbidden: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(groups, version, _json_bytes)
        self.groups = self.items
        self.forbidden: Mapping[str, Any] = forbidden or {}

    def members(self) -> dict[str, Any]:
        """``config/subscriptionGroup.json``, and the answer to 201."""
        return {
            "dataVersion": self.version.members(),
            "forbiddenTable": dict(self.forbidden),
            "subscriptionGroupTable": self.item_members(),
        }

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> GroupTable:
        """Read the file or the answer to 201; raises RemoteProtocolError."""
        table = json_object(value.get("subscriptionGroupTable") or {}, "the group table")
        if len(table) > COUNT_MAX:
            raise RemoteProtocolError(f"more than {COUNT_MAX} subscription groups")
        forbidden = json_object(value.get("forbiddenTable") or {}, "forbiddenTable")
        groups = [GroupConfig.of(group) for group in table.values()]
        return cls(groups, DataVersion.of(value.get("dataVersion") or {}), forbidden)


def _json_bytes(group: GroupConfig) -> int:
    """How long a group's member of the table is, at most."""
    own = (group.attributes, group.retry_policy, group.more)
    return 480 + 2 * len(group.name) + sum(len(fastjson.dumps(dict(one))) for one in own if one)


def own_group_refusal(name: str) -> Refusal | None:
    """Why a client may not move a group's offsets, or pop for it."""
    if name not in OWN_GROUPS:
        return None
    return Refusal(ResponseCode.NO_PERMISSION, f"the offsets of {name} are the broker's own")


def system_groups() -> list[GroupConfig]:
    """The groups that every broker has from its start."""
    return [
        GroupConfig(name, consume_broadcast_enable=broadcast) for name, broadcast in _SYSTEM_GROUPS
    ]
