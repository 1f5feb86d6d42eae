"""A cluster of broker sets, as far as logical queues are concerned: pure, and open to look into."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from rmqha.statictopic.known import Known, KnownTopic, histories
from rmqha.statictopic.mapping import LogicQueueMappingItem, Segments
from rmqha.statictopic.plan import Change
from rmqha.statictopic.rules import topic_error, updated
from rmqha.statictopic.steps import Look, Step, check, steps
from rmqha.statictopic.translate import PullAnswer, led_by, logical_answer, segment_at
from tests.statictopic.examples import TOPIC

PULLS_MAX = 1_000


class PhysicalQueue:
    """Messages from ``low`` on; those before have expired."""

    def __init__(self) -> None:
        self.messages: list[int] = []
        self.low = 0

    @property
    def high(self) -> int:
        return len(self.messages)


class ModelBroker:
    """One broker set.

    Attributes:
        takes_undecided: whether it takes messages of a queue whose beginning is undecided, as
            Java's do.
    """

    def __init__(self, name: str, *, takes_undecided: bool = False) -> None:
        self.name = name
        self.takes_undecided = takes_undecided
        self.knows = KnownTopic()
        self.queues: dict[int, PhysicalQueue] = {}

    def queue(self, queue_id: int) -> PhysicalQueue:
        return self.queues.setdefault(queue_id, PhysicalQueue())

    def taking(self, logical: int) -> LogicQueueMappingItem | None:
        """The segment into which it takes messages of a queue."""
        detail = self.knows.detail
        segments = led_by(detail, logical) if detail else None
        if not segments or not (segments[-1].is_decided or self.takes_undecided):
            return None
        assert segments[-1].queue_id < self.knows.write_queue_nums
        return segments[-1]


class ModelCluster:
    """Broker sets, the messages that they took, and what was said about them.

    Attributes:
        away: names of broker sets that cannot be reached.
        taken: serial numbers of messages by logical queue, in the order in which they were taken.
        told: the logical offset that a producer was told, by serial number; -1 was undecided.
        steps: how often each kind of step was carried out.
    """

    def __init__(self, names: Iterable[str], java: Iterable[str] = ()) -> None:
        javas = set(java)
        self.brokers = {name: ModelBroker(name, takes_undecided=name in javas) for name in names}
        self.away: set[str] = set()
        self.taken: dict[int, list[int]] = {}
        self.told: dict[int, int] = {}
        self.steps: Counter[str] = Counter()

    def known(self) -> Known:
        """What a command finds out."""
        present = {name: one for name, one in self.brokers.items() if name not in self.away}
        return Known(TOPIC, {name: one.knows for name, one in present.items()})

    def send(self, logical: int, count: int = 1) -> None:
        """Send messages to whoever takes them; nobody may, but never two.

        Where a new leader takes undecided ones, producers stay with the old one while it lets them.
        """
        taking = [
            (one, item)
            for one in self.brokers.values()
            if one.name not in self.away and (item := one.taking(logical)) is not None
        ]
        if any(not item.is_decided for _, item in taking):
            taking = sorted(taking, key=lambda pair: pair[1].gen)[:1]
        assert len(taking) <= 1, f"{[one.name for one, _ in taking]} take messages of {logical}"
        for broker, item in taking:
            for _ in range(count):
                serial = len(self.told)
                queue = broker.queue(item.queue_id)
                self.told[serial] = item.logical_or_bound(queue.high)
                queue.messages.append(serial)
                self.taken.setdefault(logical, []).append(serial)

    def expire(self, name: str, count: int) -> None:
        """The oldest messages of a broker go, and with the last the segment that they were in."""
        for queue in self.brokers[name].queues.values():
            queue.low = min(queue.high, queue.low + count)
        for broker in self.brokers.values():
            detail = broker.knows.detail
            if detail is None:
                continue
            lists = dict(detail.hosted_queues)
            for logical in detail.curr_id_map:
                while len(lists[logical]) > 1 and self._is_empty(lists[logical][0]):
                    lists[logical] = lists[logical][1:]
            broker.knows = KnownTopic(
                broker.knows.read_queue_nums,
                broker.knows.write_queue_nums,
                detail.with_queues(lists),
            )

    def _is_empty(self, item: LogicQueueMappingItem) -> bool:
        queue = self.brokers[item.broker_name].queue(item.queue_id)
        return queue.low == queue.high

    def refusal(self, step: Step) -> str | None:
        """Why a broker would not do what a step says."""
        if isinstance(step, Look):
            return None
        old = self.brokers[step.broker_name].knows.detail
        found = updated(old, step.detail, force=step.force)
        return found if isinstance(found, str) else None

    def carry_out(self, step: Step) -> dict[int, int]:
        """Do what a step says, by the rules of a broker."""
        broker = self.brokers[step.broker_name]
        assert step.broker_name not in self.away
        if isinstance(step, Look):
            self.steps["look"] += 1
            return {queue: broker.queue(queue).high for queue in step.queue_ids}
        self.steps[step.phase] += 1
        found = updated(broker.knows.detail, step.detail, force=step.force)
        assert not isinstance(found, str), f"{step.broker_name} refuses: {found}"
        broker.knows = KnownTopic(step.read_queue_nums, step.write_queue_nums, found)
        return {}

    def run(
        self,
        change: Change,
        crash_after: int | None = None,
        between: Callable[[], None] = lambda: None,
    ) -> bool:
        """Carry a change out; ``between`` happens after each step.

        Returns:
            Whether it came to its end.
        """
        check(change)
        after = self._walk(change, crash_after, between)
        assert after in (None, self.known()), "the plan knows something else than the brokers"
        return after is not None

    def _walk(
        self, change: Change, crash_after: int | None, between: Callable[[], None]
    ) -> Known | None:
        walk = steps(change)
        done = 0
        try:
            step = next(walk)
            while crash_after is None or done < crash_after:
                answer = self.carry_out(step)
                done += 1
                between()
                step = walk.send(answer)
        except StopIteration as end:
            after: Known = end.value
            return after
        return None

    # -- what must hold ----------------------------------------------------------------------------

    def assert_settled(self) -> None:
        """Every queue has one leader, and every broker knows the same."""
        assert topic_error(self.known().details) is None

    def assert_offsets(self) -> None:
        """Every message has one offset of its own, which nothing has ever said otherwise."""
        newest = histories(self.known())
        covered: dict[tuple[str, int], int] = {}
        for logical, segments in newest.items():
            for item in segments:
                assert covered.setdefault((item.broker_name, item.queue_id), logical) == logical
            found = self._offsets(segments)
            order = [serial for serial in self.taken.get(logical, []) if serial in found]
            offsets = [found[serial] for serial in order]
            assert offsets == sorted(set(offsets)), f"logical queue {logical} is out of order"
            for serial, offset in found.items():
                assert self.told[serial] in (-1, offset), "a producer was told something else"
        living = {
            (name, queue_id)
            for name, broker in self.brokers.items()
            for queue_id, queue in broker.queues.items()
            if queue.low < queue.high
        }
        assert living <= covered.keys(), "messages lie where no logical queue is"

    def _offsets(self, segments: Segments) -> dict[int, int]:
        """The logical offset of each message that is still there; seen to be translated back."""
        found: dict[int, int] = {}
        for item in segments:
            queue = self.brokers[item.broker_name].queue(item.queue_id)
            if not item.is_decided:
                continue
            for physical in range(queue.low, queue.high):
                logical = item.logical(physical)
                assert segment_at(segments, logical) == item, "a segment reaches into the next"
                assert item.physical(logical) == physical
                found[queue.messages[physical]] = logical
        return found

    def assert_consumed(self) -> None:
        """A consumer from the beginning on gets every message that is there, once and in order."""
        for logical, segments in histories(self.known()).items():
            alive = {
                serial
                for one in self.brokers.values()
                for queue in one.queues.values()
                for serial in queue.messages[queue.low :]
            }
            expected = [one for one in self.taken.get(logical, []) if one in alive]
            assert self._consume(segments) == expected

    def _consume(self, segments: Segments) -> list[int]:
        got: list[int] = []
        offset = 0
        for _ in range(PULLS_MAX):
            item = segment_at(segments, offset)
            assert item is not None
            physical = item.physical(offset)
            queue = self.brokers[item.broker_name].queue(item.queue_id)
            answer = _pull(queue, physical)
            if answer.code == 0:
                got += queue.messages[physical : answer.next_offset]
            answer = logical_answer(segments, item, physical, answer)
            if answer.code == 19:
                return got
            offset = answer.next_offset
        raise AssertionError("the consumer does not come to the end")


def _pull(queue: PhysicalQueue, offset: int) -> PullAnswer:
    """A broker's answer, three messages at a time."""
    if queue.low <= offset < queue.high:
        return PullAnswer(0, min(queue.high, offset + 3), queue.low, queue.high)
    if offset == queue.high:
        return PullAnswer(19, offset, queue.low, queue.high)
    return PullAnswer(21, queue.low if offset < queue.low else queue.high, queue.low, queue.high)


def steps_of(change: Change) -> list[Step]:
    """The steps of a change whose queues are all empty."""
    walk, found = steps(change), []
    try:
        step = next(walk)
        while True:
            found.append(step)
            step = walk.send(dict.fromkeys(step.queue_ids, 0) if isinstance(step, Look) else {})
    except StopIteration:
        return found
