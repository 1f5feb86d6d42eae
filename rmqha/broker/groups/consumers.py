"""Consumer groups: who belongs to them, what they subscribe to, and when members must be told.

Source: ConsumerManager, ConsumerGroupInfo and SubscriptionData of RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from msgspec import Struct, field

from rmqha.base.errors import RemoteProtocolError
from rmqha.base.ids import ConnectionId
from rmqha.broker.common.json_members import (
    boolean,
    json_array,
    json_object,
    number,
    text,
    whole_number,
)
from rmqha.broker.groups.memberships import Client, Memberships
from rmqha.remoting.topic_names import BROADCASTING
from rmqha.store import properties as props

TAG = "TAG"
ALL_TAGS = "*"
PARSE_FAILED = "parse the consumer's subscription failed"
SUBSCRIPTIONS_MAX = 10_000
"""Topics of one group, and tags of one subscription."""


class Subscription(Struct, frozen=True):
    """What a group wants of one topic.

    Attributes:
        hashes: of the wanted tags; None takes every message.
    """

    topic: str
    sub_string: str = ALL_TAGS
    sub_version: int = 0
    expression_type: str = TAG
    tags: tuple[str, ...] = ()
    codes: tuple[int, ...] = ()
    class_filter_mode: bool = False
    hashes: frozenset[int] | None = None

    @property
    def wants_nothing(self) -> bool:
        """Whether no message can match, as for ``||``; a group would be moved past all there are."""
        return self.expression_type == TAG and self.hashes is not None and not self.hashes

    def members(self) -> dict[str, Any]:
        """The JSON members."""
        return {
            "classFilterMode": self.class_filter_mode,
            "codeSet": list(self.codes),
            "expressionType": self.expression_type,
            "subString": self.sub_string,
            "subVersion": self.sub_version,
            "tagsSet": list(self.tags),
            "topic": self.topic,
        }

    @classmethod
    def of(cls, value: object) -> Subscription:
        """Read the JSON members; raises RemoteProtocolError."""
        members = json_object(value, "a subscription")
        tags = json_array(members.get("tagsSet"), "tagsSet")
        codes = json_array(members.get("codeSet"), "codeSet")
        if len(tags) > SUBSCRIPTIONS_MAX or len(codes) > SUBSCRIPTIONS_MAX:
            raise RemoteProtocolError(f"a subscription with more than {SUBSCRIPTIONS_MAX} tags")
        if not all(isinstance(tag, str) for tag in tags):
            raise RemoteProtocolError("tagsSet holds other than texts")
        codes = [whole_number(code, "codeSet's item") for code in codes]
        found = subscription(
            text(members, "topic"),
            text(members, "subString", ALL_TAGS),
            text(members, "expressionType", TAG),
            number(members, "subVersion", 0),
        )
        # A client's own hashes count, as in Java; one that sends none has tags at least.
        hashes = frozenset(codes) if found.hashes is not None and codes else found.hashes
        return cls(
            found.topic, found.sub_string, found.sub_version, found.expression_type,
            tuple(tags), tuple(codes), boolean(members, "classFilterMode", default=False), hashes,
        )  # fmt: skip


def subscription(
    topic: str, expression: str | None, expression_type: str = TAG, version: int = 0
) -> Subscription:
    """What a text like ``a || b`` asks for."""
    sub_string = (expression or ALL_TAGS).strip() or ALL_TAGS
    if expression_type != TAG or sub_string == ALL_TAGS:
        return Subscription(topic, sub_string, version, expression_type)
    tags = tuple(dict.fromkeys(tag.strip() for tag in sub_string.split("||") if tag.strip()))
    codes = tuple(dict.fromkeys(props.java_hash(tag) for tag in tags))
    return Subscription(
        topic, sub_string, version, expression_type, tags, codes, hashes=frozenset(codes)
    )


class ConsumerData(Struct, frozen=True):
    """A group as one of its members describes it in a heartbeat."""

    group: str
    consume_type: str
    message_model: str
    consume_from_where: str
    subscriptions: tuple[Subscription, ...]
    unit_mode: bool = False

    @classmethod
    def of(cls, value: object) -> ConsumerData:
        """Read the JSON members; raises RemoteProtocolError."""
        members = json_object(value, "consumer data")
        wanted = json_array(members.get("subscriptionDataSet"), "subscriptionDataSet")
        if len(wanted) > SUBSCRIPTIONS_MAX:
            raise RemoteProtocolError(f"more than {SUBSCRIPTIONS_MAX} subscriptions")
        return cls(
            text(members, "groupName"),
            text(members, "consumeType", "CONSUME_PASSIVELY"),
            text(members, "messageModel", "CLUSTERING"),
            text(members, "consumeFromWhere", "CONSUME_FROM_LAST_OFFSET"),
            tuple(Subscription.of(one) for one in wanted),
            boolean(members, "unitMode", default=False),
        )


class ConsumerGroup(Struct):
    """What the members of a group have agreed on; the newest heartbeat counts.

    Attributes:
        subscriptions: by topic.
        fingerprints: of the last full heartbeat, by connection: only for these may a later one
            leave its subscriptions out.
        client_ids: of its members, sorted; None since somebody joined or left.
    """

    name: str
    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = "CLUSTERING"
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    fingerprints: dict[ConnectionId, int] = field(default_factory=dict)
    client_ids: list[str] | None = None

    @property
    def is_broadcasting(self) -> bool:
        """Every member gets every message, so that members do not share queues."""
        return self.message_model == BROADCASTING


class Registered(NamedTuple):
    """What a heartbeat did to a group.

    Attributes:
        refused: there was no room.
        changed: members share queues anew and must be told.
        unknown: the heartbeat left out subscriptions that this broker does not have.
    """

    refused: bool
    changed: bool
    unknown: bool


class ConsumerTable:
    """The consumers that are connected to this broker.

    Args:
        memberships_max: see ``Memberships``.
    """

    def __init__(self, memberships_max: int) -> None:
        self._members = Memberships(memberships_max)
        self._groups: dict[str, ConsumerGroup] = {}

    @property
    def groups(self) -> list[str]:
        """The groups that have a consumer, sorted."""
        return sorted(self._groups)

    def get(self, group: str) -> ConsumerGroup | None:
        """A group that has a consumer."""
        return self._groups.get(group)

    def clients(self, group: str) -> list[Client]:
        """A group's consumers, oldest first."""
        return self._members.clients(group)

    def size(self, group: str) -> int:
        """How many consumers a group has."""
        return self._members.size(group)

    def client_ids(self, group_name: str) -> list[str]:
        """The ids that queues are shared among; every member must get the same list."""
        group = self._groups.get(group_name)
        if group is None:
            return []
        if group.client_ids is None:
            group.client_ids = sorted({client.client_id for client in self.clients(group_name)})
        return group.client_ids

    def find(self, group: str, client_id: str) -> Client | None:
        """The newest connection of a member."""
        found = [client for client in self.clients(group) if client.client_id == client_id]
        return max(found, key=lambda client: client.connection, default=None)

    def groups_of_topic(self, topic: str) -> list[str]:
        """The groups with a consumer that subscribes to a topic, sorted."""
        return [name for name in self.groups if topic in self._groups[name].subscriptions]

    def register(
        self, now_ms: int, client: Client, data: ConsumerData, *, fingerprint: int = 0
    ) -> Registered:
        """Take a full heartbeat."""
        connection = client.connection
        if not self._members.has_room(data.group, connection):
            return Registered(refused=True, changed=False, unknown=False)
        before = self._members.get(data.group, connection)
        joined = self._members.put(now_ms, data.group, client)
        group = self._groups.setdefault(data.group, ConsumerGroup(data.group))
        group.consume_type = data.consume_type
        group.message_model = data.message_model
        group.consume_from_where = data.consume_from_where
        group.fingerprints[connection] = fingerprint
        if before is None or before.client_id != client.client_id:
            group.client_ids = None
        changed = self._subscribe(group, data.subscriptions)
        return Registered(
            refused=False, changed=(joined or changed) and not group.is_broadcasting, unknown=False
        )

    def renew(self, now_ms: int, client: Client, group_name: str, fingerprint: int) -> Registered:
        """Take a heartbeat that says only "as before": true while this broker knows of before."""
        group = self._groups.get(group_name)
        known = group is not None and group.fingerprints.get(client.connection) == fingerprint
        if known:
            self._members.put(now_ms, group_name, client)
        return Registered(refused=False, changed=False, unknown=not known)

    def _subscribe(self, group: ConsumerGroup, wanted: tuple[Subscription, ...]) -> bool:
        """Whether the topics have become others."""
        before = group.subscriptions
        after: dict[str, Subscription] = {}
        for one in wanted:
            old = before.get(one.topic)
            # Members that joined at different times differ in nothing but the version.
            newer = old is None or one.sub_version > old.sub_version
            after[one.topic] = one if newer or old is None else old
        group.subscriptions = after
        return before.keys() != after.keys()

    def unregister(self, group_name: str, connection: ConnectionId) -> bool:
        """A consumer leaves; whether the others must be told."""
        if self._members.drop(group_name, connection) is None:
            return False
        group = self._groups[group_name]
        group.fingerprints.pop(connection, None)
        group.client_ids = None
        if not self._members.size(group_name):
            del self._groups[group_name]
            return False
        return not group.is_broadcasting

    def closed(self, connection: ConnectionId) -> list[str]:
        """A connection has ended; returns the groups whose other members must be told."""
        groups = self._members.groups_of(connection)
        return [group for group in groups if self.unregister(group, connection)]

    def expire(self, now_ms: int, count_max: int) -> tuple[list[ConnectionId], list[str]]:
        """Forget so many of the silent; returns connections to close, and groups whose members must be
        told."""
        silent = self._members.expired(now_ms, count_max)
        told = [group for connection, group in silent if self.unregister(group, connection)]
        connections = list(dict.fromkeys(connection for connection, _ in silent))
        return connections, list(dict.fromkeys(told))
