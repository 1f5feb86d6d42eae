"""The port that Prometheus asks: ``/metrics``, one scrape at a time in a thread of its own."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from aiohttp import web

from rmqha.web.aio.health import NotReady, add_health, always_ready
from rmqha.web.aio.port import BoundedPort, Hosts

SCRAPES_WAITING_MAX = 8


class Exporter:
    """Serves one process's series.

    Args:
        scrape: makes the text; called in a thread.
        content_type: of that text.
        hosts: names under which it may be asked for.
        rejected: see :class:`BoundedPort`.
        not_ready: for ``/readyz``.
    """

    def __init__(
        self, scrape: Callable[[], bytes], content_type: str, hosts: Hosts,
        rejected: Counter[str] | None = None, not_ready: NotReady = always_ready,
    ) -> None:  # fmt: skip
        self._scrape = scrape
        self._headers = {"Content-Type": content_type}
        self._lock = asyncio.Lock()
        self._waiting = 0
        app = web.Application(middlewares=[hosts.check])
        app.router.add_get("/metrics", self._get)
        app.router.add_get("/", self._get)
        add_health(app, not_ready)
        self._port = BoundedPort(app, rejected)

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port.

        Raises:
            OSError: the address cannot be used.
        """
        return await self._port.start(host, port)

    async def close(self) -> None:
        """Stop answering, and give the port back."""
        await self._port.close()

    async def _get(self, _: web.Request) -> web.Response:
        if self._waiting >= SCRAPES_WAITING_MAX:
            raise web.HTTPServiceUnavailable(text="too many scrapes wait\n")
        self._waiting += 1
        try:
            async with self._lock:
                body = await asyncio.to_thread(self._scrape)
        finally:
            self._waiting -= 1
        return web.Response(body=body, headers=self._headers)
