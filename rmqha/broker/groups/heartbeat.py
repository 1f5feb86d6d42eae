"""The body of request 34, read whole before any of it counts.

Source: HeartbeatData and ClientManageProcessor of RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

from msgspec import Struct

from rmqha.base.errors import RemoteProtocolError
from rmqha.broker.common.json_members import (
    boolean,
    json_array,
    json_object,
    number,
    read_object,
    text,
)
from rmqha.broker.groups.consumers import ConsumerData

GROUPS_MAX = 10_000
"""Groups that one client may speak for."""


class Heartbeat(Struct, frozen=True):
    """A client's life sign.

    Attributes:
        fingerprint: of the subscriptions; 0 from clients that always send them.
        without_sub: the subscriptions are left out, being those of the last full heartbeat.
    """

    client_id: str
    producers: tuple[str, ...]
    consumers: tuple[ConsumerData, ...]
    fingerprint: int
    without_sub: bool

    @classmethod
    def decode(cls, body: bytes) -> Heartbeat:
        """Read a body; raises RemoteProtocolError when any part of it is malformed."""
        members = read_object(body, "a heartbeat")
        producers = json_array(members.get("producerDataSet"), "producerDataSet")
        consumers = json_array(members.get("consumerDataSet"), "consumerDataSet")
        if len(producers) + len(consumers) > GROUPS_MAX:
            raise RemoteProtocolError(f"a heartbeat for more than {GROUPS_MAX} groups")
        return cls(
            text(members, "clientID"),
            tuple(text(json_object(one, "producer data"), "groupName") for one in producers),
            tuple(ConsumerData.of(one) for one in consumers),
            number(members, "heartbeatFingerprint", 0),
            boolean(members, "withoutSub", default=False),
        )
