"""The Prometheus port of a process: whether it is wanted, its labels, and scrapes in the loop."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from rmqha.runtime.logs import Logger

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

SCRAPE_TIMEOUT_S = 5.0
LISTENING_ON = "{metricsPromExporterHost}:{metricsPromExporterPort} (metricsPromExporterPort)"
ResultT = TypeVar("ResultT")


def is_wanted(values: Mapping[str, str], log: Logger) -> bool:
    """Whether the configuration asks for Prometheus; another exporter is reported."""
    kind = values["metricsExporterType"].upper()
    if kind in ("PROM", "2"):
        return True
    if kind not in ("DISABLE", "0"):
        log.log("warning", "metrics_exporter_unsupported", kind=kind)
    return False


def labels_of(values: Mapping[str, str]) -> dict[str, str]:
    """The pairs of ``metricsLabel``; a server's own labels go over them, or alerts find nobody.

    What Prometheus takes in no name is an underscore, as Java's exporter writes it. The label that is
    a series' own name is left out: with a second one a scrape is thrown away as a whole.
    """
    pairs = (pair.partition(":") for pair in values["metricsLabel"].split(","))
    found = {_label(name): value.strip() for text, _, value in pairs if (name := text.strip())}
    found.pop("__name__", None)
    return found


def _label(name: str) -> str:
    fitting = re.sub("[^a-zA-Z0-9_]", "_", name)
    return fitting if fitting[:1].isalpha() or fitting[:1] == "_" else f"_{fitting}"


def in_turns_of_loop(
    look: Callable[[], Coroutine[object, object, ResultT]],
) -> Callable[[], ResultT]:
    """A look for a scrape, which has a thread of its own, in the loop's, with turns for others."""
    loop = asyncio.get_running_loop()
    return lambda: asyncio.run_coroutine_threadsafe(look(), loop).result(SCRAPE_TIMEOUT_S)


async def serve(
    values: Mapping[str, str], collectors: Sequence[Collector], rejected: Counter[str],
    not_ready: Callable[[], str | None],
) -> Callable[[], Awaitable[None]]:  # fmt: skip
    """Answer scrapes of these collectors, the build and the process; returns what ends it.

    Args:
        rejected: counts connections that the port did not let in.
        not_ready: what the process lacks, for ``/readyz``; None for nothing.

    Raises:
        OSError: the port cannot be used.
    """
    from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

    from rmqha.cli.process_series import OfProcess
    from rmqha.web.aio.exporter import Exporter
    from rmqha.web.aio.port import Hosts

    exposed = CollectorRegistry()
    for collector in collectors:
        exposed.register(collector)
    exposed.register(OfProcess(labels_of(values)))
    hosts = Hosts.of_machine(values["httpAllowedHosts"].split(","))
    exporter = Exporter(
        lambda: generate_latest(exposed), CONTENT_TYPE_LATEST, hosts, rejected, not_ready
    )
    host, port = values["metricsPromExporterHost"], int(values["metricsPromExporterPort"])
    await exporter.start(host or "0.0.0.0", port)
    return exporter.close
