"""Serving the status page beside a server, if its file asks for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from msgspec.structs import replace

from rmqha.runtime.aio.tls import Tls
from rmqha.runtime.exposure import open_doors
from rmqha.runtime.logs import Logger
from rmqha.web.document import StatusDocument
from rmqha.web.settings import status_address


class Page(Protocol):
    """Makes one node's documents."""

    async def document(self) -> StatusDocument:
        """What the node knows now."""

    async def close(self) -> None:
        """Stop whatever it does in the background."""


async def start_status_page(
    kind: str,
    values: Mapping[str, str],
    tls: Tls,
    make: Callable[[], Page],
    log: Logger,
    rejected: Counter[str],
    not_ready: Callable[[], str | None],
    elections: Callable[[str | None, int], bytes | None] | None = None,
    told: Callable[[str], None] | None = None,
) -> Callable[[], Awaitable[None]]:
    """Serve the page at ``statusPageHost:statusPagePort``; returns how to stop.

    Args:
        kind: of the process, as ``open_doors`` names it.
        tls: of the process; what it says of the doors may change with a file.
        make: makes the page; asked only when there is a port, for aiohttp and what else it needs
            is several megabytes.
        rejected: counts connections that the port did not let in.
        not_ready: what the process lacks, for ``/readyz``; None for nothing.
        elections: a controller's, for ``/elections.json``.
        told: takes ``host:port`` of the page, for those who ask the node where it is.

    Raises:
        OSError: the port cannot be used.
    """
    address = status_address(values)
    if address is None:
        return nothing
    from rmqha.web.aio.port import Hosts
    from rmqha.web.aio.server import StatusServer

    page = make()

    async def document() -> StatusDocument:
        doors = open_doors(kind, values, tls.settings)
        return replace(await page.document(), open_doors=doors)

    server = StatusServer(
        document,
        hosts=Hosts.of_machine(values["httpAllowedHosts"].split(",")),
        rejected=rejected,
        not_ready=not_ready,
        elections=elections,
    )
    port = await server.start(*address)
    if told is not None:
        told(f"{address[0]}:{port}")
    log.log("info", "status_page_started", url=f"http://{address[0]}:{port}/")

    async def stop() -> None:
        await server.close()
        await page.close()

    return stop


async def nothing() -> None:
    """There is nothing to stop."""
