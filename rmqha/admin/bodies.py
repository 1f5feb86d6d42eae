"""What brokers answer to mqadmin besides routes and offsets: connections and tables.

Source: ConsumerConnection, ProducerConnection and KVTable, RocketMQ remoting.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from msgspec import Struct

from rmqha.base.errors import RemoteProtocolError
from rmqha.remoting import fastjson
from rmqha.remoting.values import as_array, as_number, as_object, as_text


@contextmanager
def understood(address: str) -> Iterator[None]:
    """What is read and shown here is an answer of this peer, which may have written anything.

    Raises:
        RemoteProtocolError: a member misses, or is not what it has to be.
    """
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise RemoteProtocolError(
            f"the answer of {address} cannot be understood: {type(error).__name__} {error}"
        ) from error


class Client(NamedTuple):
    """A client that is connected to a broker.

    Attributes:
        version: the ordinal of its release.
    """

    id: str
    address: str
    language: str
    version: int


class ConsumerConnection(Struct, frozen=True):
    """The living members of a group.

    Attributes:
        subscriptions: by topic, the tags that it is subscribed to; empty is all.
        expressions: by topic, the text that it subscribed with.
    """

    clients: tuple[Client, ...]
    consume_type: str
    message_model: str
    consume_from_where: str
    subscriptions: Mapping[str, tuple[str, ...]]
    expressions: Mapping[str, str]

    @classmethod
    def decode(cls, body: bytes) -> ConsumerConnection:
        """Read 203's body.

        Raises:
            RemoteProtocolError: not such a body.
        """
        members = as_object(fastjson.loads(body))
        subscriptions = as_object(members.get("subscriptionTable"))
        return cls(
            _clients(members),
            as_text(members.get("consumeType")),
            as_text(members.get("messageModel")),
            as_text(members.get("consumeFromWhere")),
            {
                topic: tuple(map(as_text, as_array(as_object(value).get("tagsSet"))))
                for topic, value in subscriptions.items()
            },
            {
                topic: as_text(as_object(value).get("subString"))
                for topic, value in subscriptions.items()
            },
        )


def decode_producers(body: bytes) -> tuple[Client, ...]:
    """Read 204's body, the living producers of a group.

    Raises:
        RemoteProtocolError: not such a body.
    """
    return _clients(as_object(fastjson.loads(body)))


def _clients(members: Mapping[str, Any]) -> tuple[Client, ...]:
    return tuple(
        Client(
            as_text(one.get("clientId")),
            as_text(one.get("clientAddr")),
            as_text(one.get("language")),
            as_number(one.get("version")),
        )
        for one in map(as_object, as_array(members.get("connectionSet")))
    )


def decode_table(body: bytes) -> dict[str, str]:
    """Read a body that is one map of texts, ``{"table":{..}}``.

    Raises:
        RemoteProtocolError: not such a body.
    """
    table = as_object(as_object(fastjson.loads(body)).get("table"))
    return {name: as_text(value) for name, value in table.items()}
