"""Transactions on a serving master: ends them (37), and asks about those that nobody ended (39).

Source: EndTransactionProcessor, TransactionalMessageCheckService and AbstractTransactionalMessageCheckListener
of RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

from collections.abc import Callable

from rmqha.base.errors import MessageIllegal
from rmqha.broker.common.aio.writer import RECORDS_A_TURN, Writer
from rmqha.broker.common.refusal import Refusal
from rmqha.broker.common.unique_ids import UniqueIds
from rmqha.broker.deferred.aio.askable_producers import AskableProducers
from rmqha.broker.deferred.aio.deliveries import Deliveries
from rmqha.broker.deferred.aio.half_topics import HalfTopics, NewerHalfTopics
from rmqha.broker.deferred.delays import DelayRules, place, real_place
from rmqha.broker.deferred.open_transactions import Open
from rmqha.broker.deferred.transactions import (
    COMMIT,
    EXPIRED_TOPIC,
    NEWER_PAIR,
    PAIR,
    EndRequest,
    check_end,
    check_times,
    committed_message,
    expired_message,
    renewed_half,
)
from rmqha.broker.groups.aio.ports import Broker
from rmqha.broker.topics.topic_table import TopicConfig
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import ext_fields
from rmqha.runtime.logs import Logger
from rmqha.store import properties as props
from rmqha.store.aio.cold_reads import NotInMemory
from rmqha.store.aio.commit_log import AppendResult
from rmqha.store.aio.record_walk import LOOKS_A_TURN, RecordWalk
from rmqha.store.aio.room import Stretch
from rmqha.store.record import Message, Record, encode_into, encoded_size, pack_host

LOOK_MS = 100
READABLE_MS = 5
KNOWN_MS = 5_000
"""Who ends a transaction waits for so long for the master to know them. Clients wait for 3 seconds, or
for no answer at all; one that is refused is asked."""
ASK_MAX = RECORDS_A_TURN // 2
"""Half messages that are asked about before other work gets its turn: each takes two records."""
OP_BYTES = 512
"""Of the record that says that a half message has ended, about."""


class TransactionService:
    """Half messages of one broker.

    Attributes:
        topics: where they wait, and what this broker knows of them while it reigns.
        is_known: that is all that there was when the reign began. Before, one that has ended may
            seem open, and what renews one may be unknown: to commit it would deliver it twice.
    """

    def __init__(
        self, broker: Broker, writer: Writer, deliveries: Deliveries, rules: DelayRules,
        unique_ids: UniqueIds, log: Logger,
    ) -> None:  # fmt: skip
        config = broker.config
        self._broker = broker
        self._writer = writer
        self._deliveries = deliveries
        self._rules = rules
        self._unique_ids = unique_ids
        self._log = log
        self._store_host = pack_host(config.host, config.port)
        self._check_ms = 0
        self._to_tell: list[tuple[str, Message, AppendResult]] = []
        self._walk = RecordWalk(broker.store)
        self.topics = (HalfTopics(broker, PAIR, log), NewerHalfTopics(broker, NEWER_PAIR, log))
        self.is_known = False

    @property
    def waiting(self) -> int:
        """Half messages without an end, as far as they were read."""
        return sum(len(one.open) for one in self.topics)

    # These may change while the broker runs (live_config.LIVE).

    @property
    def _timeout_ms(self) -> int:
        return self._broker.config.integer("transactionTimeOut")

    @property
    def _checks_max(self) -> int:
        return self._broker.config.integer("transactionCheckMax")

    @property
    def _interval_ms(self) -> int:
        return self._broker.config.integer("transactionCheckInterval")

    # -- 37 ----------------------------------------------------------------------------------------

    def end(
        self, request: EndRequest, why_not: Callable[[Record], Refusal | None]
    ) -> Refusal | int:
        """Commit or roll back.

        Args:
            why_not: the half message must not be ended by who asks.

        Returns:
            Where the last record ends that was written, or why none was.

        Raises:
            DiskFailed: the store has stopped.
        """
        if not self._writer.is_open:
            return Refusal(
                ResponseCode.SERVICE_NOT_AVAILABLE, "this broker cannot be written to now"
            )
        half = self._broker.store.reader.look(request.physical_offset)
        wall_ms = self._broker.clock.wall_ms()
        refusal = check_end(request, half, wall_ms, self._timeout_ms)
        if refusal is not None or half is None:
            return refusal or Refusal(ResponseCode.SYSTEM_ERROR, "no half message")
        refusal = why_not(half)
        if refusal is not None:
            return refusal
        topics = next(one for one in self.topics if one.pair.half == half.topic)
        ends = topics.open.to_end(half.queue_offset, topics.first_of(half))
        if not ends:
            return Refusal(ResponseCode.SYSTEM_ERROR, "the transaction has ended already")
        try:
            if request.decision == COMMIT:
                message = place(committed_message(half), self._rules, wall_ms)
                if isinstance(message, Refusal):
                    return message
                self._deliveries.append(message)
        except MessageIllegal as error:
            return Refusal(ResponseCode.SYSTEM_ERROR, str(error))
        return self._op(topics, ends, half)

    async def becomes_known(self) -> bool:
        """Wait until :attr:`is_known`; False if that takes long, or the reign is over."""
        clock = self._broker.clock
        until_ms = clock.now_ms() + KNOWN_MS
        while not self.is_known and self._writer.is_open and clock.now_ms() < until_ms:
            await clock.sleep(READABLE_MS)
        return self.is_known

    def _op(self, topics: HalfTopics, half_offsets: list[int], half: Record | None) -> int:
        """Write that half messages have ended; where the last record ends, 0 for none."""
        wall_ms, key, end = self._broker.clock.wall_ms(), self._unique_ids.next(), 0
        for message in topics.ops(half_offsets, half, wall_ms, self._store_host, key):
            end = self._writer.append(message).end
        topics.open.answered(half_offsets)
        return end

    # -- the service -------------------------------------------------------------------------------

    def begin(self) -> None:
        """A reign begins, and soon runs this service."""
        self.is_known = False
        for topics in self.topics:
            topics.begin()
        self._check_ms = self._broker.clock.now_ms() + self._interval_ms
        self._to_tell, self._walk = [], RecordWalk(self._broker.store)

    async def run(self) -> None:
        """Read all topics and ask, until cancelled.

        Raises:
            DiskFailed: the store has stopped.
        """
        clock, store = self._broker.clock, self._broker.store
        while True:
            more = await self._walk.turns(self._read)
            # A role is complete only once the queues have all that the log has.
            self.is_known = self.is_known or not more
            if not more and clock.now_ms() >= self._check_ms:
                end, more = await self._writer.batches(self._ask)
                while end and not await self._writer.settle(end):
                    await clock.sleep(LOOK_MS)
                while store.dispatched_offset < end:
                    await clock.sleep(READABLE_MS)
                await self._tell_all()
                if not more:
                    self._check_ms = clock.now_ms() + self._interval_ms
                    for topics in self.topics:
                        topics.round_to = None
            await self._keep()
            waited = await self._walk.fetch()
            await clock.sleep(0 if more or waited else LOOK_MS)

    async def _keep(self) -> None:
        """Remember how far all transactions have ended, once that is safe."""
        changed = [topics for topics in self.topics if not topics.is_kept]
        if not changed:
            return
        kept = [topics.open.kept() for topics in changed]
        if not await self._writer.settle(self._broker.store.dispatched_offset):
            return
        wall_ms = self._broker.clock.wall_ms()
        for topics, offsets in zip(changed, kept, strict=True):
            topics.keep(offsets, wall_ms)

    def _read(self) -> bool:
        """Read what is new, as far as it is in memory; whether there may be more."""
        left = LOOKS_A_TURN
        try:
            for topics in self.topics:
                left = topics.read(self._walk, left)
        except NotInMemory:
            return True
        return not left

    def _ask(self, stretch: Stretch) -> tuple[int, bool]:
        """Ask about what has been open for too long.

        Returns:
            Where the last record ends that was written, 0 for none; and whether there is more.
        """
        if not self._writer.is_open:
            return 0, False
        end, more = 0, False
        for topics in self.topics:
            written, has_more = self._ask_of(topics, stretch)
            end, more = written or end, more or has_more
        return end, more

    def _ask_of(self, topics: HalfTopics, stretch: Stretch) -> tuple[int, bool]:
        """The same of one pair of topics."""
        if topics.round_to is None:
            topics.round_to = topics.open.half_next
        end = 0
        found = topics.open.to_ask(self._broker.clock.wall_ms(), topics.round_to, ASK_MAX)
        for index, one in enumerate(found):
            try:
                half = self._walk.look(one.physical_offset)
            except NotInMemory:
                self._walk.ahead(later.physical_offset for later in found[index:])
                return end, True
            if not stretch.takes(OP_BYTES + (0 if half is None else half.size), 2):
                return end, True
            try:
                end = self._ask_about(topics, one, half) or end
            except MessageIllegal as error:
                self._broker.statistics.records_skipped += 1
                # A release that did not look, or Java's, has taken it.
                self._log.log("error", "half_message_illegal", reason=str(error))
                if half is not None:
                    self._put_aside(topics, half)
                end = self._op(topics, [one.queue_offset], half)
        return end, len(found) == ASK_MAX

    def _ask_about(self, topics: HalfTopics, one: Open, half: Record | None) -> int:
        """Ask, or give up; where the last record ends that says so, 0 for none."""
        ends = [one.queue_offset]
        if half is None:
            self._log.log("error", "half_message_expired", offset=one.physical_offset)
            if not topics.renews:
                topics.open.expired(one)
                return 0
            return self._op(topics, ends, half)
        if real_place(half.properties) is None:
            topics.skipped("half_message_illegal", half, "it does not say where it belongs")
            return self._op(topics, ends, half)
        wall_ms, asked = self._broker.clock.wall_ms(), check_times(half.properties) + one.asked
        if wall_ms - half.store_timestamp > topics.keep_ms or asked >= self._checks_max:
            self._log.log("error", "transaction_given_up", offset=one.physical_offset)
            self._put_aside(topics, half)
            return self._op(topics, ends, half)
        if not topics.renews:
            topics.open.asked(one, wall_ms + self._interval_ms)
            stored = AppendResult(
                half.physical_offset, half.size, half.queue_offset, half.store_timestamp,
                half.store_host,
            )  # fmt: skip
            self._to_tell.append((topics.pair.half, half.message(), stored))
            return 0
        message = renewed_half(half)
        result = self._writer.append(message)
        end = self._op(topics, ends, half)
        self._to_tell.append((topics.pair.half, message, result))
        return end

    def _put_aside(self, topics: HalfTopics, half: Record) -> None:
        """Store it where people look, in a topic that they can read."""
        topic = TopicConfig(EXPIRED_TOPIC, 1, 1)
        if self._broker.metadata.make_topic(topic) is None:
            self._log.log("error", "topic_not_made", topic=EXPIRED_TOPIC)
        try:
            self._writer.append(expired_message(half))
        except MessageIllegal as error:
            topics.skipped("half_message_illegal", half, str(error))

    async def _tell_all(self) -> None:
        """Ask the producers, now that what they answer with can be read: it is refused before."""
        found, self._to_tell = self._to_tell, []
        askable = AskableProducers(self._broker)
        for half_topic, message, stored in found:
            await self._tell(half_topic, message, stored, askable)

    async def _tell(
        self, half_topic: str, half: Message, stored: AppendResult, askable: AskableProducers
    ) -> None:
        """Send 39 to one producer of the group; without one the next round asks again."""
        pairs = half.properties
        group = _text(pairs, b"PGROUP")
        topic, queue_id = real_place(pairs) or ("", 0)
        client = await askable.find(group, topic)
        if client is None:
            reason = askable.why_nobody(group)
            self._log.log("warning", "transaction_without_producer", group=group, reason=reason)
            return
        key = _text(pairs, b"UNIQ_KEY")
        fields = ext_fields(
            topic=half_topic, tranStateTableOffset=stored.queue_offset,
            commitLogOffset=stored.offset, msgId=key, transactionId=key, offsetMsgId=stored.msg_id,
            bname=self._broker.config.broker_name,
        )  # fmt: skip
        shown = half._replace(topic=topic, queue_id=queue_id)
        body = bytearray(encoded_size(shown, property_crc=False))
        encode_into(
            body, 0, shown, size=len(body), queue_offset=stored.queue_offset,
            physical_offset=stored.offset, store_timestamp=self._broker.clock.wall_ms(),
        )  # fmt: skip
        command = RemotingCommand(
            RequestCode.CHECK_TRANSACTION_STATE, ext_fields=fields, body=bytes(body)
        )
        self._broker.clients.oneway(client.connection, command)


def _text(properties: bytes, name: bytes) -> str:
    value = props.find(properties, name)
    return "" if value is None else value.decode("utf-8", "replace")
