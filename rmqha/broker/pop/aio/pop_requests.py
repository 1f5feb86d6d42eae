"""Requests 200050, 200054 and 200055: messages for whoever asks, without owning a queue.

What is handed out is in a check point first, which is a message of the broker's own; then the
group's offset moves on. A pop that finds nothing is held like a pull, until any of its queues, or
the group's retry topic, has something. What is popped in order has no check point and moves no
offset: see ``broker/pop/order.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rmqha.base.errors import DiskFailed, MessageIllegal
from rmqha.broker.common.aio.ports import Handlers
from rmqha.broker.common.refusal import Refusal
from rmqha.broker.deferred.aio.master_services import MasterServices
from rmqha.broker.deferred.delays import place
from rmqha.broker.groups.consumers import Subscription
from rmqha.broker.pop.aio.collected import (
    NOTHING_FETCHED,
    Cold,
    Fetched,
    Taken,
    records_of,
    shown_as,
)
from rmqha.broker.pop.aio.ordered import OrderedPops
from rmqha.broker.pop.check_points import CheckPoint
from rmqha.broker.pop.held import HeldPops
from rmqha.broker.pop.offsets import Key as OffsetKey
from rmqha.broker.pop.offsets import PopOffsets
from rmqha.broker.pop.queue_choice import (
    begins_with_oldest,
    known_offset,
    newest_start,
    queues_in_turn,
)
from rmqha.broker.pop.request import (
    ORDER_REVIVE_QUEUE,
    Handed,
    PopRequest,
    check_pop,
    parse_pop,
    pop_fields,
)
from rmqha.broker.pull.aio.ports import Broker
from rmqha.broker.pull.aio.pull_requests import FENCED
from rmqha.broker.pull.filters import PARSE_FAILED, Matches
from rmqha.broker.pull.held import Held, Key
from rmqha.broker.pull.request import BYTES_MAX, SCAN_MAX, transfer_of
from rmqha.ha.events import Role
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import ext_fields
from rmqha.remoting.topic_names import PERM_READ, REVIVE_TOPIC, retry_topic_of
from rmqha.runtime.aio.earliest import EarliestTimer
from rmqha.store.aio.pulling import Pulled
from rmqha.store.record import pack_host

SLAVE_REFUSES = "[REJECTREQUEST]system busy, start flow control for a while: pop at the master"
SETTLE_PAUSE_MS = 50
_MOVED = ("OFFSET_TOO_SMALL", "OFFSET_OVERFLOW_BADLY", "NO_MATCHED_LOGIC_QUEUE")


class Asked(NamedTuple):
    """A pop that was checked, or with ``tells`` a question whether one would bring something.

    Attributes:
        until_ms: it waits so long.
        fetched: what was brought into memory for it.
    """

    connection: Connection
    request: RemotingCommand
    pop: PopRequest
    wanted: Subscription
    matches: Matches | None
    tells: bool
    until_ms: int
    fetched: Fetched = NOTHING_FETCHED


class PopProcessor:
    """Hands messages out."""

    def __init__(self, broker: Broker, services: MasterServices, orders: OrderedPops) -> None:
        config, store = broker.config, broker.store
        self._broker = broker
        self._services = services
        self._held: HeldPops[Asked] = HeldPops(
            config.integer("popPollingMapSize"), config.integer("popPollingSize")
        )
        self._pulling = store.pulling
        self._told = self._arrived
        self._orders = orders
        orders.on_free = lambda topic, queue_id: self._arrived([(topic.encode(), queue_id)])
        self._revive_topic = REVIVE_TOPIC + config.cluster_name
        self._revive_queues = config.integer("reviveQueueNum")
        self._host = pack_host(config.host, config.port)
        self._poll_ms_max = config.integer("heldPullTimeMax")
        self._offsets = PopOffsets()
        self._settling = False
        self._mended: set[int] = set()
        self._timer = EarliestTimer(broker.clock, self._tick)
        self._turn = 0

    def handlers(self) -> Handlers:
        """By request code."""
        return {
            RequestCode.POP_MESSAGE: self.pop,
            RequestCode.NOTIFICATION: self.notification,
            RequestCode.POLLING_INFO: self.polling_info,
        }

    @property
    def held_count(self) -> int:
        """Pops that wait."""
        return len(self._held)

    def popped_to(self, key: OffsetKey) -> int | None:
        """Where the next pop of a queue begins; None where the kept offset says so."""
        return self._offsets.at(key)

    def close(self) -> None:
        """Forget held pops; their connections are closing."""
        for held in self._held.all():
            self._drop(held)
        self._timer.cancel()
        self._orders.close()

    def closed(self, connection: Connection) -> None:
        """A connection has ended."""
        for key in self._held.closed(connection.id):
            self._broker.arrivals.unwatch(key, self._told)

    def role_changed(self) -> None:
        """A role was taken up: kept offsets count again, and everybody asks anew."""
        self._offsets.clear()
        for held in self._held.all():
            self._answer_now(held)

    # -- requests ----------------------------------------------------------------------------------

    def pop(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """Hand out messages for a time (200050)."""
        return self._ask(connection, request, tells=False)

    def notification(
        self, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand | None:
        """200054: tell when there is something to pop."""
        return self._ask(connection, request, tells=True)

    def polling_info(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """200055: how many pops are held."""
        pop = parse_pop(request.ext_fields)
        count = self._held.count(self._held_key(pop))
        return request.reply(ResponseCode.SUCCESS, None, ext_fields(pollingNum=count))

    def _ask(
        self, connection: Connection, request: RemotingCommand, *, tells: bool
    ) -> RemotingCommand | None:
        pop = parse_pop(request.ext_fields)
        if tells:
            pop = pop._replace(max_msg_nums=1, invisible_ms=0)
        refusal = self._closed()
        wanted = refusal or self._checked(pop)
        if isinstance(wanted, Refusal):
            return request.reply(wanted.code, wanted.remark)
        # As in Java, enablePropertyFilter is not asked for here.
        matches = self._broker.selectors.matches(wanted)
        if isinstance(matches, str):
            return request.reply(ResponseCode.SUBSCRIPTION_PARSE_FAILED, PARSE_FAILED)
        until_ms = self._broker.clock.now_ms() + min(pop.poll_ms, self._poll_ms_max)
        asked = Asked(connection, request, pop, wanted, matches, tells, until_ms)
        self._serve_or_hold(asked)
        return None

    def _serve_or_hold(self, asked: Asked) -> None:
        try:
            if not self._serve(asked):
                self._hold(asked)
        except (MessageIllegal, DiskFailed) as error:
            asked.connection.send(asked.request.reply(ResponseCode.SYSTEM_ERROR, str(error)))

    async def _serve_cold(self, asked: Asked, cold: Cold) -> None:
        """Serve once what was found is in memory; looking into it would wait for the disk."""
        await self._pulling.fetch(cold.found)
        refusal = self._closed()
        if refusal is not None:
            asked.connection.send(asked.request.reply(refusal.code, refusal.remark))
            return
        self._serve_or_hold(asked._replace(fetched=asked.fetched.and_then(cold)))

    def _closed(self) -> Refusal | None:
        role = self._broker.role
        if role is None:
            return Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, FENCED)
        if role is Role.SLAVE:
            return Refusal(ResponseCode.SYSTEM_BUSY, SLAVE_REFUSES)
        if not self._broker.config.integer("brokerPermission") & PERM_READ:
            return Refusal(ResponseCode.NO_PERMISSION, "the broker pop message is forbidden")
        if not self._services.rules.timers:
            return Refusal(
                ResponseCode.SYSTEM_ERROR, "pop message is forbidden: timerWheelEnable is false"
            )
        if not self._services.writer.is_open:
            return Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "check points cannot be written now")
        return None

    def _checked(self, pop: PopRequest) -> Subscription | Refusal:
        broker = self._broker
        return check_pop(
            pop,
            broker.groups.find(pop.consumer_group, may_write=True),
            broker.topics.table.get(pop.topic),
            self._services.rules.delay_max_ms,
        )

    # -- one pop -----------------------------------------------------------------------------------

    def _queues(self, pop: PopRequest, turn: int) -> Iterator[tuple[str, int]]:
        topics = self._broker.topics.table.topics
        retry = topics.get(retry_topic_of(pop.topic, pop.consumer_group))
        return queues_in_turn(pop, topics.get(pop.topic), retry, turn, in_order=pop.order)

    def _serve(self, asked: Asked) -> bool:
        """Answer if there is something, now or once it is in memory.

        Raises:
            MessageIllegal, DiskFailed: a check point cannot be written.
        """
        pop = asked.pop
        self._turn += 1
        revive_queue = ORDER_REVIVE_QUEUE if pop.order else self._turn % self._revive_queues
        taken = Taken(self._broker.clock.wall_ms(), revive_queue)
        for topic, queue_id in self._queues(pop, self._turn):
            self._take(asked, taken, topic, queue_id)
            if taken.cold is not None or (taken.count and asked.tells):
                break
        if not taken.count and taken.cold is not None:
            work = self._serve_cold(asked, taken.cold)
            self._broker.answers.start(work, asked.connection, asked.request, name="cold pop")
            return True
        if not taken.count:
            if taken.passed:
                self._look_on(pop)
            return False
        if asked.tells:
            self._tell(asked, has_message=True)
        else:
            self._answer(asked, taken)
        return True

    def _look_on(self, pop: PopRequest) -> None:
        """A pop that waits is to look at the rest when others have had their turn."""
        keys = [(topic.encode(), number) for topic, number in self._queues(pop, 0)]
        self._broker.clock.call_later(0, self._arrived, keys)

    def _take(self, asked: Asked, taken: Taken, topic: str, queue_id: int) -> None:
        pop = asked.pop
        key = (pop.consumer_group, topic, queue_id)
        offset = self._position(key, pop.init_mode)
        if pop.order and self._orders.is_blocked((topic, pop.consumer_group, queue_id), pop):
            return
        found = self._read(asked, taken, topic, queue_id, offset)
        if found.status in _MOVED and found.next_offset != offset:
            # Files have expired, or the log was cut: the kept offset points nowhere.
            self._offsets.reset(key)
            self._keep(key, found.next_offset)
            offset = found.next_offset
            found = self._read(asked, taken, topic, queue_id, offset)
        cold = Cold(topic, queue_id, found)
        # Nobody looks into messages of which there is only to be told.
        looks = found.missing or not asked.tells
        if looks and self._pulling.is_cold(found) and not asked.fetched.has(cold):
            taken.cold = cold
        if asked.tells:
            taken.count += found.messages
            return
        if taken.cold is not None and found.messages:
            # Handed out later; what other queues have given is not held up by it.
            return
        found = self._pulling.whole(found)
        if found.damaged >= 0:
            self._mend(found.damaged, topic, queue_id)
        if found.messages:
            self._hand(asked, taken, topic, queue_id, offset, found)
        elif found.next_offset > offset and found.status not in _MOVED:
            # Nothing of it was wanted.
            taken.passed = taken.passed or found.next_offset < found.max_offset
            self._move(key, found.next_offset, 0)
        taken.rest += max(0, found.max_offset - found.next_offset)

    def _mend(self, offset: int, topic: str, queue_id: int) -> None:
        """Others are handed out meanwhile; who waits for this queue is served once it is whole."""
        mending = self._broker.store.mending
        if mending.mender is None or offset in self._mended:
            return

        async def mend() -> None:
            try:
                if await mending.mend(offset):
                    self._arrived([(topic.encode(), queue_id)])
            finally:
                self._mended.discard(offset)

        self._mended.add(offset)
        self._broker.tasks.start(mend(), name="mending for a pop")

    def _read(self, asked: Asked, taken: Taken, topic: str, queue_id: int, offset: int) -> Pulled:
        count = asked.pop.max_msg_nums - taken.count
        bytes_max = max(1, BYTES_MAX - taken.size)
        retried = topic != asked.pop.topic
        matches = None if retried else asked.matches
        return self._pulling.read(
            topic, queue_id, offset, None if retried else asked.wanted.hashes,
            count_max=max(0, count), bytes_max=bytes_max,
            transfer=transfer_of(self._broker.near_bytes, self._broker.config.values),
            scan_max=SCAN_MAX if matches is None else matches.scan_max, matches=matches,
            fetched_to=asked.fetched.end_in(topic, queue_id),
        )  # fmt: skip

    def _hand(
        self, asked: Asked, taken: Taken, topic: str, queue_id: int, offset: int, found: Pulled
    ) -> None:
        """Write the check point of what was read, and collect it."""
        pop, broker = asked.pop, self._broker
        offsets = tuple(at for at, _, _ in records_of(found.parts))
        if pop.order:
            self._hand_in_order(pop, taken, Handed(topic, queue_id, offset, offsets), found)
            return
        point = CheckPoint(
            topic, pop.consumer_group, queue_id, offset, taken.pop_ms, pop.invisible_ms,
            broker.config.broker_name, offsets,
        )  # fmt: skip
        self._move((pop.consumer_group, topic, queue_id), found.next_offset,
                   self._write(point, taken.revive_queue))  # fmt: skip
        taken.handed.append(Handed(topic, queue_id, offset, offsets))
        retried = topic != pop.topic
        taken.parts += (
            shown_as(broker.store.reader, found.parts, point, taken.revive_queue, pop.topic)
            if retried
            else found.parts
        )
        self._count(pop, taken, topic, found)

    def _hand_in_order(self, pop: PopRequest, taken: Taken, handed: Handed, found: Pulled) -> None:
        """The group's offset stays: without an acknowledgement the queue gives it all again."""
        key = (handed.topic, pop.consumer_group, handed.queue_id)
        taken.order_counts.append(self._orders.handed(key, pop, taken.pop_ms, handed.offsets))
        taken.handed.append(handed)
        taken.parts += found.parts
        self._count(pop, taken, handed.topic, found)

    def _count(self, pop: PopRequest, taken: Taken, topic: str, found: Pulled) -> None:
        taken.count += found.messages
        taken.size += found.size
        self._broker.statistics.got(topic, pop.consumer_group, found.messages, found.size)

    def _write(self, point: CheckPoint, revive_queue: int) -> int:
        wall_ms = self._broker.clock.wall_ms()
        message = point.message(self._revive_topic, revive_queue, self._host, wall_ms)
        placed = place(message, self._services.rules, wall_ms)
        if isinstance(placed, Refusal):
            raise MessageIllegal(placed.remark)
        return self._services.writer.append(placed).end

    def _answer(self, asked: Asked, taken: Taken) -> None:
        fields = ext_fields(
            **pop_fields(
                taken.handed, pop_ms=taken.pop_ms, invisible_ms=asked.pop.invisible_ms,
                revive_queue=taken.revive_queue, rest=taken.rest,
                order_counts=";".join(taken.order_counts) if asked.pop.order else None,
            )
        )  # fmt: skip
        answer = asked.request.reply(ResponseCode.SUCCESS, "FOUND", fields)
        asked.connection.send_parts(answer, taken.parts)

    def _nothing(self, asked: Asked, code: int) -> None:
        if asked.tells:
            self._tell(asked, has_message=False, full=code == ResponseCode.POLLING_FULL)
            return
        self._broker.statistics.missed()
        fields = pop_fields(
            (), pop_ms=self._broker.clock.wall_ms(), invisible_ms=asked.pop.invisible_ms,
            revive_queue=ORDER_REVIVE_QUEUE if asked.pop.order else 0, rest=0,
        )  # fmt: skip
        asked.connection.send(
            asked.request.reply(code, "NO_MESSAGE_IN_QUEUE", ext_fields(**fields))
        )

    @staticmethod
    def _tell(asked: Asked, *, has_message: bool, full: bool = False) -> None:
        fields = ext_fields(hasMsg=has_message, pollingFull=full)
        asked.connection.send(asked.request.reply(ResponseCode.SUCCESS, None, fields))

    # -- offsets -----------------------------------------------------------------------------------

    def _position(self, key: OffsetKey, init_mode: int) -> int:
        group, topic, queue_id = key
        table = self._broker.offsets.table
        resets = self._broker.config.boolean("useServerSideResetOffset")
        moved = table.take_reset(group, topic, queue_id) if resets else None
        if moved is not None:
            self._offsets.reset(key)
            self._orders.forget((topic, group, queue_id))
            self._keep(key, moved)
            return moved
        known = known_offset(self._offsets.at(key), table.query(group, topic, queue_id))
        if known is not None:
            return known
        first = self._first(topic, queue_id, init_mode)
        self._keep(key, first)
        return first

    def _first(self, topic: str, queue_id: int, init_mode: int) -> int:
        """Where a group begins that has no offset."""
        store = self._broker.store
        low = max(0, store.reader.min_offset(topic, queue_id))
        if begins_with_oldest(topic, init_mode):
            return low
        place_of_first = self._pulling.place(topic, queue_id, 0)
        lag = None if place_of_first is None else store.max_offset - place_of_first
        high = store.reader.max_offset(topic, queue_id)
        return newest_start(low, high, lag, self._broker.near_bytes)

    def _keep(self, key: OffsetKey, offset: int) -> None:
        offsets = self._broker.offsets
        if offsets.table.commit(*key, offset, self._broker.clock.wall_ms()):
            offsets.changed()

    def _move(self, key: OffsetKey, offset: int, end: int) -> None:
        if self._offsets.moved(key, offset, end):
            self._keep(key, offset)
        elif not self._settling:
            self._settling = True
            self._broker.tasks.start(self._settle(), name="pop offsets")

    async def _settle(self) -> None:
        """Keep offsets as their check points become safe; raises DiskFailed."""
        broker, offsets = self._broker, self._offsets
        try:
            while len(offsets) and broker.role is Role.MASTER:
                end = offsets.end
                if not await self._services.writer.settle(end):
                    await broker.clock.sleep(SETTLE_PAUSE_MS)
                    continue
                for key, offset in offsets.settled(end):
                    self._keep(key, offset)
        finally:
            self._settling = False

    # -- held pops ---------------------------------------------------------------------------------

    @staticmethod
    def _held_key(pop: PopRequest) -> Key:
        return f"{pop.topic}@{pop.consumer_group}".encode(), pop.queue_id

    def _hold(self, asked: Asked) -> None:
        pop, clock = asked.pop, self._broker.clock
        key = self._held_key(pop)
        is_over = asked.until_ms <= clock.now_ms()
        if is_over or self._held.is_full(key):
            self._nothing(
                asked, ResponseCode.POLLING_TIMEOUT if is_over else ResponseCode.POLLING_FULL
            )
            return
        queues = [(topic.encode(), number) for topic, number in self._queues(pop, 0)]
        retry = retry_topic_of(pop.topic, pop.consumer_group)
        queues.append((retry.encode(), 0))  # it may not be there yet
        for queue in self._held.hold(asked.connection.id, key, asked, asked.until_ms, queues):
            self._broker.arrivals.watch(queue, self._told)
        self._timer.arm(self._held.next_deadline_ms)

    def _drop(self, held: Held[Asked]) -> None:
        for key in self._held.drop(held):
            self._broker.arrivals.unwatch(key, self._told)

    def _arrived(self, keys: list[Key]) -> None:
        """Queues have grown: the oldest who wait get what is there."""
        for held in self._held.waiting_for(keys):
            if held.asked.connection.is_write_paused:
                continue
            if self._closed() is not None or self._look(held):
                continue

    def _look(self, held: Held[Asked]) -> bool:
        try:
            served = self._serve(held.asked)
        except (MessageIllegal, DiskFailed) as error:
            served = True
            asked = held.asked
            asked.connection.send(asked.request.reply(ResponseCode.SYSTEM_ERROR, str(error)))
        if served:
            self._drop(held)
        return served

    def _answer_now(self, held: Held[Asked]) -> None:
        """A held pop's time is over."""
        refusal = self._closed()
        if refusal is not None:
            self._drop(held)
            asked = held.asked
            asked.connection.send(asked.request.reply(refusal.code, refusal.remark))
        elif not self._look(held):
            self._drop(held)
            self._nothing(held.asked, ResponseCode.POLLING_TIMEOUT)

    def _tick(self) -> None:
        for held in self._held.due(self._broker.clock.now_ms()):
            self._answer_now(held)
        self._timer.arm(self._held.next_deadline_ms)
