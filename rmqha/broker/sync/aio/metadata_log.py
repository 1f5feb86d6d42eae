"""Topics, their mappings, groups and accounts as the log's internal topic has them: writing changes, and taking them.

What a change does to the tables is decided in ``broker/topics/metadata.py``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Container
from typing import Any

from rmqha.base.errors import DiskFailed, MessageIllegal, RemoteProtocolError
from rmqha.broker.common.aio.config_file import APPLIED_OFFSET
from rmqha.broker.common.aio.writer import Writer, nothing
from rmqha.broker.common.refusal import Refusal
from rmqha.broker.groups.aio.ports import Broker
from rmqha.broker.send.aio.send_requests import NOT_SERVING
from rmqha.broker.topics.group_table import GroupConfig
from rmqha.broker.topics.metadata import Change, Metadata
from rmqha.broker.topics.own_topics import given_topics
from rmqha.broker.topics.told_tables import told
from rmqha.broker.topics.topic_table import TopicConfig
from rmqha.ha.events import PutStatus, Role
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.runtime.logs import Logger
from rmqha.store.aio.metadata_reader import MetadataRecord, dispatched_since, waiting_from
from rmqha.store.consume_queue import name_error
from rmqha.store.metadata_records import METADATA_TOPIC, ended_property
from rmqha.store.record import Message, pack_host

NEW_TOPICS_WAITING_MAX = 256
"""Whoever sends to one new topic after the other brings more of them than queues can be made for,
and what honest senders send meanwhile lies behind them all."""

WATCH_MS = 100
"""Until a change is asked for again that was not safe in time."""


class MetadataLog:
    """Of one broker.

    Attributes:
        is_known: the tables are those of a moment of the log. A store that is new, or comes from
            Java or an older release, takes them from its first master; so does one whose log has
            lost a record.
        on_cut: brings other positions back to what is left of the log.
        on_ended: told the topics and the groups that are gone with what they have stored.
        on_lost: takes the tables from the master that cut the log, for as long as it is followed.
        set_aside: records of the internal topic that no broker of this kind has written.
        ended_topics, ended_groups: which ended since whoever asks for positions has cleared these.
    """

    def __init__(self, broker: Broker, log: Logger) -> None:
        self._broker = broker
        self._log = log
        self._state = Metadata(broker.topics, broker.groups, broker.mappings, broker.accounts)
        self._writer = Writer(broker)
        broker.topics.members = lambda: self._kept(self.topic_members())
        broker.mappings.members = lambda: self._kept(self.mapping_members())
        broker.groups.members = lambda: self._kept(self.group_members())
        broker.accounts.members = lambda: self._kept(self.account_members())
        broker.offsets.marks = self.offset_marks
        self._host = pack_host(broker.config.host, broker.config.port)
        self._reigning = False
        self._reign = 0  # the number of this one; 0 while none is
        self._reigns = 0
        self._offsets_from = 0
        self.is_known = False
        # Tables that came from a master are on disk; while they are not, a power cut takes them.
        self.is_kept = True
        # The tables have something that no record tells of. Its files say so by having no mark.
        self._is_untold = False
        self.on_lost: Callable[[], Awaitable[None]] = nothing
        self.on_cut: Callable[[], Awaitable[None]] = nothing
        self.on_ended: Callable[[Container[str], Container[str]], None] = _nobody
        self.set_aside = 0
        self.ended_topics: set[str] = set()
        self.ended_groups: set[str] = set()

    # -- life ----------------------------------------------------------------------------------------

    def open(self) -> None:
        """Bring the tables, as their files had them, up to where the dispatcher is."""
        broker, store = self._broker, self._broker.store
        topics_from, groups_from = broker.topics.mark, broker.groups.mark
        # Without a file it is an older release's store: all records that are left are looked at,
        # for that release has passed over the mappings of a newer master.
        mappings_from = broker.mappings.mark if broker.mappings.found else 0
        accounts_from = broker.accounts.mark if broker.accounts.found else 0
        # Offsets are written seldom: they may know less of the log than the tables do.
        self._offsets_from = broker.offsets.mark or 0
        if (
            topics_from is not None
            and groups_from is not None
            and mappings_from is not None
            and accounts_from is not None
        ):
            marks = [topics_from, groups_from]
            if broker.mappings.found:
                marks.append(mappings_from)
            if broker.accounts.found:
                marks.append(accounts_from)
            # Records that have expired since the files were written are known to nobody here, and
            # what the files hold of a tail that the log has lost is known to nobody else.
            # A log that is empty may begin anywhere, and where it begins is what the tables lack.
            low, high = max(0, store.min_offset), store.max_offset
            self.is_known = high > 0 and low <= min(marks) and max(marks) <= high
            self._state.topics_from, self._state.groups_from = topics_from, groups_from
            self._state.mappings_from, self._state.last_end = mappings_from, max(marks)
            self._state.accounts_from = accounts_from
            # Even so the records that are there count: this replica may be the one that reigns.
            oldest = min(*marks, mappings_from, accounts_from, self._offsets_from)
            for record in dispatched_since(store.commit_log, store.queues, oldest):
                self._passed(record)
        store.dispatcher.on_metadata = self._passed
        store.on_truncated = self._truncated

    def reign(self) -> None:
        """This broker is the master: its tables are the ones that count, all its records included."""
        if self._reigning:
            return
        store, self._reigning = self._broker.store, True
        self._reigns += 1
        self._reign = self._reigns
        # Tables of no moment of the log become those of one: of a Java master, of a store that
        # comes from Java, or of a log that has lost a record.
        self._is_untold, self.is_known = self._is_untold or not self.is_known, True
        self._state.cut(store.max_offset)
        self._broker.groups.changed()
        self._broker.mappings.changed()
        self._broker.accounts.changed()
        for record in waiting_from(store.commit_log, store.dispatched_offset):
            change = self._read(record)
            if change is not None:
                self._begin(change, record.offset, record.end)
        if self._is_untold:
            self._broker.tasks.start(self._tell_tables(self._reign), name="tables told")

    def resign(self) -> None:
        """This broker reigns no more: what is pending may be cut off its log."""
        self._reigning, self._reign = False, 0
        if self._is_untold:
            # Whoever reigns now may lack some of it, and so would this replica differ from others.
            self.is_known = False
        count = self._state.undo(self._broker.clock.wall_ms())
        self._tell_remapped()
        if count:
            self._log.log("warning", "metadata_changes_undone", count=count)

    def copied(self) -> None:
        """The tables have something of a Java master's, of which no record tells."""
        self._is_untold, self.is_known = True, False

    async def _tell_tables(self, reign: int) -> None:
        """Write what is in the tables: slaves that copied nothing from the Java master follow the log.

        Without it they would lack its last topics and groups for good. The records are written
        whatever a put would meet now: whoever has a message of this reign has what it needs.
        """
        broker, end = self._broker, 0
        tables = broker.topics.table, broker.mappings.table, broker.groups.table
        for change in told(*tables, given_topics(broker.config)):
            while True:
                if self._reign != reign:
                    return
                written = self._told(change)
                if not isinstance(written, Refusal):
                    break
                await broker.clock.sleep(WATCH_MS)
            end = max(end, written)
            await broker.clock.sleep(0)
        while end and self._reign == reign and not await self._writer.settle(end):
            await broker.clock.sleep(WATCH_MS)
        if self._reign == reign:
            self._is_untold = False
            for file in (broker.topics, broker.mappings, broker.groups, broker.accounts):
                file.changed()
            self._log.log("info", "tables_told", end=end)

    def _told(self, change: Change) -> int | Refusal:
        written = self._not_serving() or self._written(change)
        if isinstance(written, Refusal) and written.code == ResponseCode.MESSAGE_ILLEGAL:
            self._log.log("error", "table_not_told", reason=written.remark)
            return 0
        return written

    async def _truncated(self, offset: int, before: int) -> None:
        """The log's tail is gone; with a record of it, the tables must come from the master.

        So they must with all of the log: it may go on behind records that the master has expired.
        Consumers are brought back to what is left at once: by an election the queues may have
        grown again, and an offset that their old tail made would pass over new messages.
        """
        broker = self._broker
        await broker.offsets.cut(broker.store.queues.next_offsets.find, self._log)
        with contextlib.suppress(DiskFailed):  # told by the file, which is written again
            await broker.offsets.file.save()
        await self.on_cut()
        self._offsets_from = min(self._offsets_from, offset)
        if self._state.cut(offset) and (offset or not before):
            return
        self.is_known = False
        self._log.log("warning", "metadata_records_cut", offset=offset)
        await self.on_lost()

    def replaced(
        self, topics_from: int, groups_from: int, mappings_from: int, accounts_from: int
    ) -> None:
        """The tables are a master's, which has all records that begin before these offsets."""
        marks = topics_from, groups_from, mappings_from, accounts_from
        state = self._state
        state.topics_from, state.groups_from, state.mappings_from, state.accounts_from = marks
        self._state.last_end = max(marks)
        self.is_known, self.is_kept, self._is_untold = True, False, False
        # The own dispatcher may have been further than the master's.
        store = self._broker.store
        for record in dispatched_since(store.commit_log, store.queues, min(marks)):
            self._apply(record)

    # -- the files, and slaves -------------------------------------------------------------------------

    @property
    def topics_applied(self) -> int:
        """Records that begin before are in the topics, and are not pending."""
        return self._applied(self._state.topics_from)

    @property
    def mappings_applied(self) -> int:
        """Records that begin before are in the mappings, and are not pending."""
        return self._applied(self._state.mappings_from)

    @property
    def accounts_applied(self) -> int:
        """Records that begin before are in the accounts, and are not pending."""
        return self._applied(self._state.accounts_from)

    @property
    def groups_applied(self) -> int:
        """Records that begin before are in the groups, and are not pending."""
        return self._applied(self._state.groups_from)

    def _applied(self, mark: int) -> int:
        applied = max(mark, self._broker.store.dispatched_offset)
        pending = self._state.pending_from
        return applied if pending is None else min(applied, pending)

    def _kept(self, members: dict[str, Any]) -> dict[str, Any]:
        """What a file holds: while something is untold, its table is that of no moment of the log."""
        if self._is_untold:
            members.pop(APPLIED_OFFSET, None)
        return members

    def topic_members(self) -> dict[str, Any]:
        """``config/topics.json``, and what a slave of this kind copies."""
        mark = {APPLIED_OFFSET: self.topics_applied} if self.is_known else {}
        return {**self._state.passed_topics(), **mark}

    def mapping_members(self) -> dict[str, Any]:
        """``config/topicQueueMapping.json``; of it the answer to 21 is made."""
        mark = {APPLIED_OFFSET: self.mappings_applied} if self.is_known else {}
        return {**self._state.passed_mappings(), **mark}

    def account_members(self) -> dict[str, Any]:
        """``config/accounts.json``, and what a slave of this kind copies."""
        mark = {APPLIED_OFFSET: self.accounts_applied} if self.is_known else {}
        return {**self._state.passed_accounts(), **mark}

    def group_members(self) -> dict[str, Any]:
        """``config/subscriptionGroup.json``, and what a slave of this kind copies."""
        mark = {APPLIED_OFFSET: self.groups_applied} if self.is_known else {}
        return {**self._state.passed_groups(), **mark}

    def offset_marks(self) -> dict[str, Any]:
        """Of ``config/consumerOffset.json``: topics that ended before are in it no more."""
        return {APPLIED_OFFSET: self._broker.store.dispatched_offset} if self.is_known else {}

    @property
    def written_end(self) -> int:
        """Where the last record ends that is in the tables, pending or not."""
        return min(self._state.written_end, self._broker.store.max_offset)

    # -- changes ---------------------------------------------------------------------------------------

    def is_ending(self, topic: str) -> bool:
        """Whether a topic is being deleted: no message goes there until its old queues are gone."""
        return self._state.is_ending(topic)

    def groups_of(self, topic: str) -> list[str]:
        """Groups that have stored how far they are in a topic."""
        return self._broker.offsets.table.groups_of(topic)

    def topics_of(self, group: str) -> list[str]:
        """Topics in which a group has stored how far it is."""
        return self._broker.offsets.table.topics_of(group)

    def make_topic(self, topic: TopicConfig) -> TopicConfig | None:
        """Make a topic that misses, as far as this broker may write now.

        Returns:
            The topic as it is; None when it cannot be made.
        """
        known = self._broker.topics.table.get(topic.name)
        if known is not None:
            return known
        if name_error(topic.name.encode()) is not None:
            return None  # a retry topic of a group that Java has made
        return topic if isinstance(self.commit(Change(topics=(topic,))), int) else None

    def make_group(self, group: GroupConfig) -> bool:
        """Make a group that misses, as far as this broker may write now; whether it is there."""
        if self._broker.groups.table.get(group.name) is not None:
            return True
        return isinstance(self.commit(Change(groups=(group,))), int)

    def change(
        self, connection: Connection, request: RemotingCommand, change: Change,
        followed: Callable[[], Awaitable[str | None]] = nothing,
    ) -> RemotingCommand | None:  # fmt: skip
        """Answer a request once its change is as safe as messages are, or surely is not.

        One that leaves everything as it is waits for the last change: that may be the same one,
        asked for before.

        Args:
            followed: what the answer waits for besides; a text is why that did not come about.
        """
        if change == Change():
            end = self.written_end
        else:
            written = self.commit(change)
            if isinstance(written, Refusal):
                return request.reply(written.code, written.remark)
            end = written
        self._writer.answer_when_durable(connection, request, end, followed)
        return None

    def commit(self, change: Change) -> int | Refusal:
        """Write a change, and let what comes behind it find it.

        Returns:
            Where its record ends, for ``Writer.settle``; or why nothing is changed.
        """
        return self._refusal(change) or self._written(change)

    def _written(self, change: Change) -> int | Refusal:
        try:
            result = self._writer.append(self._message(change))
        except MessageIllegal as error:
            return Refusal(
                ResponseCode.MESSAGE_ILLEGAL, f"nothing is changed, it is too much at once: {error}"
            )
        except DiskFailed as error:
            return Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, f"nothing is changed: {error}")
        self._begin(change, result.offset, result.end)
        self._forget(change)
        return result.end

    def _not_serving(self) -> Refusal | None:
        broker = self._broker
        if broker.role is not Role.MASTER or broker.ha is None or broker.store.failed is not None:
            return Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, NOT_SERVING)
        return None

    def _refusal(self, change: Change) -> Refusal | None:
        broker, refusal = self._broker, self._not_serving()
        if refusal is not None or broker.ha is None:
            return refusal
        status = broker.ha.check_put()
        if status is not PutStatus.PUT_OK:
            return Refusal(status.response_code, status.remark or NOT_SERVING)
        if self._state.pending_count >= NEW_TOPICS_WAITING_MAX and self._makes(change):
            return Refusal(ResponseCode.SYSTEM_BUSY, "too many new topics wait for their queues")
        for topic in change.topics:
            if broker.topics.table.get(topic.name) is not None:
                continue
            if self.is_ending(topic.name):
                return Refusal(ResponseCode.SYSTEM_BUSY, f"topic {topic.name} is being deleted")
            if not change.mappings and broker.mappings.table.get(topic.name) is not None:
                # Of a Java master that had one without the other.
                remark = f"topic {topic.name} does not exist, and its logical queues do"
                return Refusal(ResponseCode.TOPIC_NOT_EXIST, remark)
        for what, fits in (
            ("topics", broker.topics.table.fits(change.topics)),
            ("logical queues", broker.mappings.table.fits(change.mappings)),
            ("groups", broker.groups.table.fits(change.groups)),
            ("users or policies", broker.accounts.table.fits(change.accounts)),
        ):
            if not fits:
                return Refusal(ResponseCode.SYSTEM_ERROR, f"there is no room for more {what}")
        return None

    def _makes(self, change: Change) -> bool:
        return any(self._broker.topics.table.get(one.name) is None for one in change.topics)

    def _message(self, change: Change) -> Message:
        return Message(
            METADATA_TOPIC, 0, change.encode(), ended_property(change.ended_topics),
            self._broker.clock.wall_ms(), self._host, self._host,
        )  # fmt: skip

    def _begin(self, change: Change, offset: int, end: int) -> None:
        self._state.begin(change, offset, end, self._broker.clock.wall_ms())
        self._tell_remapped()
        if change.topics or change.mappings or change.ended_topics:
            self._broker.routes_changed()
        self._watch(end)

    def _tell_remapped(self) -> None:
        topics, self._state.remapped = self._state.remapped, set()
        self._broker.mappings.tell(topics)

    def _watch(self, end: int) -> None:
        """Learn when a change is as safe as the rule asks for, however long that takes."""
        ha = self._broker.ha
        if ha is None or not self._reigning or end > self._state.written_end:
            return

        def done(status: PutStatus) -> None:
            if status is not PutStatus.PUT_OK:
                self._broker.clock.call_later(WATCH_MS, lambda: self._watch(end))
            elif self._reigning and self._state.settled(end):
                self._broker.topics.changed()
                self._broker.mappings.changed()
                self._broker.groups.changed()
                self._broker.accounts.changed()

        ha.when_put(end, ha.reign_number, done)

    def _read(self, record: MetadataRecord) -> Change | None:
        """What a record says; one that nobody of this kind has written is told of and left."""
        try:
            return Change.decode(record.body)
        except RemoteProtocolError as error:
            self.set_aside += 1
            self._broker.statistics.records_skipped += 1
            self._log.log(
                "error", "metadata_set_aside", offset=record.offset, reason=str(error)[:200]
            )
            return None

    def _passed(self, record: MetadataRecord) -> None:
        own = self._state.own(record.end)
        change = self._apply(record, own)
        if change is not None and own is None and record.offset >= self._offsets_from:
            self._forget(change)
            self.ended_topics.update(change.ended_topics)
            self.ended_groups.update(change.forgotten_groups)

    def _apply(self, record: MetadataRecord, own: Change | None = None) -> Change | None:
        """Let a record change the tables; what it says.

        Args:
            own: what it says, if this master has written it and need not read it.
        """
        change, broker = own or self._read(record), self._broker
        if change is None:
            return None
        self._state.passed(record.offset, record.end, change, broker.clock.wall_ms())
        if change.topics or change.ended_topics:
            broker.topics.changed()
        for topic in change.ended_topics:
            broker.statistics.forget(topic)
        self._tell_remapped()
        if change.groups or change.ended_groups:
            broker.groups.changed()
        if change.accounts or change.ended_accounts:
            broker.accounts.changed()
        return change

    def _forget(self, change: Change) -> None:
        """What groups have stored goes with its topic, or with the group."""
        offsets = self._broker.offsets
        before = offsets.table.changes
        for topic in change.ended_topics:
            offsets.table.forget_topic(topic)
        for group in change.forgotten_groups:
            offsets.table.forget_group(group)
        if change.ended_topics or change.forgotten_groups:
            self.on_ended(frozenset(change.ended_topics), frozenset(change.forgotten_groups))
        if offsets.table.changes != before:
            offsets.changed()


def _nobody(topics: Container[str], groups: Container[str]) -> None:
    """The callback where nobody keeps anything of them."""
