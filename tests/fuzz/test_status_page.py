"""Any bytes to the status page's port: the page is served to the next one all the same."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Any

import pytest

from rmqha.web.aio.port import Hosts
from rmqha.web.aio.server import StatusServer
from tests.fuzz.mutations import mutated
from tests.web.test_server import Source

SEEDS = [
    b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /status.json?x=%ff HTTP/1.1\r\nHost: a\r\nRange: bytes=0-1\r\nExpect: 100-continue\r\n\r\n",
    b"GET /events HTTP/1.0\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Encoding: gzip\r\n\r\nhello",
]
INPUTS = 300
TIMEOUT_S = 10.0
ANY = Hosts(frozenset("*"))
PATIENCE_S = 0.1
"""For an answer to what may be half a request, to which none comes."""


async def sent(port: int, data: bytes, timeout_s: float = PATIENCE_S) -> bytes:
    """What the server answers first to some bytes; empty if nothing, or not in time."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        with contextlib.suppress(ConnectionError, TimeoutError):
            return await asyncio.wait_for(reader.read(64), timeout_s)
        return b""
    finally:
        writer.close()


@pytest.mark.slow
async def test_page_when_sent_any_bytes_then_the_next_one_is_served() -> None:
    """And no handler ends in an error that nobody foresaw."""
    server, rng = StatusServer(Source(), hosts=ANY, period_ms=1_000), random.Random(1)
    unforeseen: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: unforeseen.append(told))
    await server.start("127.0.0.1", 0)
    try:
        answers = [await sent(server.port, mutated(rng, SEEDS)) for _ in range(INPUTS)]
        assert (await sent(server.port, SEEDS[0], TIMEOUT_S)).startswith(b"HTTP/1.1 200 ")
    finally:
        await server.close()
    codes = {one.split(b" ")[1] for one in answers if one.startswith(b"HTTP/1.")}
    assert {b"200", b"400"} <= codes
    assert not {one for one in codes if one.startswith(b"5")} - {b"503"}
    assert unforeseen == []
