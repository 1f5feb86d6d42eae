"""Where reading begins and ends, and which queues it is of, as users write it in JSON.

The forms are those of Spark's Kafka source with a broker's name between topic and queue. Nothing
here talks to anybody.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Any

from msgspec import Struct

from rmqha.base.errors import ConfigInvalid
from rmqha.client.routes import QueueKey
from rmqha.pipeline.live.said import Said
from rmqha.remoting.headers import INT32_MAX, INT64_MAX, parse_number

OFFSET_LATEST, OFFSET_EARLIEST = -1, -2
"""In JSON, as with Kafka."""
TOLD_CHARACTERS_MAX = 1000
"""So much of a wrong option is told."""
_WRONG = (ValueError, AttributeError, TypeError, RecursionError)


class At(Enum):
    """Where a range begins or ends."""

    EARLIEST = "earliest"
    LATEST = "latest"
    EACH = "each"
    TIME = "time"
    EACH_TIME = "each time"


class Bound(Struct, frozen=True):
    """An edge of what is read.

    Attributes:
        each: with ``EACH`` the offsets of queues, with ``EACH_TIME`` times in milliseconds; the
            others are taken whole.
        time_ms: with ``TIME`` the first message stored at or after it.
    """

    at: At
    each: Mapping[QueueKey, int] = {}
    time_ms: int = 0


def bound(said: Said, which: str) -> Bound | None:
    """Read the options that say where reading is ``starting``, or ``ending``; None without any.

    Raises:
        ConfigInvalid: one is malformed, or there are two.
    """
    offsets, stamp, stamps = f"{which}Offsets", f"{which}Timestamp", f"{which}OffsetsByTimestamp"
    chosen = [name for name in (offsets, stamp, stamps) if said.text(name, None) is not None]
    if len(chosen) > 1:
        raise ConfigInvalid(f"{chosen[0]} and {chosen[1]} exclude each other")
    if not chosen:
        return None
    if chosen[0] == stamp:
        return Bound(At.TIME, time_ms=said.number(stamp, None, 0, INT64_MAX))
    text = said.text(chosen[0], "")
    if chosen[0] == stamps:
        example = 'JSON like {"topic":{"broker-a":{"0":1700000000000}}}'
        return Bound(At.EACH_TIME, _numbers(stamps, text, example, 0))
    if text.lower() in (At.EARLIEST.value, At.LATEST.value):
        return Bound(At(text.lower()))
    example = 'earliest, latest, or JSON like {"topic":{"broker-a":{"0":12}}}'
    return Bound(At.EACH, _numbers(offsets, text, example, OFFSET_EARLIEST))


def assigned_queues(text: str) -> frozenset[QueueKey]:
    """Read the option ``assign``: ``{"topic": {"broker-a": [0, 1]}}``.

    Raises:
        ConfigInvalid: it is something else, or names no queue.
    """
    try:
        found = frozenset(
            QueueKey(topic, broker_name, _natural(queue_id, 0, INT32_MAX))
            for topic, broker_name, listed in _brokers(text)
            for queue_id in _listed(listed)
        )
    except _WRONG as error:
        raise ConfigInvalid(
            f'assign={text[:TOLD_CHARACTERS_MAX]} must be JSON like {{"topic":{{"broker-a":[0,1]}}}}'
        ) from error
    if not found:
        raise ConfigInvalid(f"assign={text} names no queue")
    return found


def _numbers(name: str, text: str, example: str, low: int) -> dict[QueueKey, int]:
    try:
        return _once(
            (QueueKey(topic, broker_name, _natural(queue_id, 0, INT32_MAX)), _natural(number, low))
            for topic, broker_name, queues in _brokers(text)
            for queue_id, number in queues.items()
        )
    except _WRONG as error:
        raise ConfigInvalid(f"{name}={text[:TOLD_CHARACTERS_MAX]} must be {example}") from error


def _brokers(text: str) -> Iterator[tuple[str, str, Any]]:
    for topic, brokers in json.loads(text, object_pairs_hook=_once).items():
        for broker_name, queues in brokers.items():
            yield topic, broker_name, queues


def _once(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """Of a key that is there twice, with two values, nobody knows which is meant."""
    found: dict[Any, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"{key} is there twice")
        found[key] = value
    return found


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is no list")
    return value


def _natural(value: object, low: int, high: int = INT64_MAX) -> int:
    number = parse_number(value, high) if isinstance(value, str) else value
    if not isinstance(number, int) or isinstance(number, bool) or not low <= number <= high:
        raise ValueError(f"{value!r} is no number from {low} to {high}")
    return number
