"""TLS of a process: read at the start, watched while it runs, shown as metrics."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rmqha.base.errors import ConfigInvalid
from rmqha.cli.output import complain
from rmqha.cli.process import EXIT_CONFIG
from rmqha.runtime.aio.tls import Tls
from rmqha.runtime.logs import Logger
from rmqha.runtime.tls_settings import TLS_DEFAULTS

if TYPE_CHECKING:
    from prometheus_client.core import Metric
    from prometheus_client.registry import Collector

TELL_EVERY_S = 60.0


def load_tls(process: str, values: Mapping[str, str], log: Logger) -> Tls:
    """The certificates that a configuration names; ends the process where they cannot be used."""
    try:
        tls = Tls(values, log)
    except ConfigInvalid as error:
        complain(process, error)
        sys.exit(EXIT_CONFIG)
    if tls.server is not None or tls.client is not None:
        log.log("info", "tls_loaded", mode=tls.mode.value, expires_ms=tls.expires_ms)
    return tls


class DoorWatch:
    """Looks at certificates, and tells what was rejected, for as long as the process runs.

    Made in the running loop.

    Args:
        tls: of the process.
        rejected: counts by reason, which are told of together.
        log: told what has come since it was told last, at most once a minute.
    """

    def __init__(self, tls: Tls, rejected: Sequence[Counter[str]], log: Logger) -> None:
        self._tasks = [
            asyncio.create_task(tls.watch(), name="certificates"),
            asyncio.create_task(_tell_rejected(rejected, log), name="rejected"),
        ]

    async def stop(self) -> None:
        """Look no more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _tell_rejected(rejected: Sequence[Counter[str]], log: Logger) -> None:
    told = Counter[str]()
    while True:
        await asyncio.sleep(TELL_EVERY_S)
        now = sum(rejected, Counter[str]())
        if new := now - told:
            log.log(
                "warning", "rejected", by_reason=dict(sorted(new.items())), seconds=TELL_EVERY_S
            )
        told = now


def tls_values(values: Mapping[str, str]) -> dict[str, str]:
    """The keys about TLS alone, for a process that this one starts."""
    return {key: values[key] for key in TLS_DEFAULTS if key in values}


def tls_collector(tls: Tls, labels: Mapping[str, str]) -> Collector:
    """The series of a process's certificates and of its door."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.registry import Collector

    names, shown = sorted(labels), [labels[name] for name in sorted(labels)]

    class TlsCollector(Collector):
        def collect(self) -> Iterator[Metric]:
            reloads = CounterMetricFamily(
                "rmqha_tls_reloads", "Certificates read again", labels=[*names, "result"]
            )
            reloads.add_metric([*shown, "used"], tls.reloads)
            reloads.add_metric([*shown, "failed"], tls.failures)
            yield reloads
            if tls.expires_ms is not None:
                ends = GaugeMetricFamily(
                    "rmqha_tls_certificate_expires_timestamp",
                    "When the certificate of the ports ends",
                    labels=names,
                    unit="seconds",
                )
                ends.add_metric(shown, tls.expires_ms / 1000)
                yield ends

    return TlsCollector()


def rejected_collector(counts: Sequence[tuple[Mapping[str, str], Counter[str]]]) -> Collector:
    """The series of what was rejected, of each node of a process with its labels."""
    from prometheus_client.core import CounterMetricFamily
    from prometheus_client.registry import Collector

    class RejectedCollector(Collector):
        def collect(self) -> Iterator[Metric]:
            family = CounterMetricFamily(
                "rmqha_rejected", "Connections and requests that were turned away, by reason"
            )
            for labels, by_reason in counts:
                for reason, number in sorted(by_reason.items()):
                    family.add_sample("rmqha_rejected_total", {**labels, "reason": reason}, number)
            yield family

    return RejectedCollector()
