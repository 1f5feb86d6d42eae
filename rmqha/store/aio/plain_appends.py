"""The quick way to write what nearly every message is, as many at a time as have come together.

It writes the same bytes as ``MessageStore.append``; the caller knows that the messages are as
``record.Plain`` describes them. A test holds the two equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rmqha.base.errors import DiskFailed, LocalProtocolError, MessageIllegal
from rmqha.store.aio.commit_log import CommitLog
from rmqha.store.aio.consume_queues import ConsumeQueues
from rmqha.store.aio.room import Room
from rmqha.store.record import Place, Plain

AT_ONCE_MAX, AT_ONCE_BYTES = 16, 16_384
"""Messages, and about their bytes, between two looks at the clock: some pages, each of which may wait
for the disk."""


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
        """Write messages to the page cache, in order, up to the first that cannot be written, or
        that has waited for the disk: each of those behind it may as well.

        Raises:
            MessageIllegal, DiskFailed, LocalProtocolError: as ``MessageStore.append``, of the
                first message; nothing was written.
        """
        if self.has_stopped:
            self._check_alive()
        table, waited = self._queues.next_offsets, self._room.waited
        count = min(AT_ONCE_MAX, AT_ONCE_BYTES // (len(messages[0].body) + 1) + 1)
        places: list[Place] = []
        while len(places) < len(messages) and self._room.waited == waited:
            begun_ms, done = self._room.now_ms(), len(places)
            try:
                places += self._log.append_plains(
                    messages[done : done + count], table, born_host, store_host
                )
            except (MessageIllegal, DiskFailed, LocalProtocolError):
                if not places:
                    raise
                break  # whoever sends the next one again meets it
            self._room.wrote(begun_ms)
        if self._on_appended is not None:
            self._on_appended()
        return places
