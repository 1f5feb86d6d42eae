"""Request processors: one class a family of request codes, over one broker.

A processor answers at once by returning a response, or later by sending it on the connection and
returning None. It makes no decision that a pure file next to it could make.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from rmqha.broker.common.aio.answers import Answers
from rmqha.broker.common.aio.config_file import APPLIED_OFFSET, FileTroubles
from rmqha.broker.common.refusal import Refusal
from rmqha.broker.common.settings import BrokerConfig
from rmqha.broker.common.statistics import Statistics
from rmqha.broker.groups.aio.client_connections import ClientConnections
from rmqha.broker.groups.aio.files import GroupFile, OffsetFile
from rmqha.broker.groups.consumers import ConsumerTable
from rmqha.broker.groups.producers import ProducerTable
from rmqha.broker.groups.queue_locks import QueueLocks
from rmqha.broker.membership.core import ReplicasCore
from rmqha.broker.pull.aio.arrivals import Arrivals
from rmqha.broker.pull.filters import Selectors
from rmqha.broker.topics.aio.topic_file import TopicFile
from rmqha.broker.topics.metadata import Change
from rmqha.broker.topics.topic_table import TopicConfig
from rmqha.ha.aio.service import HaService
from rmqha.ha.events import Role
from rmqha.ha.ha_core import HaCore
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import text_field
from rmqha.runtime.aio.tasks import Tasks
from rmqha.runtime.ports import Clock
from rmqha.store.aio.message_store import MessageStore

TABLE_FIELD = "rmqhaTable"
"""Of requests 21 and 201: ``known`` or ``wanted``, whether the slave's table follows the log."""

TABLE_KNOWN, TABLE_WANTED = "known", "wanted"

Handler = Callable[[Connection, RemotingCommand], RemotingCommand | None]
Handlers = Mapping[int, Handler]


class MetadataChanges(Protocol):
    """Changes of topics and groups, as records of the log (``aio/metadata.py``)."""

    def commit(self, change: Change) -> int | Refusal:
        """Write a change; where its record ends, or why nothing is changed."""

    def change(
        self, connection: Connection, request: RemotingCommand, change: Change,
        followed: Callable[[], Awaitable[None]] = ...,
    ) -> RemotingCommand | None:  # fmt: skip
        """Answer a request once its change is as safe as messages are, or surely is not."""

    def is_ending(self, topic: str) -> bool:
        """Whether a topic is being deleted."""

    def make_topic(self, topic: TopicConfig) -> TopicConfig | None:
        """Make a topic that misses; what it is now, None when it cannot be made."""

    def topic_members(self) -> dict[str, Any]:
        """The topics that are in the log for good, for a slave of this kind."""

    def group_members(self) -> dict[str, Any]:
        """The groups that are in the log for good, for a slave of this kind."""

    @property
    def topics_applied(self) -> int:
        """Records of the log that begin before are in the topics."""

    @property
    def groups_applied(self) -> int:
        """Records of the log that begin before are in the groups."""


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

    def routes_changed(self) -> None:
        """Tell the name servers of the topics."""

    @property
    def metadata(self) -> MetadataChanges:
        """How topics and groups are changed."""

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


def table_for(
    broker: Broker, request: RemotingCommand, *, applied: Callable[[], int],
    passed: Callable[[], dict[str, Any]], whole: Callable[[], dict[str, Any]],
) -> dict[str, Any] | None:  # fmt: skip
    """The table that a slave asks for (21, 201).

    Args:
        applied: the offset alone is the answer to a slave of this kind whose table follows the log.
        passed: what the log has for good, with that offset, is the answer to one whose does not.
        whole: is the answer to Java's slaves, and to tools.

    Returns:
        None when a slave of this kind asks a broker that is no master.
    """
    wanted = text_field(request.ext_fields, TABLE_FIELD, "")
    if not wanted:
        return whole()
    if broker.role is not Role.MASTER:
        return None
    return {APPLIED_OFFSET: applied()} if wanted == TABLE_KNOWN else passed()
