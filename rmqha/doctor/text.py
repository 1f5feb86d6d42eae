"""A row for people: one line of ``name=value``, moments in UTC."""

from __future__ import annotations

from datetime import UTC, datetime

from rmqha.doctor.stores import Row
from rmqha.remoting import fastjson

_MOMENT_MAX = 253_402_300_799_999
"""The last one that has a year of four digits."""


def line(row: Row) -> str:
    """The row as text; what is no plain word is written as JSON."""
    return "  ".join(f"{name}={_value(name, value)}" for name, value in row.items())


def _value(name: str, value: object) -> str:
    if name.endswith("timestamp") and isinstance(value, int) and 0 < value <= _MOMENT_MAX:
        moment = datetime.fromtimestamp(value / 1_000, UTC)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, str) and value and value.isprintable() and " " not in value:
        return value
    return fastjson.dumps(value).decode()
