"""The quick way to write what nearly every message is, one at a time.

It writes the same bytes as ``MessageStore.append``; the caller knows that the message is as
``record.plain_record`` describes it, and of no inner batch. A test holds the two equal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqha.store.aio.consume_queues import Key

if TYPE_CHECKING:
    from rmqha.store.aio.message_store import MessageStore


class PlainAppends:
    """Of one store."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._log = store.commit_log
        self._queues = store.queues
        self._dispatcher = None if store.settings.confirm_bounded else store.dispatcher

    def append(
        self, key: Key, magic: int, sys_flag: int, born_timestamp: int, born_host: bytes,
        store_host: bytes, body: bytes, topic_bytes: bytes, properties: bytes,
    ) -> tuple[int, int, int]:  # fmt: skip
        """Write one message to the page cache.

        Args:
            key: the topic's bytes and the queue id.
            magic, topic_bytes: as ``record.topic_field`` gives them.

        Returns:
            Its offset, its size and its queue offset.

        Raises:
            MessageIllegal, DiskFailed: as ``MessageStore.append``.
        """
        if self._store.failed is not None:
            self._store.check_alive()
        table = self._queues.next_offsets
        base = table.get(key, 0)
        offset, size = self._log.append_plain(
            magic, key[1], base, sys_flag, born_timestamp, born_host, store_host, body,
            topic_bytes, properties,
        )  # fmt: skip
        table[key] = base + 1
        if self._dispatcher is not None:
            self._dispatcher.wake()
        return offset, size, base
