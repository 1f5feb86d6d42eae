"""What slaves are sent of the log: from memory, and whole; what is not there yet is read first.

A part of the log that cannot be sent ends the connection of the one slave that asked for it, and
nothing else: it comes back and is told anew how far the log goes, or asks until the part is mended.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol

from rmqha.base.errors import DiskFailed
from rmqha.ha.aio.connection import SlaveConnection
from rmqha.ha.events import SendBatch
from rmqha.ha.ports import ReplicatedLog
from rmqha.runtime.logs import Logger

AHEAD_BYTES = 1 << 20
"""Of the log, read for a slave that is far behind: what it is sent next."""


class Owner(Protocol):
    """What runs what has to wait."""

    def in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Run it until replication ends."""


class Batches:
    """Of one master's log."""

    def __init__(self, owner: Owner, log: ReplicatedLog, logger: Logger) -> None:
        self._owner = owner
        self._log = log
        self._logger = logger

    def send(self, slave: SlaveConnection | None, batch: SendBatch) -> None:
        """Write a batch to a slave that is still connected, or have it wait until it was read."""
        _, header, offset, length = batch
        if slave is None:
            return
        if not length:
            slave.send_batch(header, None)
            return
        if not self._is_there(offset, length):
            self._gone(slave, offset)
            return
        # A slice stays good when its file goes.
        body = self._log.view(offset, length)
        if self._log.is_cold(offset, length) or not self._log.is_proven(offset, length):
            self._owner.in_background(self._send_read(slave, offset, length))
            slave.hold()
        slave.send_batch(header, body)

    def _is_there(self, offset: int, length: int) -> bool:
        """Whether the log still has it: files expire, and whoever asks may not have heard of it."""
        return self._log.readable(offset, length) == length

    def _gone(self, slave: SlaveConnection, offset: int) -> None:
        min_offset = self._log.min_offset
        self._logger.log("warning", "ha_batch_gone", offset=offset, min_offset=min_offset)
        slave.end(f"the log has no {offset} any more, it begins at {min_offset}")

    async def _send_read(self, slave: SlaveConnection, offset: int, length: int) -> None:
        """Let a batch go once it is in memory and whole; sending it would wait for the disk.

        A slave gets nothing that is damaged: it would be damaged on both. It comes back and asks
        again, until the record was mended.
        """
        try:
            if self._log.is_cold(offset, length):
                ahead = self._log.readable(offset, AHEAD_BYTES)
                await self._log.fetch(offset, max(length, ahead))
            is_whole = await self._log.prove(offset, length)
        except DiskFailed as error:
            if self._is_there(offset, length):
                # A store that must stop has told its broker itself. A sector that cannot be read
                # concerns nobody but who needs it.
                self._logger.log(
                    "error", "ha_batch_unreadable", offset=offset, length=length, error=str(error)
                )
                slave.end(f"{offset} cannot be read")
                return
            is_whole = False
        if not self._is_there(offset, length):
            self._gone(slave, offset)
        elif is_whole:
            slave.let_go()
        else:
            self._logger.log("error", "ha_batch_damaged", offset=offset, length=length)
            slave.end(f"{offset} is damaged")
