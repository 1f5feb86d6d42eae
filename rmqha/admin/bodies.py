"""What brokers answer to mqadmin besides routes and offsets: connections and tables.

Source: ConsumerConnection and KVTable, RocketMQ remoting.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from rmqha.remoting import fastjson
from rmqha.remoting.values import as_array, as_number, as_object, as_text


class ConsumerConnection(Struct, frozen=True):
    """The living members of a group.

    Attributes:
        clients: id and release ordinal of each.
        subscriptions: by topic, the tags that it is subscribed to; empty is all.
    """

    clients: tuple[tuple[str, int], ...]
    consume_type: str
    message_model: str
    subscriptions: Mapping[str, tuple[str, ...]]

    @classmethod
    def decode(cls, body: bytes) -> ConsumerConnection:
        """Read 203's body.

        Raises:
            RemoteProtocolError: not such a body.
        """
        members = as_object(fastjson.loads(body))
        connections = map(as_object, as_array(members.get("connectionSet")))
        subscriptions = as_object(members.get("subscriptionTable"))
        return cls(
            tuple(
                (as_text(one.get("clientId")), as_number(one.get("version"))) for one in connections
            ),
            as_text(members.get("consumeType")),
            as_text(members.get("messageModel")),
            {
                topic: tuple(map(as_text, as_array(as_object(value).get("tagsSet"))))
                for topic, value in subscriptions.items()
            },
        )


def decode_table(body: bytes) -> dict[str, str]:
    """Read a body that is one map of texts, ``{"table":{..}}``.

    Raises:
        RemoteProtocolError: not such a body.
    """
    table = as_object(as_object(fastjson.loads(body)).get("table"))
    return {name: as_text(value) for name, value in table.items()}
