"""The quick way to write what nearly every message is, as many at a time as have come together.

It writes the same bytes as ``MessageStore.append``; the caller knows that the messages are as
``record.Plain`` describes them. A test holds the two equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rmqha.base.errors import DiskFailed, MessageIllegal
from rmqha.store.record import Place, Plain

if TYPE_CHECKING:
    from rmqha.store.aio.message_store import MessageStore


class PlainAppends:
    """Of one store."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._log = store.commit_log
        self._queues = store.queues
        self._dispatcher = None if store.settings.confirm_bounded else store.dispatcher

    def append_all(
        self, messages: Sequence[Plain], born_host: bytes, store_host: bytes
    ) -> list[Place]:
        """Write messages to the page cache, in order, up to the first that cannot be written.

        Raises:
            MessageIllegal, DiskFailed, LocalProtocolError: as ``MessageStore.append``, of the
                first message; nothing was written.
        """
        if self._store.failed is not None:
            self._store.check_alive()
        table = self._queues.next_offsets
        places = self._log.append_plains(messages, table, born_host, store_host)
        while len(places) < len(messages):
            try:
                places += self._log.append_plains(
                    messages[len(places) :], table, born_host, store_host
                )
            except (MessageIllegal, DiskFailed):
                break  # whoever sends the next one again meets it
        if self._dispatcher is not None:
            self._dispatcher.wake()
        return places
