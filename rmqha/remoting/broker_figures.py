"""A few figures of the table with which a broker answers request 28.

Source: AdminBrokerProcessor.prepareRuntimeInfo of RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

from math import isfinite
from typing import NamedTuple

from rmqha.remoting import fastjson

STATUS_PAGE = "statusPage"
"""In the table of 28, and an ext field of the answers to 1005 and 319: where a server's page is."""


class Figures(NamedTuple):
    """Of one broker; None where it did not say.

    Attributes:
        put_tps, pull_tps: messages per second over the last ten seconds.
        max_offset: end of its commit log in bytes.
        status_page: where its status page listens; ours say it.
    """

    put_tps: float | None = None
    pull_tps: float | None = None
    max_offset: int | None = None
    status_page: str | None = None


UNKNOWN = Figures()


def read_figures(body: bytes) -> Figures:
    """Read ``{"table":{"putTps":"1.0 0.9 0.8",...}}``; what is missing or odd is None.

    Raises:
        RemoteProtocolError: not JSON.
    """
    parsed = fastjson.loads(body)
    table = parsed.get("table") if isinstance(parsed, dict) else None
    if not isinstance(table, dict):
        return UNKNOWN
    end = _number(table.get("commitLogMaxOffset"))
    return Figures(
        _number(table.get("putTps")),
        _number(table.get("getTransferredTps")),
        None if end is None else int(end),
        _text(table.get(STATUS_PAGE)),
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _number(text: object) -> float | None:
    try:
        number = float(str(text).split()[0])
    except (ValueError, IndexError):
        return None
    return number if isfinite(number) else None
