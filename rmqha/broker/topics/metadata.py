"""Changes of topics, their mappings, groups and accounts in one order with the messages (ADR 0022).

A change is a record of the log's internal topic, so it is acknowledged, truncated and replicated as
messages are. The master applies it when it has written it, for the messages behind it need it; a
slave when its dispatcher passes the record. What a master has written is pending until its
dispatcher has passed it *and* it is as safe as the set's rule asks for (without
``allAckInSyncStateSet`` the dispatcher waits for nobody). What is pending is in no file, and in no
copy that a slave takes; what was not passed is undone when the role ends.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from rmqha.auth.accounts import Account
from rmqha.broker.common.versioned_table import Named
from rmqha.broker.topics.account_table import AccountTable
from rmqha.broker.topics.group_table import GroupConfig, GroupTable
from rmqha.broker.topics.mapping_table import MappingTable
from rmqha.broker.topics.metadata_change import Change as Change  # rooms above take it from here
from rmqha.broker.topics.topic_table import TopicConfig, TopicTable
from rmqha.remoting.data_version import DataVersion
from rmqha.statictopic.mapping import TopicQueueMappingDetail

ItemT = TypeVar("ItemT", bound=Named, contravariant=True)


class TopicHolder(Protocol):
    """Whoever keeps the topics; the table may be replaced by another one."""

    table: TopicTable


class MappingHolder(Protocol):
    """Whoever keeps the mappings."""

    table: MappingTable


class GroupHolder(Protocol):
    """Whoever keeps the groups."""

    table: GroupTable


class AccountHolder(Protocol):
    """Whoever keeps the accounts."""

    table: AccountTable


class _Pending(Struct):
    """A change that is written, and what it has replaced."""

    offset: int
    end: int
    change: Change
    topics: dict[str, TopicConfig | None]
    groups: dict[str, GroupConfig | None]
    mappings: dict[str, TopicQueueMappingDetail | None]
    accounts: dict[str, Account | None]
    is_passed: bool = False


class Metadata:
    """The tables of one broker, as records change them.

    Attributes:
        topics_from, groups_from, mappings_from, accounts_from: records that begin before these offsets are in the
            tables already.
        last_end: where the last record ends that is in the tables, and not pending.
        remapped: topics whose mapping has changed; cleared by whoever tells of it.
    """

    def __init__(
        self,
        topics: TopicHolder,
        groups: GroupHolder,
        mappings: MappingHolder,
        accounts: AccountHolder,
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._mappings = mappings
        self._accounts = accounts
        self._pending: deque[_Pending] = deque()
        # The same by where they end, and how often a topic's end is written and not passed: one
        # heartbeat may make thousands.
        self._by_end: dict[int, _Pending] = {}
        self._ending: Counter[str] = Counter()
        self._settled = 0
        self.topics_from = self.groups_from = self.mappings_from = self.last_end = 0
        self.accounts_from = 0
        self.remapped: set[str] = set()

    @property
    def pending_from(self) -> int | None:
        """Where the first record begins that is pending; None without one."""
        return self._pending[0].offset if self._pending else None

    @property
    def written_end(self) -> int:
        """Where the last record ends that is in the tables, pending or not."""
        return self._pending[-1].end if self._pending else self.last_end

    @property
    def pending_count(self) -> int:
        """Changes that no dispatcher has passed."""
        return len(self._pending)

    def own(self, end: int) -> Change | None:
        """The change whose record ends there, if this master has written it, and applied it then."""
        found = self._by_end.get(end)
        return None if found is None else found.change

    def is_ending(self, topic: str) -> bool:
        """Whether a topic's end is written and not passed: its old queues are still there."""
        return topic in self._ending

    def begin(self, change: Change, offset: int, end: int, wall_ms: int) -> None:
        """This master has written a change; its record stands from ``offset`` to ``end``."""
        topics, groups, mappings = self._topics.table, self._groups.table, self._mappings.table
        names = {*(one.name for one in change.topics), *change.ended_topics}
        group_names = {*(one.name for one in change.groups), *change.ended_groups}
        one = _Pending(
            offset, end, change,
            {name: topics.get(name) for name in names},
            {name: groups.get(name) for name in group_names},
            {name: mappings.get(name) for name in _remapped(change)},
            {name: self._accounts.table.get(name) for name in _reaccounted(change)},
        )  # fmt: skip
        self._pending.append(one)
        self._by_end[end] = one
        self._ending.update(change.ended_topics)
        _apply(topics, change.ended_topics, change.topics, wall_ms)
        self._remap(change, wall_ms)
        _apply(groups, change.ended_groups, change.groups, wall_ms)
        _apply(self._accounts.table, change.ended_accounts, change.accounts, wall_ms)

    def _remap(self, change: Change, wall_ms: int) -> None:
        """A topic's mapping ends with it."""
        before = self._mappings.table.version
        self.remapped |= _apply(self._mappings.table, change.ended_topics, change.mappings, wall_ms)
        self._noticed(before, wall_ms)

    def _noticed(self, before: DataVersion, wall_ms: int) -> None:
        """Name servers look at mappings only when the version of the topics is another one."""
        if self._mappings.table.version != before:
            topics = self._topics.table
            topics.advance(topics.version.state_version, wall_ms)

    def settled(self, end: int) -> int:
        """All before ``end`` is as safe as the rule asks for; how many changes that makes final."""
        self._settled = max(self._settled, end)
        return self._finish()

    def _finish(self) -> int:
        count = len(self._pending)
        while self._pending and self._pending[0].is_passed:
            if self._pending[0].end > self._settled:
                break
            self._drop_first()
        return count - len(self._pending)

    def _drop_first(self) -> None:
        self.last_end = self._pending.popleft().end
        del self._by_end[self.last_end]

    def passed(self, offset: int, end: int, change: Change, wall_ms: int) -> bool:
        """The dispatcher has passed a change; whether it is news to these tables."""
        own = self._by_end.get(end)
        if own is not None:
            own.is_passed = True
            for topic in own.change.ended_topics:
                self._ending[topic] -= 1
                if not self._ending[topic]:
                    del self._ending[topic]
            self._finish()
            return False
        self.last_end = max(self.last_end, end)
        if offset >= self.topics_from:
            _apply(self._topics.table, change.ended_topics, change.topics, wall_ms)
        if offset >= self.mappings_from:
            self._remap(change, wall_ms)
        if offset >= self.groups_from:
            _apply(self._groups.table, change.ended_groups, change.groups, wall_ms)
        if offset >= self.accounts_from:
            _apply(self._accounts.table, change.ended_accounts, change.accounts, wall_ms)
        return offset >= min(
            self.topics_from, self.groups_from, self.mappings_from, self.accounts_from
        )

    def undo(self, wall_ms: int) -> int:
        """The role has ended: what no dispatcher has passed may never have been.

        What was passed stays: its record comes again only when it is cut off the log, and then
        :meth:`cut` tells.

        Returns:
            How many changes are undone.
        """
        while self._pending and self._pending[0].is_passed:
            self._drop_first()
        count, before = len(self._pending), self._mappings.table.version
        for one in reversed(self._pending):
            _restore(self._topics.table, one.topics, wall_ms)
            self.remapped |= _restore(self._mappings.table, one.mappings, wall_ms)
            _restore(self._groups.table, one.groups, wall_ms)
            _restore(self._accounts.table, one.accounts, wall_ms)
        self._noticed(before, wall_ms)
        self._pending.clear()
        self._by_end.clear()
        self._ending.clear()
        self._settled = 0
        return count

    def cut(self, offset: int) -> bool:
        """The log ends at ``offset`` now; whether the tables are still those of a moment of it.

        Other records may come behind. Without ``allAckInSyncStateSet`` a record may be cut that
        was passed.
        """
        whole = self.last_end <= offset
        self.topics_from = min(self.topics_from, offset)
        self.groups_from = min(self.groups_from, offset)
        self.mappings_from = min(self.mappings_from, offset)
        self.accounts_from = min(self.accounts_from, offset)
        self.last_end = min(self.last_end, offset)
        return whole

    def passed_topics(self) -> dict[str, Any]:
        """The members of the topics without what is pending."""
        members = self._topics.table.members()
        _without(members["topicConfigTable"], (one.topics for one in reversed(self._pending)))
        return members

    def passed_mappings(self) -> dict[str, Any]:
        """The members of the mappings without what is pending."""
        members = self._mappings.table.members()
        table = members["topicQueueMappingInfoMap"]
        _without(table, (one.mappings for one in reversed(self._pending)))
        return members

    def passed_groups(self) -> dict[str, Any]:
        """The members of the groups without what is pending."""
        members = self._groups.table.members()
        _without(members["subscriptionGroupTable"], (one.groups for one in reversed(self._pending)))
        return members

    def passed_accounts(self) -> dict[str, Any]:
        """The members of the accounts without what is pending."""
        members = self._accounts.table.members()
        _without(members["accounts"], (one.accounts for one in reversed(self._pending)))
        return members


def _reaccounted(change: Change) -> set[str]:
    return {*(one.name for one in change.accounts), *change.ended_accounts}


def _remapped(change: Change) -> set[str]:
    return {*(one.name for one in change.mappings), *change.ended_topics}


class _Entry(Protocol):
    """An entry of a table."""

    def members(self) -> dict[str, Any]:
        """Its JSON members."""


def _without(table: dict[str, Any], replaced: Iterable[Mapping[str, _Entry | None]]) -> None:
    """Put back what changes have replaced, the newest change first."""
    for before in replaced:
        for name, entry in before.items():
            table.pop(name, None)
            if entry is not None:
                table[name] = entry.members()


class _Table(Protocol[ItemT]):
    """What the tables of topics and of groups have in common."""

    def put(self, item: ItemT, wall_ms: int, /) -> Any:
        """Make or replace one."""

    def delete(self, name: str, wall_ms: int, /) -> Any:
        """Forget one, if it is there."""


def _apply(
    table: _Table[ItemT], ended: Iterable[str], made: Iterable[ItemT], wall_ms: int
) -> set[str]:
    """The names whose entries are others now."""
    changed = {name for name in ended if table.delete(name, wall_ms)}
    return changed | {item.name for item in made if table.put(item, wall_ms)}


def _restore(table: _Table[ItemT], before: Mapping[str, ItemT | None], wall_ms: int) -> set[str]:
    ended = [name for name, item in before.items() if item is None]
    return _apply(table, ended, [item for item in before.values() if item is not None], wall_ms)
