"""Registrations that take more than a moment to read: part by part, one after the other.

Everybody else has a turn between two parts. A connection waits with all that it sends behind its
registration, and so does every other 103 and 104 of the same address or of the same set: of two words
the later counts. Where several wait, the hosts that they come from have their turns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator

from msgspec import Struct

from rmqha.namesrv.compressed_body import INFLATED_PART
from rmqha.namesrv.machine import NamesrvMachine, Request
from rmqha.namesrv.messages import Answer
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.runtime.ports import Clock

CODES = frozenset({RequestCode.REGISTER_BROKER, RequestCode.UNREGISTER_BROKER})
"""What waits for one another, by the broker's address and by its set."""

WAITING_BYTES_MAX = 64 << 20
"""Of the bodies that wait; a broker that finds no room is told that the name server is busy, and
registers anew with its next period."""

Work = Generator[None, None, Answer]


class _Waiting(Struct, frozen=True, eq=False):
    """One that waits.

    Attributes:
        about: the address and the set that it speaks of.
    """

    connection: Connection
    command: RemotingCommand
    request: Request
    about: frozenset[tuple[str, str]]
    work: Work
    cost: int


class Registering:
    """What brokers say of themselves, in the order in which they said it.

    Args:
        done: told of an answer that came later.
    """

    def __init__(
        self,
        clock: Clock,
        machine: NamesrvMachine,
        done: Callable[[Connection, RemotingCommand, Answer], None],
    ) -> None:
        self._clock = clock
        self._machine = machine
        self._done = done
        self._waiting: list[_Waiting] = []
        self._about: Counter[tuple[str, str]] = Counter()
        self._bytes = 0
        self._reading: _Waiting | None = None
        # Hosts that wait, those that were served last behind the others.
        self._hosts: dict[str, None] = {}
        self._is_scheduled = False

    def __len__(self) -> int:
        return len(self._waiting)

    def take(
        self,
        connection: Connection,
        command: RemotingCommand,
        request: Request,
        behind: list[RemotingCommand],
    ) -> Answer | None:
        """Take one of ``CODES``; None when its answer comes later.

        Args:
            behind: what came in the same batch after it; the connection keeps it in that case.
        """
        about = _about(request)
        work = self._work(command.code, request)
        if self._about.keys().isdisjoint(about):
            try:
                next(work)
            except StopIteration as end:
                found: Answer = end.value
                return found
        cost = INFLATED_PART + len(request.body)
        if self._bytes + cost > WAITING_BYTES_MAX:
            return Answer(ResponseCode.SYSTEM_BUSY, "too many registrations wait to be read")
        self._waiting.append(_Waiting(connection, command, request, about, work, cost))
        self._about.update(about)
        self._bytes += cost
        self._hosts.setdefault(connection.host)
        self._machine.begin_speaking(request)
        connection.wait(behind)
        self._schedule()
        return None

    def _work(self, code: int, request: Request) -> Work:
        """Read it in parts; what it changes is changed in the last."""
        if code != RequestCode.REGISTER_BROKER:
            return self._machine.unregister(request)
        read = yield from self._machine.reading(request)
        if isinstance(read, Answer):
            return read
        return self._machine.register(request, read)

    def closed(self, connection: Connection) -> None:
        """What a connection said that has ended is not read to its end."""
        for one in [one for one in self._waiting if one.connection is connection]:
            self._forget(one)

    def _forget(self, one: _Waiting) -> None:
        if one not in self._waiting:
            return
        self._waiting.remove(one)
        self._bytes -= one.cost
        self._about -= Counter(one.about)
        if one is self._reading:
            self._reading = None
        host = one.connection.host
        if all(other.connection.host != host for other in self._waiting):
            del self._hosts[host]
        self._machine.end_speaking(one.request, self._clock.now_ms())

    def _schedule(self) -> None:
        if self._waiting and not self._is_scheduled:
            self._is_scheduled = True
            self._clock.call_later(0, self._turn)

    def _turn(self) -> None:
        self._is_scheduled = False
        if not self._waiting:
            return
        one = self._reading = self._reading or self._next()
        try:
            self._go_on(one)
        except Exception as error:
            self._forget(one)
            one.connection.abort(error)  # as the loop has it for what a handler raises
            raise
        finally:
            self._schedule()

    def _go_on(self, one: _Waiting) -> None:
        try:
            next(one.work)
        except StopIteration as end:
            answer: Answer = end.value
        else:
            return
        self._forget(one)
        self._done(one.connection, one.command, answer)
        one.connection.resume()

    def _next(self) -> _Waiting:
        """The next to be read: the first of the host that was served longest ago.

        Only one is read at a time, for it may be 64 MiB by then.
        """
        first = {one.connection.host: one for one in reversed(list(self._first()))}
        host = next(host for host in self._hosts if host in first)
        self._hosts[host] = self._hosts.pop(host)  # behind the other hosts
        return first[host]

    def _first(self) -> Iterator[_Waiting]:
        """Those that wait for no other about the same, in order; there is always one."""
        before = set[tuple[str, str]]()
        for one in self._waiting:
            if before.isdisjoint(one.about):
                yield one
            before |= one.about


def _about(request: Request) -> frozenset[tuple[str, str]]:
    """The address and the set that a request speaks of; names are one set in all clusters."""
    said = ((name, request.fields.get(name)) for name in ("brokerAddr", "brokerName"))
    return frozenset((name, value) for name, value in said if value is not None)
