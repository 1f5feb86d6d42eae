"""How Java's tools print numbers, times and hash tables, so that ``--plain`` is theirs.

Times are of this machine's zone, as in the Java tool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import TypeVar

from rmqha.remoting import fastjson
from rmqha.remoting.headers import parse_number
from rmqha.store.properties import java_hash

_INT64_MAX = (1 << 63) - 1
_LOAD_PERCENT = 75
PROPERTIES_BUCKETS = 128
"""Java's decoder of properties makes its table with so many buckets."""
_BUCKETS = 16

KeyT = TypeVar("KeyT")


def yes_no(value: bool) -> str:
    """``true`` or ``false``."""
    return "true" if value else "false"


def null(value: str | int | None) -> str:
    """A value as Java joins it to a text; None is ``null``."""
    return "null" if value is None else str(value)


def clipped(text: str, size: int) -> str:
    """At most ``size`` characters: the Java tool cuts names, and pads what is shorter."""
    return text[:size]


def time_of(stamp_ms: int) -> str:
    """``2026-01-31 23:59:58,123``; a number that is no time stays a number."""
    when = _when(stamp_ms)
    return f"{when:%Y-%m-%d %H:%M:%S},{stamp_ms % 1000:03d}" if when else str(stamp_ms)


def second_of(stamp_ms: int) -> str:
    """``2026-01-31 23:59:58``; a number that is no time stays a number."""
    when = _when(stamp_ms)
    return f"{when:%Y-%m-%d %H:%M:%S}" if when else str(stamp_ms)


def parse_time(text: str) -> int | None:
    """Milliseconds since 1970, or ``yyyy-MM-dd#HH:mm:ss:SSS``; None for anything else."""
    number = parse_number(text, _INT64_MAX)
    if number is not None:
        return number
    head, _, thousandths = text.rpartition(":")
    if not (thousandths.isascii() and thousandths.isdigit() and len(thousandths) <= 3):
        return None
    try:
        when = datetime.strptime(head, "%Y-%m-%d#%H:%M:%S")  # noqa: DTZ007
        return int(when.timestamp()) * 1000 + int(thousandths)
    except (ValueError, OverflowError, OSError):
        return None


def _when(stamp_ms: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(stamp_ms // 1000)  # noqa: DTZ006
    except (ValueError, OverflowError, OSError):
        return None


def decimal(value: float) -> str:
    """A double as Java's ``%s`` shows it where that is no exponent: ``0.0``, ``12.5``."""
    return repr(float(value))


def hash_order(
    keys: Iterable[KeyT], buckets: int = _BUCKETS, hash_of: Callable[[KeyT], int] | None = None
) -> list[KeyT]:
    """The keys in the order in which a Java HashMap or HashSet that got them so gives them.

    The table doubles when three quarters of its buckets are used up; keys of one bucket stay in the
    order in which they came.
    """
    listed = list(dict.fromkeys(keys))
    while len(listed) * 100 > buckets * _LOAD_PERCENT:
        buckets *= 2

    def bucket(key: KeyT) -> int:
        value = (java_hash(str(key)) if hash_of is None else hash_of(key)) & 0xFFFFFFFF
        return (value ^ value >> 16) & buckets - 1

    return sorted(listed, key=bucket)


def map_text(entries: Mapping[str, str], buckets: int = _BUCKETS) -> str:
    """A map as Java joins it to a text: ``{a=1, b=2}``."""
    return "{" + ", ".join(f"{key}={entries[key]}" for key in hash_order(entries, buckets)) + "}"


def bytes_text(data: bytes) -> str:
    """Bytes as Java's ``Arrays.toString`` shows them: signed numbers."""
    return "[" + ", ".join(str(byte - 256 if byte > 127 else byte) for byte in data) + "]"


def pretty(value: object, depth: int = 0) -> str:
    """JSON as fastjson indents it: by tabs, entries of maps with number keys on one line."""
    inner, outer = "\n" + "\t" * (depth + 1), "\n" + "\t" * depth
    match value:
        case dict() if value:
            parts = []
            for key, item in value.items():
                lead = str(key) if isinstance(key, int) else inner + _quoted(str(key))
                parts.append(f"{lead}:{pretty(item, depth + 1)}")
            return "{" + ",".join(parts) + outer + "}"
        case dict():
            return "{}"
        case list() | tuple() if value:
            return "[" + ",".join(inner + pretty(item, depth + 1) for item in value) + outer + "]"
        case list() | tuple():
            return "[]"
        case bool():
            return yes_no(value)
        case str():
            return _quoted(value)
        case _:
            return null(value)  # type: ignore[arg-type]


def _quoted(text: str) -> str:
    return fastjson.dumps(text).decode()
