"""``/livez`` and ``/readyz``: for supervisors that restart what hangs, and wait for what starts.

Both answer in the event loop: one that hangs answers neither. Live is whoever answers; ready is who
does what it is there for, and the answer of one that is not says what is missing, with 503.
"""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

NotReady = Callable[[], str | None]
"""What is missing, in a sentence; None of a process that is ready."""

_HEADERS = {"Cache-Control": "no-store"}


def always_ready() -> None:
    """Nothing is ever missing."""


def add_health(app: web.Application, not_ready: NotReady) -> None:
    """Have an application answer both."""

    async def livez(_: web.Request) -> web.Response:
        return web.Response(text="live\n", headers=_HEADERS)

    async def readyz(_: web.Request) -> web.Response:
        missing = not_ready()
        if missing is None:
            return web.Response(text="ready\n", headers=_HEADERS)
        return web.Response(status=503, text=f"{missing}\n", headers=_HEADERS)

    app.router.add_get("/livez", livez)
    app.router.add_get("/readyz", readyz)
