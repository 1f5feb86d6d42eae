"""Registrations that take more than a moment to read: part by part, one after the other.

Everybody else has a turn between two parts. A connection waits with all that it sends behind its
registration, and what else is said of the same broker waits as well: of two words the later counts.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Generator
from typing import NamedTuple

from rmqha.namesrv.compressed_body import INFLATED_PART
from rmqha.namesrv.machine import NamesrvMachine, Request
from rmqha.namesrv.messages import Answer
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.runtime.ports import Clock

CODES = frozenset({RequestCode.REGISTER_BROKER, RequestCode.UNREGISTER_BROKER})
"""What waits for one another, by the broker's address."""

WAITING_BYTES_MAX = 64 << 20
"""Of the bodies that wait; a broker that finds no room is told that the name server is busy, and
registers anew with its next period."""

Work = Generator[None, None, Answer]


class _Waiting(NamedTuple):
    connection: Connection
    command: RemotingCommand
    address: str
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
        self._waiting: deque[_Waiting] = deque()
        self._addresses: Counter[str] = Counter()
        self._bytes = 0
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
        address = request.fields.get("brokerAddr", "")
        work = self._work(command.code, request)
        if address not in self._addresses:
            try:
                next(work)
            except StopIteration as end:
                found: Answer = end.value
                return found
        cost = INFLATED_PART + len(request.body)
        if self._bytes + cost > WAITING_BYTES_MAX:
            work.close()
            return Answer(ResponseCode.SYSTEM_BUSY, "too many registrations wait to be read")
        self._waiting.append(_Waiting(connection, command, address, work, cost))
        self._addresses[address] += 1
        self._bytes += cost
        connection.wait(behind)
        self._schedule()
        return None

    def _work(self, code: int, request: Request) -> Work:
        if code == RequestCode.REGISTER_BROKER:
            return self._machine.registering(request)
        return self._machine.unregistering(request)

    def closed(self, connection: Connection) -> None:
        """What a connection said that has ended is not read to its end."""
        for one in [one for one in self._waiting if one.connection is connection]:
            self._forget(one)

    def _forget(self, one: _Waiting) -> None:
        self._waiting.remove(one)
        self._bytes -= one.cost
        self._addresses[one.address] -= 1
        if not self._addresses[one.address]:
            del self._addresses[one.address]

    def _schedule(self) -> None:
        if self._waiting and not self._is_scheduled:
            self._is_scheduled = True
            self._clock.call_later(0, self._turn)

    def _turn(self) -> None:
        self._is_scheduled = False
        if not self._waiting:
            return
        one = self._waiting[0]
        try:
            next(one.work)
        except StopIteration as end:
            self._forget(one)
            self._done(one.connection, one.command, end.value)
            one.connection.resume()
        except Exception as error:
            self._forget(one)
            one.connection.abort(error)  # as the loop has it for what a handler raises
            raise
        finally:
            self._schedule()
