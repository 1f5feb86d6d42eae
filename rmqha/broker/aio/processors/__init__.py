"""Request processors: one class a family of request codes, over one broker.

A processor answers at once by returning a response, or later by sending it on the connection and
returning None. It makes no decision that a pure file next to it could make.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from rmqha.broker.aio.answers import Answers
from rmqha.broker.aio.arrivals import Arrivals
from rmqha.broker.aio.clients import ClientConnections
from rmqha.broker.aio.config_file import FileTroubles
from rmqha.broker.aio.consumer_files import GroupFile, OffsetFile
from rmqha.broker.aio.topics import TopicFile
from rmqha.broker.consumers import ConsumerTable
from rmqha.broker.filters import Selectors
from rmqha.broker.producers import ProducerTable
from rmqha.broker.queue_locks import QueueLocks
from rmqha.broker.replicas import ReplicasCore
from rmqha.broker.settings import BrokerConfig
from rmqha.broker.statistics import Statistics
from rmqha.ha.aio.service import HaService
from rmqha.ha.events import Role
from rmqha.ha.ha_core import HaCore
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.runtime.aio.tasks import Tasks
from rmqha.runtime.ports import Clock
from rmqha.store.aio.message_store import MessageStore

Handler = Callable[[Connection, RemotingCommand], RemotingCommand | None]
Handlers = Mapping[int, Handler]


class Broker(Protocol):
    """What processors see of the broker.

    Attributes:
        ha, ha_core: None before the broker has its id.
        consumers: who consumes, group by group.
        groups: what a group may do.
        offsets: how far groups have come.
        locks: who consumes a queue in order.
        statistics: what was written and read.
        producers: who can be asked about a transaction, or gets a reply.
        clients: the way to ask or tell a client something.
        selectors: of consumers that filter by properties.
        arrivals: who waits for messages of which queue.
        troubles: files that cannot be written now.
        answers: requests whose answers take time.
    """

    config: BrokerConfig
    store: MessageStore
    topics: TopicFile
    replicas: ReplicasCore
    ha: HaService | None
    ha_core: HaCore | None
    consumers: ConsumerTable
    groups: GroupFile
    offsets: OffsetFile
    locks: QueueLocks
    statistics: Statistics
    producers: ProducerTable
    clients: ClientConnections
    selectors: Selectors
    arrivals: Arrivals
    troubles: FileTroubles
    answers: Answers
    clock: Clock
    tasks: Tasks

    @property
    def role(self) -> Role | None:
        """The complete role; None while the broker is fenced."""

    @property
    def near_bytes(self) -> int:
        """How far behind the log's end a message still counts as being in memory."""

    @property
    def lease_facts(self) -> tuple[bool, int] | None:
        """Whether the write lease is held, and how often it was lost; None without one."""

    def topics_changed(self) -> None:
        """Keep the topics, and tell the name servers."""

    def notified(self, request: RemotingCommand) -> None:
        """A controller sent 1008."""


def unwritable(broker: Broker, request: RemotingCommand) -> RemotingCommand | None:
    """The answer to a change while a file of the configuration cannot be written; None if all can.

    A change that only memory holds is gone with the process.
    """
    for path, reason in sorted(broker.troubles.reasons.items()):
        return request.reply(
            ResponseCode.SYSTEM_ERROR, f"nothing is changed: {path} cannot be written: {reason}"
        )
    return None
