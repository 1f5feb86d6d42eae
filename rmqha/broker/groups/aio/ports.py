"""What the rooms from groups on see of the broker: who consumes and produces, and how far groups are."""

from __future__ import annotations

from typing import Protocol

from rmqha.broker.groups.aio.client_connections import ClientConnections
from rmqha.broker.groups.aio.offset_file import OffsetFile
from rmqha.broker.groups.consumers import ConsumerTable
from rmqha.broker.groups.producers import ProducerTable
from rmqha.broker.groups.queue_locks import QueueLocks
from rmqha.broker.topics.aio import ports


class Broker(ports.Broker, Protocol):
    """The floor of groups.

    Attributes:
        consumers: who consumes, group by group.
        producers: who can be asked about a transaction, or gets a reply.
        clients: the way to ask or tell a client something.
        offsets: how far groups have come.
        locks: who consumes a queue in order.
    """

    consumers: ConsumerTable
    producers: ProducerTable
    clients: ClientConnections
    offsets: OffsetFile
    locks: QueueLocks
