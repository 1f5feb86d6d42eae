"""A slave gets its master's topics, their mappings, its groups and accounts.

From a master of this kind it takes the tables once, when its own are those of no moment of the log;
from then on the log has every change (ADR 0022). A master of Java's has no such records: its tables
are copied every few seconds, as Java's slaves do.

Source: SlaveSynchronize of RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from rmqha.broker.common.aio.config_file import mark_of
from rmqha.broker.common.versioned_table import vanished
from rmqha.broker.groups.aio.ports import Broker
from rmqha.broker.sync.aio.master_questions import FoundT, MasterQuestions, Paged
from rmqha.broker.sync.aio.metadata_log import MetadataLog
from rmqha.broker.topics.account_table import AccountTable
from rmqha.broker.topics.aio.ports import (
    ACCOUNTS_FIELD,
    MAPPINGS_APPLIED,
    TABLE_FIELD,
    TABLE_KNOWN,
    TABLE_WANTED,
)
from rmqha.broker.topics.group_table import GroupTable
from rmqha.broker.topics.mapping_table import MappingTable
from rmqha.broker.topics.topic_table import TopicTable
from rmqha.remoting import fastjson
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.headers import INT32_MAX
from rmqha.runtime.logs import Logger

More = tuple[RequestCode, str, Callable[[dict[str, Any]], int]]


class SlaveSync:
    """Copies what is not in the commit log.

    Args:
        questions: the way to the master.
        period_ms: between two looks.
        more: what else to ask for: request code, what it is called, and who takes the answer and
            says how much of it was new.
    """

    def __init__(
        self,
        *,
        broker: Broker,
        metadata: MetadataLog,
        questions: MasterQuestions,
        log: Logger,
        period_ms: int,
        more: tuple[More, ...] = (),
    ) -> None:
        self._broker = broker
        self._metadata = metadata
        self._questions = questions
        self._log = log
        self._period_ms = period_ms
        self._more = more
        # A master without records, and the names that its tables had when it was last asked.
        self._java = ""
        self._mappings_before: frozenset[str] | None = None
        self._topics_before: frozenset[str] | None = None
        self._groups_before: frozenset[str] | None = None

    async def run(self) -> None:
        """Look for ever."""
        while True:
            await self.copy()
            for code, what, take in self._more:
                master = self._questions.master
                if master is not None:
                    count = await self._questions.ask(master, code, partial(_taken, take))
                    self._tell(what, master, count)
            await self._broker.clock.sleep(self._period_ms)

    async def copy(self) -> bool:
        """Copy topics and groups once, as far as this replica needs it; whether that was done."""
        metadata, master = self._metadata, self._questions.master
        if master is None:
            return False
        was_known = metadata.is_known
        fields = {TABLE_FIELD: TABLE_KNOWN if was_known else TABLE_WANTED}
        ask = self._questions.ask
        topics = await ask(master, RequestCode.GET_ALL_TOPIC_CONFIG, _topics, fields, TOPICS_PAGED)
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        groups = await ask(master, code, _groups, fields, GROUPS_PAGED)
        if topics is None or groups is None or self._questions.master != master:
            return False
        if topics.applied is None or groups.applied is None:
            self._merge(master, topics, groups.table)
        elif not was_known and not metadata.is_known:
            # By what was known when it was asked for: an answer without a table is none for now,
            # and a table that somebody else was quicker to take is an old one.
            self._replace(topics, topics.applied, groups, groups.applied)
            self._tell("tables", master, len(topics.table.topics) + len(groups.table.groups))
        return metadata.is_known or topics.applied is None

    def _tell(self, what: str, master: str, count: int | None) -> None:
        if count:
            self._log.log("info", "copied", what=what, master=master, count=count)

    def _replace(
        self, topics: _Topics, topics_from: int, groups: _Groups, groups_from: int
    ) -> None:
        """The tables of a master of this kind, as records before these offsets have made them."""
        broker = self._broker
        broker.topics.table, broker.groups.table = topics.table, groups.table
        # A master of an older release has no mappings, up to where it has topics.
        mappings_from = topics_from if topics.mappings_applied is None else topics.mappings_applied
        broker.mappings.replace(topics.mappings)
        # One of an older release has no accounts, nor records of them.
        accounts_from = groups_from if groups.accounts_applied is None else groups.accounts_applied
        broker.accounts.table = groups.accounts
        broker.accounts.changed()
        self._metadata.replaced(topics_from, groups_from, mappings_from, accounts_from)
        broker.topics.changed()
        broker.groups.changed()

    def _merge(self, master: str, found: _Topics, groups: GroupTable) -> None:
        """The tables of a master of Java's; one just elected may lack what this replica has."""
        broker, wall_ms = self._broker, self._broker.clock.wall_ms()
        topics, mappings = found.table, found.mappings
        if master != self._java:
            self._java, self._topics_before, self._groups_before = master, None, None
            self._mappings_before = None
        own_topics, own_groups = broker.topics.table, broker.groups.table
        changed = own_topics.take(topics, vanished(self._topics_before, topics), wall_ms)
        if changed:
            broker.topics.changed()
            self._metadata.copied()
            self._tell("topics", master, changed)
        gone = vanished(self._mappings_before, mappings)
        changed = broker.mappings.merge(mappings, gone, wall_ms)
        if changed:
            self._metadata.copied()
        self._tell("logical queues", master, changed)
        self._mappings_before = frozenset(mappings.items)
        changed = own_groups.take(groups, vanished(self._groups_before, groups), wall_ms)
        own_groups.forbidden = groups.forbidden
        if changed:
            broker.groups.changed()
            self._metadata.copied()
            self._tell("groups", master, changed)
        self._topics_before, self._groups_before = frozenset(topics.items), frozenset(groups.items)


def _taken(take: Callable[[dict[str, Any]], int], body: bytes) -> int:
    return take(_object(body))


def _object(body: bytes) -> dict[str, Any]:
    value = fastjson.loads(body)
    return value if isinstance(value, dict) else {}


class _Topics(NamedTuple):
    """An answer to 21.

    Attributes:
        applied, mappings_applied: records that begin before are in it; None from a master of Java's.
    """

    table: TopicTable
    mappings: MappingTable
    applied: int | None
    mappings_applied: int | None


def _topics(body: bytes) -> _Topics:
    value = _object(body)
    mappings = MappingTable.of(value, "topicQueueMappingDetailMap")
    return _Topics(TopicTable.of(value), mappings, mark_of(value), mark_of(value, MAPPINGS_APPLIED))


class _Groups(NamedTuple):
    """An answer to 201.

    Attributes:
        applied, accounts_applied: as those of :class:`_Topics`.
    """

    table: GroupTable
    accounts: AccountTable
    applied: int | None
    accounts_applied: int | None


def _groups(body: bytes) -> _Groups:
    value = _object(body)
    accounts = value.get(ACCOUNTS_FIELD)
    accounts = accounts if isinstance(accounts, dict) else {}
    return _Groups(
        GroupTable.of(value), AccountTable.of(accounts), mark_of(value), mark_of(accounts)
    )


def _paged(what: str, count: Callable[[FoundT], int]) -> Paged[FoundT]:
    name = what.capitalize()
    fields = {f"{what}Seq": "0", f"max{name}Num": str(INT32_MAX), "dataVersion": ""}
    return Paged(fields, f"total{name}Num", count)


TOPICS_PAGED: Paged[_Topics] = _paged("topic", lambda found: len(found.table.items))
GROUPS_PAGED: Paged[_Groups] = _paged("group", lambda found: len(found.table.items))
