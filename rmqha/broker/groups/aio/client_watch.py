"""Looks for clients that have fallen silent, and takes the figures of a moment, for ever."""

from __future__ import annotations

from datetime import UTC, datetime

from rmqha.broker.groups.aio.client_requests import ClientProcessor
from rmqha.broker.groups.aio.ports import Broker
from rmqha.runtime.aio.turns import in_turns

SCAN_CLIENTS_MS = 10_000
"""Java's period for expired channels, and for statistics."""


async def watch_clients(broker: Broker, clients: ClientProcessor) -> None:
    """Run until it is cancelled."""
    clock = broker.clock
    while True:
        await clock.sleep(SCAN_CLIENTS_MS)
        await in_turns(clients.expire())
        wall_ms = clock.wall_ms()
        day = datetime.fromtimestamp(wall_ms / 1000, tz=UTC).astimezone().toordinal()
        await in_turns(broker.statistics.sample(clock.now_ms(), day))
