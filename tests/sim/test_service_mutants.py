"""Bugs put on purpose into a broker's services: the simulator must find each, by the rule it breaks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import pytest

from rmqha.base.errors import RmqhaError
from rmqha.broker.common.aio.config_file import ConfigFile
from rmqha.broker.deferred import delay_offsets
from rmqha.broker.deferred.aio import delay_delivery as delivery
from rmqha.broker.deferred.aio import half_topics
from rmqha.broker.deferred.aio import timer_service as timers
from rmqha.broker.deferred.aio import transaction_service as transactions
from rmqha.broker.deferred.aio.deliveries import Deliveries
from rmqha.broker.deferred.timer_progress import TimerProgress
from rmqha.broker.deferred.timers import TimerMark
from rmqha.broker.deferred.transactions import EndRequest
from rmqha.broker.groups.offset_table import ConsumerOffsets
from rmqha.broker.groups.queue_locks import QueueLocks
from rmqha.broker.membership.aio import replication
from rmqha.broker.pop.aio import revive
from rmqha.broker.pop.aio.ack_requests import AckProcessor
from rmqha.broker.pop.check_points import CheckPoint, ReviveQueue
from rmqha.ha import membership
from rmqha.ha.membership import Membership
from rmqha.ha.settings import HaSettings
from rmqha.remoting.codes import ResponseCode
from rmqha.sim.service_swarm import run_service_seed
from tests.sim.old_stops import without_lists

Patch = Callable[[pytest.MonkeyPatch], None]


def delays_begin_at_the_end(patch: pytest.MonkeyPatch) -> None:
    """A new master takes what waits for delivered, as with an offset beyond its log."""
    begin = delay_offsets.DelayOffsets.begin

    def late(self: Any, level: int, low: int, high: int) -> int:
        self.kept[level] = high
        return begin(self, level, low, high)

    patch.setattr(delay_offsets.DelayOffsets, "begin", late)


def delays_are_due_at_once(patch: pytest.MonkeyPatch) -> None:
    """Nobody waits for a level's time."""
    patch.setattr(delivery, "due_ms", lambda tags_code, wall_ms, delay_ms: wall_ms)


def timers_are_dropped_with_the_role(patch: pytest.MonkeyPatch) -> None:
    """A new master reads only the timers of its own reign."""

    def late(self: Any, mark: TimerMark) -> int:
        return int(self._broker.store.reader.max_offset(timers.TIMER_TOPIC, timers.TIMER_QUEUE))

    patch.setattr(timers.TimerService, "_first", late)


def half_messages_are_forgotten_with_the_role(patch: pytest.MonkeyPatch) -> None:
    """A new master asks only about half messages of its own reign."""
    opened = half_topics.OpenTransactions

    def late(half_offset: int, op_offset: int, open_max: int) -> Any:
        return opened(half_offset and half_offset + 1_000_000, op_offset, open_max)

    patch.setattr(half_topics, "OpenTransactions", late)


def rollbacks_commit(patch: pytest.MonkeyPatch) -> None:
    """What the producer decided is not looked at."""
    end = transactions.TransactionService.end

    def always(self: Any, request: EndRequest, *more: Any) -> Any:
        return end(self, request._replace(decision=transactions.COMMIT), *more)

    patch.setattr(transactions.TransactionService, "end", always)


def op_messages_are_lost(patch: pytest.MonkeyPatch) -> None:
    """That a transaction has ended is known to this process only."""

    def keep(self: Any, topics: Any, half_offsets: list[int], half: Any) -> int:
        topics.open.answered(half_offsets)
        return int(self._broker.store.max_offset)

    patch.setattr(transactions.TransactionService, "_op", keep)


def revival_begins_at_the_end(patch: pytest.MonkeyPatch) -> None:
    """A new master takes all check points for done."""

    def late(self: Any, number: int) -> ReviveQueue:
        high = self._broker.store.reader.max_offset(self._topic, number)
        return ReviveQueue(high, 1_000)

    patch.setattr(revive.ReviveService, "_begin", late)


def locks_are_for_everybody(patch: pytest.MonkeyPatch) -> None:
    """Who asks for a queue gets it."""

    def grant(self: Any, now_ms: int, group: str, client_id: str, queues: Iterable[Any]) -> Any:
        return list(queues)

    patch.setattr(QueueLocks, "lock", grant)


def offsets_run_ahead(patch: pytest.MonkeyPatch) -> None:
    """A group's offset is stored one too high."""
    commit = ConsumerOffsets.commit

    def ahead(self: Any, group: str, topic: str, queue_id: int, offset: int, *more: Any) -> Any:
        return commit(self, group, topic, queue_id, offset + (topic == "Ordered"), *more)

    patch.setattr(ConsumerOffsets, "commit", ahead)


def learners_join(patch: pytest.MonkeyPatch) -> None:
    """That a slave is a learner is not looked at."""
    real = membership.Candidate

    def ordinary(slave_id: int, ack: int | None, seen: int | None, learner: bool) -> Any:
        return real(slave_id, ack, seen)

    patch.setattr(membership, "Candidate", ordinary)


def the_least_is_looked_at_before_only(patch: pytest.MonkeyPatch) -> None:
    """As Java does: the set may shrink while the put waits."""
    level = membership.acked_level

    def lenient(*, settings: HaSettings, **facts: Any) -> int:
        return level(settings=msgspec.structs.replace(settings, min_in_sync_replicas=1), **facts)

    patch.setattr(membership, "acked_level", lenient)


def masters_go_on_after_a_power_cut(patch: pytest.MonkeyPatch) -> None:
    """By Java's rule nothing was promised, so nothing seems to be lost."""
    patch.setattr(replication, "epoch_given_up", lambda last_epoch, before, *, tail_may_be_lost: 0)


def the_own_disk_does_not_count(patch: pytest.MonkeyPatch) -> None:
    """A master confirms what its slaves' disks have, and its own has not."""
    move = Membership.move_confirm

    def careless(self: Membership) -> None:
        log = self._ha.log
        flushed, log.flushed_offset = log.flushed_offset, log.max_offset
        move(self)
        log.flushed_offset = flushed

    patch.setattr(Membership, "move_confirm", careless)


def positions_are_written_before_the_log(patch: pytest.MonkeyPatch) -> None:
    """Files say of deliveries what no disk has yet."""
    without_lists(patch)
    begin = ConfigFile.__init__

    def early(self: Any, *given: Any, after: Any = None, **named: Any) -> None:
        begin(self, *given, **named)

    patch.setattr(ConfigFile, "__init__", early)


def timers_count_when_they_are_in_the_log(patch: pytest.MonkeyPatch) -> None:
    """An acknowledgement that is not in the queues yet is not waited for."""
    dispatched = TimerProgress.dispatched

    def early(self: TimerProgress, offset: int, queue_end: int) -> None:
        dispatched(self, 1 << 60, queue_end)

    patch.setattr(TimerProgress, "dispatched", early)


def timers_come_twice(patch: pytest.MonkeyPatch) -> None:
    """A timer that is due is written two times."""
    write = timers.TimerService._write

    def twice(self: Any, timer: Any, record: Any) -> int:
        write(self, timer, record)
        return write(self, timer, record)

    patch.setattr(timers.TimerService, "_write", twice)


def delays_come_twice(patch: pytest.MonkeyPatch) -> None:
    """A delayed message that is due is written two times."""
    write = delivery.DelayDelivery._write

    def twice(self: Any, record: Any) -> int:
        write(self, record)
        return write(self, record)

    patch.setattr(delivery.DelayDelivery, "_write", twice)


def commits_come_twice(patch: pytest.MonkeyPatch) -> None:
    """What was committed is written two times with the half message's end."""
    append, end = Deliveries.append, transactions.TransactionService.end

    def twice(self: Any, request: EndRequest, *more: Any) -> Any:
        def doubled(deliveries: Any, message: Any) -> Any:
            append(deliveries, message)
            return append(deliveries, message)

        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(Deliveries, "append", doubled)
            return end(self, request, *more)

    patch.setattr(transactions.TransactionService, "end", twice)


def delays_are_twenty_seconds_late(patch: pytest.MonkeyPatch) -> None:
    """They come, but nobody waits so long."""
    due = delivery.due_ms
    patch.setattr(
        delivery, "due_ms", lambda tags_code, wall_ms, delay_ms: due(tags_code, wall_ms, delay_ms) + 20_000
    )  # fmt: skip


def invisible_time_is_halved(patch: pytest.MonkeyPatch) -> None:
    """What was popped comes back early."""
    half = property(lambda self: self.pop_ms + self.invisible_ms // 2)
    patch.setattr(CheckPoint, "revive_ms", half)


def changed_invisible_time_is_ignored(patch: pytest.MonkeyPatch) -> None:
    """It is answered, and that is all."""

    def change(self: Any, connection: Any, request: Any) -> Any:
        return request.reply(
            ResponseCode.SUCCESS, None, {"popTime": "0", "invisibleTime": "0", "reviveQid": "0"}
        )

    patch.setattr(AckProcessor, "change", change)


def delivered_without_properties(patch: pytest.MonkeyPatch) -> None:
    """What waited comes without key and tag."""
    append = Deliveries.append

    def bare(self: Any, message: Any) -> Any:
        own = message.topic == "Served"
        return append(self, message._replace(properties=b"") if own else message)

    patch.setattr(Deliveries, "append", bare)


TWICE = "a message is delivered twice in one reign"
EARLY = "a message is popped before its invisible time is over"

MUTANTS = (
    (timers_come_twice, 5, TWICE),
    (delays_come_twice, 5, TWICE),
    (commits_come_twice, 5, TWICE),
    (delays_are_twenty_seconds_late, 5, "a delayed message is late"),
    (invisible_time_is_halved, 6, EARLY),
    (changed_invisible_time_is_ignored, 8, EARLY),
    (delivered_without_properties, 5, "a message is delivered with other properties"),
    (timers_count_when_they_are_in_the_log, 15, "a message that was acknowledged is popped again"),
    (positions_are_written_before_the_log, 230, "a timer is late"),
    (delays_begin_at_the_end, 5, "a delayed message is late"),
    (delays_are_due_at_once, 5, "a message is delivered before its time"),
    (timers_are_dropped_with_the_role, 5, "a timer is late"),
    (half_messages_are_forgotten_with_the_role, 5, "a committed transaction is late"),
    (rollbacks_commit, 5, "a transaction that was rolled back is delivered"),
    (op_messages_are_lost, 5, "a transaction that ended is still taken for open"),
    (revival_begins_at_the_end, 5, "a message that nobody acknowledged is popped no more"),
    (locks_are_for_everybody, 5, "two consumers hold the lock of a queue"),
    (offsets_run_ahead, 8, "messages came in another order than they were sent"),
    (learners_join, 8, "a learner is in the SyncStateSet"),
    # Seen by the check, or by the slave: what comes next stands in the midst of a record of its own.
    (
        masters_go_on_after_a_power_cut, 31,
        "two histories of one epoch|below the confirmed [0-9]+: (unknown magic|its parts are not|body of)",
    ),
    (the_own_disk_does_not_count, 991_187, "two logs differ before the confirmOffset"),
    (the_least_is_looked_at_before_only, 26, "fewer hold a message than its rule asks for"),
)  # fmt: skip


@pytest.mark.sim
@pytest.mark.slow
@pytest.mark.turns(3)
@pytest.mark.parametrize(
    ("mutant", "seed", "rule"), MUTANTS, ids=lambda m: getattr(m, "__name__", "")
)
def test_the_simulator_finds_a_bug_put_in_on_purpose(
    mutant: Patch, seed: int, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the rule that it breaks, at a seed that is known to find it."""
    mutant(monkeypatch)
    with pytest.raises(RmqhaError, match=rule):
        run_service_seed(seed)
