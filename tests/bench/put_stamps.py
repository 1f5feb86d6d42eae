"""A replica that notes when each part of a put is reached: a part of ``bin/bench ha --only apart``.

It is ``tests/interop/ha_peer.py`` with a look at the clock between its parts; the clock is the
machine's, so those of two processes can be compared. ``stamps`` is answered with all of them, by
where the put's record ends in the log.
"""

from __future__ import annotations

import contextlib
import functools
import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from rmqha.ha.aio.batches import Batches
from rmqha.ha.aio.client import MasterConnection
from rmqha.ha.aio.connection import SlaveConnection
from rmqha.ha.aio.service import HaService
from rmqha.ha.frames import Ack
from rmqha.runtime.aio.loop import run
from rmqha.runtime.logs import configure_logs
from rmqha.store.aio.message_store import MessageStore
from tests.interop import ha_peer

PARTS = (
    ("master", "record appended", "begun", "appended"),
    ("master", "next turn of the loop", "appended", "told"),
    ("master", "core, header", "told", "batch"),
    ("between", "batch written, way there, slave's wake-up", "batch", "arrived"),
    ("slave", "header read, core, room in the log", "arrived", "room"),
    ("slave", "body into the log, counted", "room", "received"),
    ("slave", "core", "received", "held"),
    ("slave", "until the acknowledgement is written", "held", "acking"),
    ("between", "acknowledgement written, way back, master's wake-up", "acking", "answered"),
    ("master", "acknowledgement read, core, confirm offset", "answered", "done"),
    ("master", "wake-up of who waits", "done", "returned"),
)
"""Whose time it is, what happens, and the two stamps that it lies between."""

stamps: dict[int, dict[str, int]] = defaultdict(dict)


def note(end: int, name: str, at_ns: int | None = None) -> None:
    """The first moment counts."""
    stamps[end].setdefault(name, time.perf_counter_ns() if at_ns is None else at_ns)


def around(owner: type, name: str, wrapper: Callable[..., Any]) -> None:
    """Replace a method by one that is given it first."""
    setattr(owner, name, functools.partialmethod(_call, wrapper, getattr(owner, name)))


def _call(self: Any, wrapper: Callable[..., Any], method: Callable[..., Any], *args: Any) -> Any:
    return wrapper(method, self, *args)


newest = {"end": 0, "arrived": 0, "told": 0}
"""Moments of which it is not known yet to which put they belong."""


def append(method: Any, store: Any, message: Any, **named: Any) -> Any:
    """A put begins."""
    begun_ns = time.perf_counter_ns()
    result = method(store, message, **named)
    note(result.end, "begun", begun_ns)
    note(result.end, "appended")
    return result


def tell(method: Any, service: Any) -> None:
    """The loop's next turn; whoever of the two that come first in it sends."""
    newest["told"] = time.perf_counter_ns()
    method(service)


def send_batch(method: Any, batches: Any, slave: Any, batch: Any) -> None:
    """The core has decided."""
    newest["end"] = end = batch[2] + batch[3]
    note(end, "told", newest["told"])
    method(batches, slave, batch)


def write(method: Any, connection: Any, header: Any, body: Any) -> None:
    """The batch goes out."""
    note(newest["end"], "batch")
    method(connection, header, body)


def arrive(method: Any, connection: Any, size: int) -> None:
    """The slave has woken up."""
    newest["arrived"] = time.perf_counter_ns()
    method(connection, size)


def begin_body(method: Any, connection: Any, header: Any) -> None:
    """It has read the header."""
    method(connection, header)
    end = header.offset + header.body_size
    note(end, "arrived", newest["arrived"])
    note(end, "room")


def received(method: Any, store: Any, offset: int, length: int) -> None:
    """The body is in its log."""
    method(store, offset, length)
    note(offset + length, "received")


def send_ack(method: Any, connection: Any, offset: int) -> None:
    """Its core has decided."""
    note(offset, "held")
    method(connection, offset)


def write_ack(method: Any, connection: Any) -> None:
    """The acknowledgement goes out."""
    note(connection._ack or 0, "acking")
    method(connection)


def give(method: Any, service: Any, event: Any) -> None:
    """The master has woken up."""
    if isinstance(getattr(event, "frame", None), Ack):
        note(event.frame.offset, "answered")
    method(service, event)


def when_put(method: Any, service: Any, end: int, reign: int, done: Callable[[Any], None]) -> None:
    """Its core has decided."""

    def noted(status: Any) -> None:
        note(end, "done")
        done(status)

    method(service, end, reign, noted)


def look() -> None:
    """Put the clock between the parts."""
    for owner, name, wrapper in (
        (MessageStore, "append", append), (MessageStore, "received", received),
        (HaService, "_tell_appended", tell), (HaService, "_tell_asked", tell),
        (Batches, "send", send_batch), (HaService, "give", give),
        (HaService, "when_put", when_put), (SlaveConnection, "send_batch", write),
        (MasterConnection, "buffer_updated", arrive), (MasterConnection, "_begin_body", begin_body),
        (MasterConnection, "send_ack", send_ack), (MasterConnection, "_write_ack", write_ack),
    ):  # fmt: skip
        around(owner, name, wrapper)


class StampedPeer(ha_peer.Peer):
    """Answers ``stamps`` as well."""

    async def put(self, message: Any) -> Any:
        """A put, with the moment at which who waits goes on."""
        status, end = await super().put(message)
        note(end, "returned")
        return status, end

    async def answer(self, words: list[str]) -> str:
        """As any peer, and what was noted since it was asked last."""
        if words != ["stamps"]:
            return await super().answer(words)
        said = json.dumps(stamps)
        stamps.clear()
        return said


if __name__ == "__main__":
    configure_logs()
    look()
    ha_peer.Peer = StampedPeer  # type: ignore[misc]  # what its main makes
    with contextlib.suppress(KeyboardInterrupt):
        run(ha_peer.main(sys.argv[1:]))
