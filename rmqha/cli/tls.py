"""TLS of a process: read at the start, watched while it runs, shown as metrics."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from rmqha.base.errors import ConfigInvalid
from rmqha.cli.process import EXIT_CONFIG, complain
from rmqha.runtime.aio.tls import Tls
from rmqha.runtime.logs import Logger
from rmqha.runtime.tls_settings import TLS_DEFAULTS

if TYPE_CHECKING:
    from prometheus_client.core import Metric
    from prometheus_client.registry import Collector


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


class TlsWatch:
    """Looks at the certificates for as long as the process runs; made in the running loop."""

    def __init__(self, tls: Tls) -> None:
        self._task = asyncio.create_task(tls.watch(), name="certificates")

    async def stop(self) -> None:
        """Look no more."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


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
            refused = CounterMetricFamily(
                "rmqha_door_refused",
                "Connections closed before they were let in",
                labels=[*names, "reason"],
            )
            for reason in ("crowd", "handshake", "plain", "silent"):
                refused.add_metric([*shown, reason], tls.refused[reason])
            yield refused
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
