"""``/livez`` and ``/readyz`` on both HTTP ports of a process."""

from __future__ import annotations

from collections.abc import Callable

import aiohttp
import pytest

from rmqha.web.aio.exporter import Exporter
from rmqha.web.aio.port import Hosts
from rmqha.web.aio.server import StatusServer
from rmqha.web.document import NodeView, StatusDocument

HOSTS = Hosts.of_machine()


async def _document() -> StatusDocument:
    return StatusDocument(1, NodeView("controller", "a:1", "0", 0))


class Missing:
    """What a process lacks, as a test says."""

    text: str | None = "no leader is known"

    def __call__(self) -> str | None:
        return self.text


def page(missing: Missing) -> StatusServer:
    return StatusServer(_document, not_ready=missing)


def exporter(missing: Missing) -> Exporter:
    return Exporter(lambda: b"up 1\n", "text/plain", HOSTS, not_ready=missing)


async def asked(port: int, path: str, host: str = "localhost") -> tuple[int, str]:
    url = f"http://127.0.0.1:{port}{path}"
    async with (
        aiohttp.ClientSession() as session,
        session.get(url, headers={"Host": host}) as answer,
    ):
        return answer.status, await answer.text()


@pytest.mark.parametrize("make", [page, exporter])
async def test_port_when_asked_for_health_then_it_says_what_is_missing(
    make: Callable[[Missing], StatusServer | Exporter],
) -> None:
    """A supervisor reads the code, a person the sentence."""
    missing = Missing()
    served = make(missing)
    port = await served.start("127.0.0.1", 0)
    assert await asked(port, "/livez") == (200, "live\n")
    assert await asked(port, "/readyz") == (503, "no leader is known\n")
    missing.text = None
    assert await asked(port, "/readyz") == (200, "ready\n")
    assert (await asked(port, "/readyz", host="evil.example.com"))[0] == 421
    assert (await asked(port, "/healthz"))[0] == 404
    await served.close()
