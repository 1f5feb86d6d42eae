"""The quick way to write what nearly every message is, as many at a time as have come together.

It writes the same bytes as ``MessageStore.append``; the caller knows that the messages are as
``record.Plain`` describes them. A test holds the two equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rmqha.base.errors import DiskFailed, MessageIllegal
from rmqha.store.aio.commit_log import CommitLog
from rmqha.store.aio.consume_queues import ConsumeQueues
from rmqha.store.aio.room import Room
from rmqha.store.record import Place, Plain


class PlainAppends:
    """Of one store.

    Args:
        log, queues, room: of the store.
        check_alive: raises once the store has stopped.
        on_appended: told after each write; None where others say what may be dispatched.

    Attributes:
        has_stopped: set when the store stops, so that a write need not ask.
    """

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueues,
        room: Room,
        *,
        check_alive: Callable[[], None],
        on_appended: Callable[[], None] | None,
    ) -> None:
        self._log = log
        self._queues = queues
        self._room = room
        self._check_alive = check_alive
        self._on_appended = on_appended
        self.has_stopped = False

    def append_all(
        self, messages: Sequence[Plain], born_host: bytes, store_host: bytes
    ) -> list[Place]:
        """Write messages to the page cache, in order, up to the first that cannot be written.

        Raises:
            MessageIllegal, DiskFailed, LocalProtocolError: as ``MessageStore.append``, of the
                first message; nothing was written.
        """
        if self.has_stopped:
            self._check_alive()
        begun_ms = self._room.now_ms()
        table = self._queues.next_offsets
        places = self._log.append_plains(messages, table, born_host, store_host)
        while len(places) < len(messages):
            try:
                places += self._log.append_plains(
                    messages[len(places) :], table, born_host, store_host
                )
            except (MessageIllegal, DiskFailed):
                break  # whoever sends the next one again meets it
        self._room.wrote(begun_ms)
        if self._on_appended is not None:
            self._on_appended()
        return places
