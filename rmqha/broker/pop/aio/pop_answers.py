"""What a pop is answered: messages with where they are from, nothing, or whether there would be any."""

from __future__ import annotations

from typing import NamedTuple

from rmqha.base.errors import DiskFailed, LocalProtocolError, MessageIllegal
from rmqha.broker.common.refusal import Refusal
from rmqha.broker.groups.consumers import Subscription
from rmqha.broker.pop.aio.collected import NOTHING_FETCHED, Fetched, Taken
from rmqha.broker.pop.request import ORDER_REVIVE_QUEUE, PopRequest, pop_fields
from rmqha.broker.pull.filters import Matches
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import ext_fields

FAILURES = (MessageIllegal, DiskFailed, LocalProtocolError)
"""Why what was found is not handed out: no check point can be written, or no frame be made."""


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


def answer_found(asked: Asked, taken: Taken) -> None:
    """Hand out what was collected, or say that there is something."""
    if asked.tells:
        _tell(asked, has_message=True)
        return
    fields = ext_fields(
        **pop_fields(
            taken.handed, pop_ms=taken.pop_ms, invisible_ms=asked.pop.invisible_ms,
            revive_queue=taken.revive_queue, rest=taken.rest,
            order_counts=";".join(taken.order_counts) if asked.pop.order else None,
        )
    )  # fmt: skip
    answer = asked.request.reply(ResponseCode.SUCCESS, "FOUND", fields)
    asked.connection.send_parts(answer, taken.parts)


def answer_nothing(asked: Asked, code: int, wall_ms: int) -> None:
    """Say that there is nothing: at the end of its time, or since too many wait already."""
    if asked.tells:
        _tell(asked, has_message=False, full=code == ResponseCode.POLLING_FULL)
        return
    fields = pop_fields(
        (), pop_ms=wall_ms, invisible_ms=asked.pop.invisible_ms,
        revive_queue=ORDER_REVIVE_QUEUE if asked.pop.order else 0, rest=0,
    )  # fmt: skip
    asked.connection.send(asked.request.reply(code, "NO_MESSAGE_IN_QUEUE", ext_fields(**fields)))


def answer_refusal(asked: Asked, refusal: Refusal) -> None:
    """Say why nothing is handed out."""
    asked.connection.send(asked.request.reply(refusal.code, refusal.remark))


def answer_failure(asked: Asked, error: Exception) -> None:
    """Say why nothing is handed out: one of ``FAILURES``."""
    asked.connection.send(asked.request.reply(ResponseCode.SYSTEM_ERROR, str(error)))


def _tell(asked: Asked, *, has_message: bool, full: bool = False) -> None:
    fields = ext_fields(hasMsg=has_message, pollingFull=full)
    asked.connection.send(asked.request.reply(ResponseCode.SUCCESS, None, fields))
