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
from rmqha.broker.deferred.aio.deliveries import Deliveries
from rmqha.broker.deferred.delays import DelayRules, place, real_place
from rmqha.broker.deferred.transactions import (
    COMMIT,
    EXPIRED_TOPIC,
    GROUP,
    HALF_TOPIC,
    OP_TOPIC,
    QUEUE,
    EndRequest,
    Open,
    OpenTransactions,
    check_end,
    check_times,
    committed_message,
    ended_offsets,
    expired_message,
    first_offset,
    immunity_ms,
    op_message,
    renewed_half,
)
from rmqha.broker.groups.aio.ports import Broker
from rmqha.broker.topics.topic_table import TopicConfig
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import ext_fields
from rmqha.remoting.topic_names import ROCKSDB_HALF_TOPIC
from rmqha.runtime.logs import Logger
from rmqha.store import properties as props
from rmqha.store.aio.cold_reads import NotInMemory
from rmqha.store.aio.commit_log import AppendResult
from rmqha.store.aio.record_walk import LOOKS_A_TURN, RecordWalk, places
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

HOUR_MS = 3_600_000


class TransactionService:
    """Half messages of one broker.

    Attributes:
        open: what this broker knows of them while it reigns.
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
        self._open_max = config.integer("transactionsOpenMax")
        self._store_host = pack_host(config.host, config.port)
        self._keep_ms = config.store.file_reserved_time * HOUR_MS
        self._check_ms = 0
        # Half messages before it are asked about in this round; those behind it are renewed ones.
        self._round_to: int | None = None
        self._to_tell: list[tuple[Message, AppendResult]] = []
        self._walk = RecordWalk(broker.store)
        self.open = OpenTransactions(0, 0, self._open_max)
        self.is_known = False

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
        ends = self.open.to_end(half.queue_offset, first_offset(half))
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
        return self._op(ends)

    async def becomes_known(self) -> bool:
        """Wait until :attr:`is_known`; False if that takes long, or the reign is over."""
        clock = self._broker.clock
        until_ms = clock.now_ms() + KNOWN_MS
        while not self.is_known and self._writer.is_open and clock.now_ms() < until_ms:
            await clock.sleep(READABLE_MS)
        return self.is_known

    def _op(self, half_offsets: list[int]) -> int:
        """Write that half messages have ended; where the record ends."""
        wall_ms = self._broker.clock.wall_ms()
        message = op_message(half_offsets, wall_ms, self._store_host, self._unique_ids.next())
        result = self._writer.append(message)
        self.open.answered(half_offsets)
        return result.end

    # -- the service -------------------------------------------------------------------------------

    def begin(self) -> None:
        """A reign begins, and soon runs this service."""
        offsets = self._broker.offsets.table
        self.is_known = False
        self.open = OpenTransactions(
            offsets.query(GROUP, HALF_TOPIC, QUEUE) or 0,
            offsets.query(GROUP, OP_TOPIC, QUEUE) or 0,
            self._open_max,
        )
        self._check_ms = self._broker.clock.now_ms() + self._interval_ms
        self._round_to = None
        self._to_tell, self._walk = [], RecordWalk(self._broker.store)
        self._tell_of_unserved()

    def _tell_of_unserved(self) -> None:
        """Java's masters with ``transRocksDBEnable`` keep theirs elsewhere, and what was open there is lost."""
        reader = self._broker.store.reader
        low, high = (
            find(ROCKSDB_HALF_TOPIC, QUEUE) for find in (reader.min_offset, reader.max_offset)
        )
        if high > max(low, 0):
            self._log.log(
                "error", "transactions_unserved", topic=ROCKSDB_HALF_TOPIC, stored=high - max(low, 0),
                advice="leave transRocksDBEnable off in sets with replicas of rmqha",
            )  # fmt: skip

    async def run(self) -> None:
        """Read both topics and ask, until cancelled.

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
                self._tell_all()
                if not more:
                    self._check_ms, self._round_to = clock.now_ms() + self._interval_ms, None
            await self._keep()
            waited = await self._walk.fetch()
            await clock.sleep(0 if more or waited else LOOK_MS)

    async def _keep(self) -> None:
        """Remember how far all transactions have ended, once that is safe."""
        offsets = self._broker.offsets
        kept = self.open.kept()
        if kept == tuple(offsets.table.query(GROUP, t, QUEUE) for t in (HALF_TOPIC, OP_TOPIC)):
            return
        if not await self._writer.settle(self._broker.store.dispatched_offset):
            return
        wall_ms = self._broker.clock.wall_ms()
        for topic, offset in zip((HALF_TOPIC, OP_TOPIC), kept, strict=True):
            offsets.table.commit(GROUP, topic, QUEUE, offset, wall_ms)
        offsets.changed()

    def _read(self) -> bool:
        """Read what is new; whether there may be more."""
        try:
            return self._read_all()
        except NotInMemory:
            return True

    def _read_all(self) -> bool:
        """The same, as far as it is in memory. Op messages first: they need no room.

        Raises:
            NotInMemory: what comes next would have to wait.
        """
        reader = self._broker.store.reader
        left = LOOKS_A_TURN
        while left and self.open.op_next < reader.max_offset(OP_TOPIC, QUEUE):
            at, left = self.open.op_next, left - 1
            record = self._record(OP_TOPIC, at)
            if record is None:
                self.open.skip_ops(max(at + 1, reader.min_offset(OP_TOPIC, QUEUE)))
            else:
                self.open.op(at, self._ended(record))
        while left and self.open.half_next < reader.max_offset(HALF_TOPIC, QUEUE):
            if self.open.is_full:
                return False
            at, left = self.open.half_next, left - 1
            record = self._record(HALF_TOPIC, at)
            if record is None:
                self.open.skip_halves(max(at + 1, reader.min_offset(HALF_TOPIC, QUEUE)))
            else:
                self.open.half(self._opened(at, record))
        return not left

    def _ended(self, op: Record) -> list[int]:
        """What an op message ends; one that says nothing of the kind is set aside."""
        found = ended_offsets(op)
        if not found:
            self._skipped("op_message_illegal", op, "it ends nothing")
        return found

    def _skipped(self, event: str, record: Record, reason: str) -> None:
        self._broker.statistics.records_skipped += 1
        self._log.log("error", event, offset=record.physical_offset, reason=reason)

    def _record(self, topic: str, at: int) -> Record | None:
        unit = self._broker.store.reader.unit(topic, QUEUE, at)
        try:
            record = None if unit is None else self._walk.look(unit.physical_offset)
        except NotInMemory:
            self._walk.ahead(places(self._broker.store.reader, topic, QUEUE, at))
            raise
        return record if record is not None and record.queue_offset == at else None

    def _opened(self, at: int, half: Record) -> Open:
        ask_ms = half.store_timestamp
        if not check_times(half.properties):
            # One that the log has lost before is in the way of others for no longer than that.
            ask_ms += min(immunity_ms(half.properties, self._timeout_ms), self._keep_ms)
        return Open(at, half.physical_offset, ask_ms, first_offset(half))

    def _ask(self, stretch: Stretch) -> tuple[int, bool]:
        """Ask about what has been open for too long.

        Returns:
            Where the last record ends that was written, 0 for none; and whether there is more.
        """
        if not self._writer.is_open:
            return 0, False
        if self._round_to is None:
            self._round_to = self.open.half_next
        end = 0
        found = self.open.to_ask(self._broker.clock.wall_ms(), self._round_to, ASK_MAX)
        for index, one in enumerate(found):
            try:
                half = self._walk.look(one.physical_offset)
            except NotInMemory:
                self._walk.ahead(later.physical_offset for later in found[index:])
                return end, True
            if not stretch.takes(OP_BYTES + (0 if half is None else half.size), 2):
                return end, True
            try:
                end = self._renew(one, half)
            except MessageIllegal as error:
                self._broker.statistics.records_skipped += 1
                # A release that did not look, or Java's, has taken it.
                self._log.log("error", "half_message_illegal", reason=str(error))
                if half is not None:
                    self._put_aside(half)
                end = self._op([one.queue_offset])
        return end, len(found) == ASK_MAX

    def _renew(self, one: Open, half: Record | None) -> int:
        if half is None:
            self._log.log("error", "half_message_expired", offset=one.physical_offset)
            return self._op([one.queue_offset])
        if real_place(half.properties) is None:
            self._skipped("half_message_illegal", half, "it does not say where it belongs")
            return self._op([one.queue_offset])
        old = self._broker.clock.wall_ms() - half.store_timestamp > self._keep_ms
        if old or check_times(half.properties) >= self._checks_max:
            self._log.log("error", "transaction_given_up", offset=one.physical_offset)
            self._put_aside(half)
            return self._op([one.queue_offset])
        message = renewed_half(half)
        result = self._writer.append(message)
        end = self._op([one.queue_offset])
        self._to_tell.append((message, result))
        return end

    def _put_aside(self, half: Record) -> None:
        """Store it where people look, in a topic that they can read."""
        topic = TopicConfig(EXPIRED_TOPIC, 1, 1)
        if self._broker.metadata.make_topic(topic) is None:
            self._log.log("error", "topic_not_made", topic=EXPIRED_TOPIC)
        try:
            self._writer.append(expired_message(half))
        except MessageIllegal as error:
            self._skipped("half_message_illegal", half, str(error))

    def _tell_all(self) -> None:
        """Ask the producers, now that what they answer with can be read: it is refused before."""
        found, self._to_tell = self._to_tell, []
        for message, result in found:
            self._tell(message, result.queue_offset, result.offset, result.msg_id)

    def _tell(self, half: Message, queue_offset: int, physical_offset: int, msg_id: str) -> None:
        """Send 39 to one producer of the group; without one the next round asks again."""
        pairs = half.properties
        group = _text(pairs, b"PGROUP")
        client = self._broker.producers.pick(group)
        if client is None:
            self._log.log("warning", "transaction_without_producer", group=group)
            return
        key = _text(pairs, b"UNIQ_KEY")
        topic, queue_id = real_place(pairs) or ("", 0)
        fields = ext_fields(
            topic=HALF_TOPIC, tranStateTableOffset=queue_offset, commitLogOffset=physical_offset,
            msgId=key, transactionId=key, offsetMsgId=msg_id,
            bname=self._broker.config.broker_name,
        )  # fmt: skip
        shown = half._replace(topic=topic, queue_id=queue_id)
        body = bytearray(encoded_size(shown, property_crc=False))
        encode_into(
            body, 0, shown, size=len(body), queue_offset=queue_offset,
            physical_offset=physical_offset, store_timestamp=self._broker.clock.wall_ms(),
        )  # fmt: skip
        command = RemotingCommand(
            RequestCode.CHECK_TRANSACTION_STATE, ext_fields=fields, body=bytes(body)
        )
        self._broker.clients.oneway(client.connection, command)


def _text(properties: bytes, name: bytes) -> str:
    value = props.find(properties, name)
    return "" if value is None else value.decode("utf-8", "replace")
