"""What a user said in options of Spark, by name, with errors of one line that name the option.

Case does not matter, as everywhere in Spark, which hands names over in lower case. Names of Spark's
Kafka source that have another one here are answered with that. Nothing here talks to anybody.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from rmqha.base.errors import ConfigInvalid
from rmqha.pipeline.spark.plain_errors import no_option
from rmqha.remoting.headers import INT64_MAX, parse_number

_ELSEWHERE: Mapping[str, str] = {
    "kafka.bootstrap.servers": "name servers are given as nameServer",
    "kafka.group.id": "the group to pull as is consumerGroup",
    "groupIdPrefix": (
        "a group for each query would stay at the brokers for ever; one for all is consumerGroup"
    ),
    "kafkaConsumer.pollTimeoutMs": "a request's time limit is pullTimeoutMs",
    "fetchOffset.numRetries": "brokers are asked again until failoverTimeoutMs have passed",
    "fetchOffset.retryIntervalMs": "brokers are asked again until failoverTimeoutMs have passed",
}
"""Options of Kafka's source that mean nothing here under their name."""
_KAFKA_CLIENT = "kafka."
_UNITS_MS: Mapping[str, int] = {
    "": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000,
}  # fmt: skip
_DURATION = re.compile(r"([0-9]{1,18}) *([a-z]*)")


class Said:
    """Options by name.

    Args:
        format_name: of the source or sink that has them.
        given: what the user said.
        known: the names that there are.
        more: further names, in lower case, that are somebody else's.

    Raises:
        ConfigInvalid: one has no such name.
    """

    def __init__(
        self,
        format_name: str,
        given: Mapping[str, str],
        known: Iterable[str],
        more: frozenset[str] = frozenset(),
    ) -> None:
        self._texts = {key.lower(): str(value) for key, value in given.items()}
        names = {name.lower(): name for name in known}
        unknown = sorted(key for key in self._texts if key not in names and key not in more)
        if unknown:
            raise ConfigInvalid(_no_option(format_name, unknown[0], names))

    def text(self, name: str, default: Any) -> Any:
        """Read an option whose text is never blank."""
        text = self._texts.get(name.lower())
        if text is None:
            return default
        if not text.strip():
            raise ConfigInvalid(f"{name} is empty")
        return text.strip()

    def number(self, name: str, default: Any, low: int, high: int) -> Any:
        """Read a number and hold it within its bounds."""
        text = self.text(name, None)
        if text is None:
            return default
        value = parse_number(text, INT64_MAX)
        if value is None or not low <= value <= high:
            raise ConfigInvalid(f"{name}={text} must be a number from {low} to {high}")
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        """True or false, in any case."""
        text = self.text(name, "true" if default else "false").lower()
        if text not in ("true", "false"):
            raise ConfigInvalid(f"{name}={text} must be true or false")
        return bool(text == "true")

    def duration_ms(self, name: str, default: int) -> int:
        """Read a time with a unit, as Spark writes them; without one it is milliseconds."""
        text = self.text(name, None)
        if text is None:
            return default
        found = _DURATION.fullmatch(text.lower())
        unit_ms = None if found is None else _UNITS_MS.get(found[2])
        if found is None or unit_ms is None:
            raise ConfigInvalid(f"{name}={text} must be a time like 500ms, 30s, 15m or 1h")
        return min(int(found[1]) * unit_ms, INT64_MAX)


def _no_option(format_name: str, key: str, names: Mapping[str, str]) -> str:
    elsewhere = {name.lower(): name for name in _ELSEWHERE}
    if key in elsewhere:
        name = elsewhere[key]
        return f"{format_name} has no option {name}: {_ELSEWHERE[name]}"
    if key.startswith(_KAFKA_CLIENT):
        return (
            f"{format_name} has no option {key}: options of Kafka's client mean nothing to RocketMQ"
        )
    return no_option(format_name, key, names.values())
