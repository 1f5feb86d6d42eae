"""What one queue gives to a pop: read, written into a check point, and collected.

A check point is a message of the broker's own, and in the log before anything of it goes out. What
is popped in order has none, and moves no offset: see ``broker/pop/order.py``.
"""

from __future__ import annotations

from collections.abc import Callable

from rmqha.base.errors import MessageIllegal
from rmqha.broker.common.refusal import Refusal
from rmqha.broker.deferred.aio.master_services import MasterServices
from rmqha.broker.deferred.delays import place
from rmqha.broker.pop.aio.collected import Cold, Taken, records_of, shown_as
from rmqha.broker.pop.aio.ordered import OrderedPops
from rmqha.broker.pop.aio.pop_answers import Asked
from rmqha.broker.pop.aio.pop_positions import PopPositions
from rmqha.broker.pop.check_points import CheckPoint
from rmqha.broker.pop.offsets import Key as PopPlace
from rmqha.broker.pop.queue_choice import points_nowhere
from rmqha.broker.pop.request import Handed, PopRequest
from rmqha.broker.pull.aio.ports import Broker
from rmqha.broker.pull.held import Key
from rmqha.broker.pull.request import BYTES_MAX, SCAN_MAX, TRANSFER_BYTES_MAX, transfer_of
from rmqha.remoting.topic_names import REVIVE_TOPIC
from rmqha.store.aio.pulling import Pulled
from rmqha.store.record import pack_host


class QueueTakes:
    """Takes messages from queues.

    Args:
        on_whole: told the queues in which a damaged record was mended.
    """

    def __init__(
        self, broker: Broker, services: MasterServices, orders: OrderedPops,
        positions: PopPositions, on_whole: Callable[[list[Key]], None],
    ) -> None:  # fmt: skip
        config = broker.config
        self._broker = broker
        self._services = services
        self._orders = orders
        self._positions = positions
        self._on_whole = on_whole
        self._pulling = broker.store.pulling
        self._revive_topic = REVIVE_TOPIC + config.cluster_name
        self._host = pack_host(config.host, config.port)

    def take(self, asked: Asked, taken: Taken, topic: str, queue_id: int) -> None:
        """Collect what a queue has, or note what of it has to be fetched into memory first.

        Raises:
            MessageIllegal, DiskFailed: a check point cannot be written.
        """
        key = (asked.pop.consumer_group, topic, queue_id)
        looked = self._look(asked, taken, key)
        if looked is None:
            return
        offset, found = looked
        if taken.count and taken.size + found.size > TRANSFER_BYTES_MAX:
            # A queue gives one message at least, and many of 1 MiB would fit into no frame.
            taken.rest += max(0, found.max_offset - offset)
            return
        cold = Cold(topic, queue_id, found)
        # Nobody looks into messages of which there is only to be told.
        looks = found.missing or not asked.tells
        if looks and self._pulling.is_cold(found) and not asked.fetched.has(cold):
            taken.cold = cold
        if asked.tells:
            # Behind all that was looked at and is not wanted there may be something: a pop goes on.
            taken.count += found.messages or int(self._is_cut_short(found, offset))
            return
        if taken.cold is not None and found.messages:
            # Handed out later; what other queues have given is not held up by it.
            return
        found = self._pulling.whole(found)
        if found.damaged >= 0:
            self._mend(found.damaged, topic, queue_id)
        if found.messages:
            self._hand(asked, taken, topic, queue_id, offset, found)
        elif found.next_offset > offset and not points_nowhere(found.status):
            # Nothing of it was wanted.
            taken.passed = taken.passed or self._is_cut_short(found, offset)
            self._positions.move(key, found.next_offset, 0)
        taken.rest += max(0, found.max_offset - found.next_offset)

    def _look(self, asked: Asked, taken: Taken, key: PopPlace) -> tuple[int, Pulled] | None:
        """What a queue has, and from where on; None while it is taken in order by others."""
        group, topic, queue_id = key
        pop, positions = asked.pop, self._positions
        begins = positions.would_begin if asked.tells else positions.next_offset
        offset = begins(key, pop.init_mode)
        if pop.order and self._orders.is_blocked((topic, group, queue_id), pop):
            return None
        found = self._read(asked, taken, topic, queue_id, offset)
        if points_nowhere(found.status) and found.next_offset != offset:
            # Files have expired, or the log was cut: the kept offset points nowhere.
            offset = found.next_offset
            if not asked.tells:
                positions.set(key, offset)
            found = self._read(asked, taken, topic, queue_id, offset)
        return offset, found

    @staticmethod
    def _is_cut_short(found: Pulled, offset: int) -> bool:
        """Whether what was looked at was passed over, and more of the queue is to be looked at."""
        return not points_nowhere(found.status) and offset < found.next_offset < found.max_offset

    def _mend(self, offset: int, topic: str, queue_id: int) -> None:
        """Others are handed out meanwhile; who waits for this queue is served once it is whole."""
        work = self._broker.store.mending.behind(
            offset, lambda: self._on_whole([(topic.encode(), queue_id)])
        )
        if work is not None:
            self._broker.tasks.start(work, name="mending for a pop")

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
            broker.config.broker_name, offsets, log_end=broker.store.max_offset,
        )  # fmt: skip
        end = self._write(point, taken.revive_queue)
        self._positions.move((pop.consumer_group, topic, queue_id), found.next_offset, end)
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
