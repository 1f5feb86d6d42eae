"""What the rooms from topics on see of the broker: topics and groups, and how they are changed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from rmqha.broker.common.aio import ports
from rmqha.broker.common.aio.config_file import APPLIED_OFFSET
from rmqha.broker.common.refusal import Refusal
from rmqha.broker.topics.aio.account_file import AccountFile
from rmqha.broker.topics.aio.group_file import GroupFile
from rmqha.broker.topics.aio.mapping_file import MappingFile
from rmqha.broker.topics.aio.rights import Rights
from rmqha.broker.topics.aio.topic_file import TopicFile
from rmqha.broker.topics.metadata import Change
from rmqha.broker.topics.topic_table import TopicConfig
from rmqha.ha.events import Role
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import text_field

TABLE_FIELD = "rmqhaTable"
"""Of requests 21 and 201: ``known`` or ``wanted``, whether the slave's table follows the log."""

MAPPINGS_APPLIED = "rmqhaMappingsOffset"
"""Of the answer to 21: what ``APPLIED_OFFSET`` is of the topics, of their mappings."""

ACCOUNTS_FIELD = "rmqhaAccounts"
"""Of the answer to 201 for a slave whose tables do not follow the log: users and policies."""

TABLE_KNOWN, TABLE_WANTED = "known", "wanted"


class MetadataChanges(Protocol):
    """Changes of topics and groups, as records of the log (``sync/aio/metadata_log.py``)."""

    def commit(self, change: Change) -> int | Refusal:
        """Write a change; where its record ends, or why nothing is changed."""

    def change(
        self, connection: Connection, request: RemotingCommand, change: Change,
        followed: Callable[[], Awaitable[str | None]] = ...,
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

    def account_members(self) -> dict[str, Any]:
        """The accounts that are in the log for good, with up to where that is."""

    def mapping_members(self) -> dict[str, Any]:
        """The mappings that are in the log for good, with up to where that is."""

    @property
    def written_end(self) -> int:
        """Where the last record ends that is in the tables, pending or not."""

    @property
    def groups_applied(self) -> int:
        """Records of the log that begin before are in the groups."""

    def groups_of(self, topic: str) -> list[str]:
        """Groups that have stored how far they are in a topic."""

    def topics_of(self, group: str) -> list[str]:
        """Topics in which a group has stored how far it is."""


class Broker(ports.Broker, Protocol):
    """The floor of topics.

    Attributes:
        mappings: the logical queues of static topics.
        groups: what a group may do.
        accounts: users, and what they may do.
        rights: what they may do with a record.
    """

    topics: TopicFile
    mappings: MappingFile
    groups: GroupFile
    accounts: AccountFile
    rights: Rights

    @property
    def metadata(self) -> MetadataChanges:
        """How topics and groups are changed."""

    def routes_changed(self) -> None:
        """Tell the name servers of the topics."""


def table_for(
    broker: ports.Broker, request: RemotingCommand, *, applied: Callable[[], int],
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
