"""Pulls that found nothing: they look again when their queue grows, and are answered in time.

Which of them a queue concerns is known by ``broker/pull/held.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Generic, Protocol, TypeVar

from rmqha.base.ids import ConnectionId
from rmqha.broker.common.aio.answers import Answers
from rmqha.broker.common.refusal import Refusal
from rmqha.broker.pull.aio.asked import Asked
from rmqha.broker.pull.aio.logical_pulls import Place
from rmqha.broker.pull.aio.ports import Broker
from rmqha.broker.pull.held import AskedT, Held, HeldPulls, Key
from rmqha.broker.pull.request import PullRequest, shortened, status_code
from rmqha.ha.events import Role
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.runtime.aio.earliest import EarliestTimer
from rmqha.runtime.aio.turns import Backlog
from rmqha.store.aio.pulling import Pulled

PULLS_A_TURN = 32
"""Of those that wait: looked at, or answered, before the loop looks at everybody else."""

FLUSHED_BYTES = 64 * 1024
"""With so much unsent the kernel is asked first whether a connection is full."""


class PutOff(Generic[AskedT]):
    """Requests that wait and were passed over, since their consumer had left earlier answers unread.

    Args:
        look_at: told those of a connection once it is not full any more.
    """

    def __init__(self, look_at: Callable[[Iterable[Held[AskedT]]], None]) -> None:
        self._look_at = look_at
        self._of: dict[ConnectionId, dict[int, Held[AskedT]]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._of.values()))

    def is_full(self, connection: Connection, held: Held[AskedT]) -> bool:
        """Whether a request has to wait for its consumer to read; then it is looked at after that."""
        if connection.unsent_bytes >= FLUSHED_BYTES:
            connection.flush()
        if not connection.is_write_paused:
            return False
        if connection.id not in self._of:
            self._of[connection.id] = {}
            connection.when_writable(self._resumed)
        self._of[connection.id][held.number] = held
        return True

    def drop(self, held: Held[AskedT]) -> None:
        """A request waits no more."""
        self._of.get(held.connection, {}).pop(held.number, None)

    def closed(self, connection: Connection) -> None:
        """A connection has ended."""
        self._of.pop(connection.id, None)

    def _resumed(self, connection: Connection) -> None:
        self._look_at(self._of.pop(connection.id, {}).values())


class Answered(Protocol):
    """What asks, and where its answer goes."""

    @property
    def connection(self) -> Connection:
        """Its client's."""

    @property
    def request(self) -> RemotingCommand:
        """What it said."""


AnsweredT = TypeVar("AnsweredT", bound=Answered)


def safely(
    answers: Answers,
    handle: Callable[[Held[AnsweredT]], None],
    drop: Callable[[Held[AnsweredT]], None],
) -> Callable[[Held[AnsweredT]], None]:
    """What goes wrong with one request that waits is answered to it, and ends neither the others nor
    who has told that its queue has grown."""

    def attempt(held: Held[AnsweredT]) -> None:
        try:
            handle(held)
        except Exception:
            drop(held)
            raise

    def safe(held: Held[AnsweredT]) -> None:
        asked = held.asked
        answers.take(partial(attempt, held), asked.connection, asked.request)

    return safe


class Serving(Protocol):
    """How a pull is served."""

    def refusal(self) -> Refusal | None:
        """Why nobody may pull now."""

    def again(self, asked: Asked) -> Asked | Refusal:
        """A pull that has waited, by what is true now; itself where it wants what it wanted."""

    def read(self, asked: Asked, offset: int) -> Pulled:
        """What is in its queue from here."""

    def serve(self, asked: Asked, found: Pulled, *, may_wait: bool) -> None:
        """Answer it, or let it wait again."""

    def once_more(self, asked: Asked, wanted: PullRequest) -> None:
        """Serve a pull from a logical queue anew."""


class WaitingPulls:
    """Those of one broker."""

    def __init__(self, broker: Broker, serving: Serving) -> None:
        self._broker = broker
        self._serving = serving
        self._held: HeldPulls[Asked] = HeldPulls(broker.config.integer("heldPullsMax"))
        # One object for watching and for ending it.
        self._told = self._arrived
        self._timer = EarliestTimer(broker.clock, self._tick)
        # A queue may be waited for by thousands, and all of them may be over in the same moment.
        self._to_look_at = self._backlog(self._look)
        self._to_answer = self._backlog(self._answer_now)
        self._to_ask_again = self._backlog(self._ask_again)
        self._put_off: PutOff[Asked] = PutOff(self._to_look_at.add)
        broker.mappings.on_changed.append(self._remapped)

    def _backlog(self, handle: Callable[[Held[Asked]], None]) -> Backlog[Held[Asked]]:
        return Backlog(safely(self._broker.answers, handle, self._drop), PULLS_A_TURN)

    def __len__(self) -> int:
        return len(self._held)

    def close(self) -> None:
        """Forget them all; their connections are closing."""
        for held in self._held.all():
            self._drop(held)
        self._timer.cancel()

    def closed(self, connection: Connection) -> None:
        """A connection has ended: what it waited for is for nobody."""
        self._put_off.closed(connection)
        for key in self._held.closed(connection.id):
            if not self._held.waits_for(key):
                self._broker.arrivals.unwatch(key, self._told)

    def ask_again(self) -> None:
        """A role was taken up: logs may have been cut, so everybody asks again."""
        self._to_answer.add(self._held.all())

    def hold(self, asked: Asked, found: Pulled) -> bool:
        """Keep a pull that may wait, if there is nothing for it now."""
        pull, broker = asked.pull, self._broker
        code = status_code(found.status, pull.queue_offset)
        waits = code == ResponseCode.PULL_NOT_FOUND or (
            # On a slave the end may be short of the master's.
            code == ResponseCode.PULL_OFFSET_MOVED
            and broker.role is Role.SLAVE
            and pull.queue_offset > found.max_offset
        )
        if not waits:
            return False
        return self._keep(asked, (pull.topic.encode(), pull.queue_id))

    def hold_undecided(
        self, connection: Connection, request: RemotingCommand, place: Place
    ) -> bool:
        """Hold a pull that has read a segment elsewhere, until it is decided how it goes on."""
        wanted = place.wanted
        group = self._broker.groups.find(wanted.consumer_group, may_write=False)
        if group is None:
            return False
        asked = Asked(connection, request, wanted, group, None, None, place)
        # The number of no physical queue: nothing arrives there, only a decision or the time's end.
        return self._keep(asked, (wanted.topic.encode(), -1 - wanted.queue_id))

    def _keep(self, asked: Asked, key: Key) -> bool:
        """Hold a pull until its queue grows or its time is over; False if it is not to wait.

        One too many is refused: a consumer that is told "nothing new" asks again at once, and so would
        all that find no place; after a refusal Java's clients wait for 3 s.
        """
        pull, config, clock = asked.pull, self._broker.config, self._broker.clock
        is_long = config.boolean("longPollingEnable")
        limit_ms = pull.suspend_timeout_ms if is_long else config.integer("shortPollingTimeMills")
        if not pull.may_suspend or limit_ms <= 0:
            return False
        if asked.connection.is_closing:
            return True  # it may have ended already, and nobody would take the pull away
        if self._held.is_full:
            remark = f"{len(self._held)} pulls wait already, heldPullsMax"
            if not asked.request.is_oneway:
                asked.connection.send(asked.request.reply(ResponseCode.SYSTEM_BUSY, remark))
            return True
        # Half of what a pull takes while it waits; all of it was read. Of a body nothing is.
        asked.request.body = b""
        if asked.place is None:
            asked.request.ext_fields = None
        until_ms = clock.now_ms() + min(limit_ms, config.integer("heldPullTimeMax"))
        self._held.hold(asked.connection.id, key, asked, pull.queue_offset, until_ms)
        self._broker.arrivals.watch(key, self._told)
        self._timer.arm(self._held.next_deadline_ms)
        return True

    def _drop(self, held: Held[Asked]) -> None:
        self._held.drop(held)
        self._put_off.drop(held)
        if not self._held.waits_for(held.key):
            self._broker.arrivals.unwatch(held.key, self._told)

    def _arrived(self, keys: list[Key]) -> None:
        """Queues have grown."""
        self._to_look_at.add(held for key in keys for held in self._held.of_queue(key))

    def _look(self, held: Held[Asked]) -> None:
        """Answer if there is something wanted; else remember how far nothing was."""
        if not self._held.is_held(held) or self._put_off.is_full(held.asked.connection, held):
            return
        asked = self._serving.again(held.asked)
        if isinstance(asked, Refusal):
            self._answer_now(held)
            return
        if asked is not held.asked:
            held.asked, held.offset = asked, asked.pull.queue_offset
        found = self._serving.read(asked, held.offset)
        if found.messages or found.missing:
            self._drop(held)
            self._serving.serve(held.asked, found, may_wait=True)
        elif found.next_offset > held.offset:
            held.offset = found.next_offset
            if held.offset < found.max_offset:
                # A filter may look at very many that are for others; they have their turn first.
                self._broker.clock.call_later(0, self._to_look_at.add, [held])

    def _answer_now(self, held: Held[Asked]) -> None:
        """A held pull's time is over."""
        if not self._held.is_held(held):
            return
        self._drop(held)
        before, place = held.asked, held.asked.place
        refusal = self._serving.refusal()
        if place is not None and refusal is None:
            self._serving.once_more(before, place.again(place.wanted.queue_offset, may_wait=False))
            return
        asked = refusal or self._serving.again(before)
        if not isinstance(asked, Refusal):
            found = self._serving.read(asked, asked.pull.queue_offset)
            self._serving.serve(asked, found, may_wait=False)
        elif not before.request.is_oneway:
            before.connection.send(before.request.reply(asked.code, asked.remark))

    def _remapped(self, topics: frozenset[str]) -> None:
        """Queues have moved: whoever waits for one of them may find what he wants elsewhere."""
        self._to_ask_again.add(
            held
            for held in self._held.all()
            if held.asked.place is not None and held.asked.place.wanted.topic in topics
        )

    def _ask_again(self, held: Held[Asked]) -> None:
        place = held.asked.place
        if place is None or not self._held.is_held(held):
            return
        self._drop(held)
        left_ms = held.until_ms - self._broker.clock.now_ms()
        self._serving.once_more(held.asked, shortened(place.wanted, left_ms))

    def _tick(self) -> None:
        self._to_answer.add(self._held.due(self._broker.clock.now_ms()))
        self._timer.arm(self._held.next_deadline_ms)
