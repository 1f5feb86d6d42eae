"""The status page over HTTP: ``/`` the page, ``/status.json`` the document, ``/events`` live.

``/livez`` and ``/readyz`` are in ``health.py``. A controller has ``/elections.json``, too: why each
election ended as it did, of one set (``?brokerName=``) or of all, ``?count=`` of them.

While anybody watches, one task makes a document every period, and all watchers get the same
bytes as server-sent events. Another makes one every few seconds for ``/history.json``, watched or
not. It only tells: there is no request that changes anything.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from importlib import resources

from aiohttp import web
from msgspec.structs import replace

from rmqha.web.aio.health import NotReady, add_health, always_ready
from rmqha.web.aio.port import BoundedPort, Hosts
from rmqha.web.document import StatusDocument
from rmqha.web.history import SAMPLE_MS, History
from rmqha.web.verdict import judge

PERIOD_MS = 1000
WATCHERS_MAX = 64
"""Open pages at a time; more get 503."""
RETRY_MS = 1000
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline';"
        " connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

Source = Callable[[], Awaitable[StatusDocument]]
ElectionHistory = Callable[[str | None, int], bytes | None]
"""JSON of the newest elections, of one set or of all; None when there is no such set."""
ELECTIONS_TOLD = 50
COUNT_DIGITS_MAX = 9


class StatusServer:
    """Serves one node's page.

    Args:
        source: makes the document; asked once a period while somebody watches.
        rejected: see :class:`BoundedPort`.
        not_ready: for ``/readyz``.
        hosts: names under which the page may be asked for; this machine's by default.
        period_ms: between two documents.
        history_ms: between two documents that are made for the history alone.
        watchers_max: event streams at a time.
        elections: a controller's; others have none.
    """

    def __init__(
        self,
        source: Source,
        *,
        hosts: Hosts | None = None,
        period_ms: int = PERIOD_MS,
        history_ms: int = SAMPLE_MS,
        watchers_max: int = WATCHERS_MAX,
        rejected: Counter[str] | None = None,
        not_ready: NotReady = always_ready,
        elections: ElectionHistory | None = None,
    ) -> None:
        self._elections = elections
        self._not_ready = not_ready
        self._source = source
        self._rejected = rejected
        self._hosts = hosts or Hosts.of_machine()
        self._period_ms = period_ms
        self._watchers_max = watchers_max
        self._watchers: set[asyncio.Queue[bytes | None]] = set()
        self._feeder: asyncio.Task[None] | None = None
        self._newest = b""
        self._history = History()
        self._history_ms = history_ms
        self._sampler: asyncio.Task[None] | None = None
        self._port: BoundedPort | None = None
        self._page = resources.files("rmqha.web").joinpath("page.html").read_bytes()
        self.port = 0

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port.

        Raises:
            OSError: the address cannot be used.
        """
        app = web.Application(middlewares=[self._hosts.check])
        app.router.add_get("/", self._get_page)
        app.router.add_get("/status.json", self._get_status)
        app.router.add_get("/events", self._get_events)
        app.router.add_get("/history.json", self._get_history)
        if self._elections is not None:
            app.router.add_get("/elections.json", self._get_elections)
        add_health(app, self._not_ready)
        self._port = BoundedPort(app, self._rejected)
        self.port = await self._port.start(host, port)
        self._sampler = asyncio.create_task(self._sample(), name="status history")
        return self.port

    async def _document(self) -> StatusDocument:
        """The node's document, and what it means.

        Of 10,000 broker sets each step takes some 20 ms; others have their turns in between.
        """
        document = await self._source()
        self._history.add(document)
        await asyncio.sleep(0)
        verdict = judge(document, self._history.since, self._history.before)
        await asyncio.sleep(0)
        return replace(document, verdict=verdict)

    async def _sample(self) -> None:
        while True:
            await asyncio.sleep(self._history_ms / 1000)
            if not self._watchers:
                with _survived():
                    await self._document()

    async def close(self) -> None:
        """Stop serving; open pages try again by themselves."""
        for task in (self._feeder, self._sampler):
            if task is not None:
                task.cancel()
        for watcher in self._watchers:
            _replace(watcher, None)
        if self._port is not None:
            await self._port.close()

    async def _get_page(self, _: web.Request) -> web.Response:
        return web.Response(
            body=self._page, content_type="text/html", charset="utf-8", headers=HEADERS
        )

    async def _get_status(self, _: web.Request) -> web.Response:
        body = (await self._document()).encode()
        return web.Response(body=body, content_type="application/json", headers=HEADERS)

    async def _get_history(self, _: web.Request) -> web.Response:
        body = self._history.encode()
        return web.Response(body=body, content_type="application/json", headers=HEADERS)

    async def _get_elections(self, request: web.Request) -> web.Response:
        assert self._elections is not None, "there is a route only then"
        count = request.query.get("count", str(ELECTIONS_TOLD))
        if not (count.isascii() and count.isdigit() and len(count) < COUNT_DIGITS_MAX):
            raise web.HTTPBadRequest(text="count is not a number\n")
        body = self._elections(request.query.get("brokerName") or None, int(count))
        if body is None:
            raise web.HTTPNotFound(text="this broker set is not known\n")
        return web.Response(body=body, content_type="application/json", headers=HEADERS)

    async def _get_events(self, request: web.Request) -> web.StreamResponse:
        if len(self._watchers) >= self._watchers_max:
            raise web.HTTPServiceUnavailable(text="too many pages are open")
        stream = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream"})
        # One slot: whoever reads slowly gets the newest document, and nothing piles up.
        watcher: asyncio.Queue[bytes | None] = asyncio.Queue(1)
        self._watchers.add(watcher)
        try:
            await stream.prepare(request)
            await stream.write(b"retry: %d\n\n" % RETRY_MS)
            self._feed(watcher)
            while (document := await watcher.get()) is not None:
                await stream.write(b"data: %b\n\n" % document)
        except ConnectionError:
            pass  # the page was closed
        finally:
            self._watchers.discard(watcher)
        return stream

    def _feed(self, watcher: asyncio.Queue[bytes | None]) -> None:
        if self._feeder is None or self._feeder.done():
            self._feeder = asyncio.create_task(self._feed_watchers(), name="status page")
        elif self._newest:
            _replace(watcher, self._newest)

    async def _feed_watchers(self) -> None:
        while self._watchers:
            with _survived():
                self._newest = (await self._document()).encode()
                for watcher in self._watchers:
                    _replace(watcher, self._newest)
            await asyncio.sleep(self._period_ms / 1000)
        self._newest = b""


@contextlib.contextmanager
def _survived() -> Iterator[None]:
    """A document that cannot be made is told, and those who wait get the next one."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - whatever it was, it was not the last document
        what = {"message": "no document for the status page", "exception": error}
        asyncio.get_running_loop().call_exception_handler(what)


def _replace(watcher: asyncio.Queue[bytes | None], document: bytes | None) -> None:
    while not watcher.empty():
        watcher.get_nowait()
    watcher.put_nowait(document)
