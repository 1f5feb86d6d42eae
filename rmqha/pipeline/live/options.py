"""Options of the source and the sink ``rocketmq``: what may be said, checked and made into values.

Names are those of Spark's Kafka source and of rocketmq-spark where these have one; case does not
matter, as everywhere in Spark. Nothing here talks to anybody.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

from msgspec import Struct

from rmqha.base.errors import ConfigInvalid
from rmqha.client.access import Access
from rmqha.client.routes import QueueKey
from rmqha.remoting.address import parse_address
from rmqha.remoting.headers import INT64_MAX, parse_number
from rmqha.remoting.topic_names import topic_error
from rmqha.runtime.tls_settings import read_tls

NAME = "rocketmq"
ACCESS_OPTIONS = (
    "accessKey", "secretKey", "tls.enable", "tls.client.authServer", "tls.client.trustCertPath",
    "tls.client.certPath", "tls.client.keyPath", "tls.client.keyPassword",
)  # fmt: skip
READ_OPTIONS = (
    "nameServer", "topic", "subscribe", "subscribePattern", "startingOffsets", "endingOffsets",
    "startingTimestamp", "endingTimestamp", "maxOffsetsPerTrigger", "failOnDataLoss",
    "subExpression", "includeBody", "pullBatchSize", "pullTimeoutMs", "failoverTimeoutMs",
    "consumerGroup", *ACCESS_OPTIONS,
)  # fmt: skip
WRITE_OPTIONS = (
    "nameServer", "topic", "producerGroup", "batchBytes", "batchMessages", "maxMessageBytes",
    "sendTimeoutMs", "failoverTimeoutMs", *ACCESS_OPTIONS,
)  # fmt: skip
SPARK_OPTIONS = frozenset({"checkpointlocation", "queryname", "outputmode"})
"""What Spark itself hands to a sink of a stream."""

PULL_BATCH_MAX = 1024
BATCH_MESSAGES_MAX = 16_384
MESSAGE_BYTES_MAX = 4 << 20
"""A broker's ``maxMessageSize`` by default; it counts for a whole batch."""
CONSUMER_GROUP = "TOOLS_CONSUMER"
"""Every broker has it, so that reading makes no group."""
PRODUCER_GROUP = "rmqha-pipeline"
TIMEOUT_MS = 3_000
FAILOVER_TIMEOUT_MS = 60_000
OFFSET_LATEST, OFFSET_EARLIEST = -1, -2
"""In JSON, as with Kafka."""


class At(Enum):
    """Where a range begins or ends."""

    EARLIEST = "earliest"
    LATEST = "latest"
    EACH = "each"
    TIME = "time"


class Bound(Struct, frozen=True):
    """An edge of what is read.

    Attributes:
        each: with ``EACH`` the offsets of queues; the others are taken whole.
        time_ms: with ``TIME`` the first message stored at or after it.
    """

    at: At
    each: Mapping[QueueKey, int] = {}
    time_ms: int = 0


class ReadOptions(Struct, frozen=True):
    """What a reader was asked. Times are milliseconds.

    Attributes:
        topics: named topics; empty with a pattern.
        pattern: matches the whole name of each topic that is read.
        expression: tags as a consumer subscribes to them; ``*`` for all.
        starting, ending: None where nothing was said.
        failover_timeout_ms: how long a broker set may be without a master, or its new master
            without what was read before.
    """

    name_servers: tuple[str, ...]
    topics: tuple[str, ...]
    pattern: str | None
    starting: Bound | None
    ending: Bound | None
    max_offsets_per_trigger: int | None
    fail_on_data_loss: bool
    expression: str
    include_body: bool
    pull_batch_size: int
    pull_timeout_ms: int
    failover_timeout_ms: int
    consumer_group: str
    access: Access = Access()

    @property
    def tags(self) -> frozenset[str] | None:
        """The wanted tags; None for all messages."""
        if self.expression == "*":
            return None
        return frozenset(one.strip() for one in self.expression.split("||"))


class WriteOptions(Struct, frozen=True):
    """What a writer was asked. Times are milliseconds.

    Attributes:
        topic: of rows that name none; None when every row must.
        batch_bytes, batch_messages: what one request carries at most.
        message_bytes_max: a larger message fails the task.
    """

    name_servers: tuple[str, ...]
    topic: str | None
    producer_group: str
    batch_bytes: int
    batch_messages: int
    message_bytes_max: int
    send_timeout_ms: int
    failover_timeout_ms: int
    access: Access = Access()


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """Read the options of a source.

    Raises:
        ConfigInvalid: one is unknown, missing, malformed, or contradicts another.
    """
    said = _Said(given, READ_OPTIONS)
    topics, pattern = _subscription(said)
    return ReadOptions(
        name_servers=_name_servers(said),
        topics=topics,
        pattern=pattern,
        starting=_bound(said, "starting"),
        ending=_bound(said, "ending"),
        max_offsets_per_trigger=said.number("maxOffsetsPerTrigger", None, 1, INT64_MAX),
        fail_on_data_loss=said.flag("failOnDataLoss", default=True),
        expression=_expression(said.text("subExpression", "*")),
        include_body=said.flag("includeBody", default=True),
        pull_batch_size=said.number("pullBatchSize", 32, 1, PULL_BATCH_MAX),
        pull_timeout_ms=said.number("pullTimeoutMs", TIMEOUT_MS, 1, INT64_MAX),
        failover_timeout_ms=said.number("failoverTimeoutMs", FAILOVER_TIMEOUT_MS, 0, INT64_MAX),
        consumer_group=said.text("consumerGroup", CONSUMER_GROUP),
        access=_access(said),
    )


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """Read the options of a sink.

    Raises:
        ConfigInvalid: one is unknown, missing or malformed.
    """
    said = _Said(given, WRITE_OPTIONS, SPARK_OPTIONS)
    topic = said.text("topic", None)
    if topic is not None:
        _check_topic(topic)
    message_max = said.number("maxMessageBytes", MESSAGE_BYTES_MAX, 1, MESSAGE_BYTES_MAX * 3)
    return WriteOptions(
        name_servers=_name_servers(said),
        topic=topic,
        producer_group=said.text("producerGroup", PRODUCER_GROUP),
        batch_bytes=said.number("batchBytes", min(1 << 20, message_max), 1, message_max),
        batch_messages=said.number("batchMessages", 1024, 1, BATCH_MESSAGES_MAX),
        message_bytes_max=message_max,
        send_timeout_ms=said.number("sendTimeoutMs", TIMEOUT_MS, 1, INT64_MAX),
        failover_timeout_ms=said.number("failoverTimeoutMs", FAILOVER_TIMEOUT_MS, 0, INT64_MAX),
        access=_access(said),
    )


def check_batch(options: ReadOptions) -> None:
    """What only a stream can be asked.

    Raises:
        ConfigInvalid: it was asked of a batch.
    """
    if options.max_offsets_per_trigger is not None:
        raise ConfigInvalid("maxOffsetsPerTrigger is for streams; bound a batch by endingOffsets")
    if options.starting is not None and options.starting.at is At.LATEST:
        raise ConfigInvalid("startingOffsets=latest is for streams: a batch would read nothing")
    if options.ending is not None and options.ending.at is At.EARLIEST:
        raise ConfigInvalid("endingOffsets=earliest would read nothing")


def check_stream(options: ReadOptions) -> None:
    """What only a batch can be asked.

    Raises:
        ConfigInvalid: it was asked of a stream.
    """
    if options.ending is not None:
        raise ConfigInvalid(
            "endingOffsets and endingTimestamp are for batches: a stream has no end"
        )


class _Said:
    """Options by name, with errors that name them."""

    def __init__(
        self, given: Mapping[str, str], known: Iterable[str], more: frozenset[str] = frozenset()
    ) -> None:
        self._texts = {key.lower(): str(value) for key, value in given.items()}
        names = {name.lower(): name for name in known}
        unknown = sorted(key for key in self._texts if key not in names and key not in more)
        if unknown:
            raise ConfigInvalid(
                f"{NAME} has no option {', '.join(unknown)}; it has {', '.join(names.values())}"
            )

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


def _access(said: _Said) -> Access:
    """What lets this reader or writer in."""
    tls = {
        name: text
        for name in ACCESS_OPTIONS
        if name.startswith("tls.") and (text := said.text(name, None)) is not None
    }
    if tls:
        # What a machine has under /etc is for its servers.
        tls["tls.config.file"] = ""
    read_tls(tls)
    user, secret = said.text("accessKey", ""), said.text("secretKey", "")
    if bool(user) != bool(secret):
        raise ConfigInvalid("accessKey and secretKey belong together")
    return Access(tls, user, secret)


def _name_servers(said: _Said) -> tuple[str, ...]:
    text = said.text("nameServer", None)
    if text is None:
        raise ConfigInvalid(f"{NAME} needs nameServer: host:port, several with semicolons")
    found = tuple(one.strip() for one in re.split("[;,]", text) if one.strip())
    for one in found:
        parse_address(one)
    return found


def _subscription(said: _Said) -> tuple[tuple[str, ...], str | None]:
    names = ("topic", "subscribe", "subscribePattern")
    chosen = [name for name in names if said.text(name, None) is not None]
    if len(chosen) != 1:
        raise ConfigInvalid(f"{NAME} needs one of {', '.join(names)}, not {len(chosen)} of them")
    text = said.text(chosen[0], "")
    if chosen[0] == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise ConfigInvalid(f"subscribePattern={text} is no pattern: {error}") from error
        return (), text
    topics = tuple(sorted({one.strip() for one in text.split(",")}))
    for topic in topics:
        _check_topic(topic)
    return topics, None


def _check_topic(topic: str) -> None:
    error = topic_error(topic)
    if error is not None:
        raise ConfigInvalid(error)


def _expression(text: str) -> str:
    tags = [one.strip() for one in text.split("||")]
    if not all(tags):
        raise ConfigInvalid(f"subExpression={text} is no list of tags: TagA || TagB, or *")
    return "*" if "*" in tags else " || ".join(sorted(set(tags)))


def _bound(said: _Said, which: str) -> Bound | None:
    offsets, stamp = f"{which}Offsets", f"{which}Timestamp"
    text = said.text(offsets, None)
    time_ms = said.number(stamp, None, 0, INT64_MAX)
    if text is not None and time_ms is not None:
        raise ConfigInvalid(f"{offsets} and {stamp} exclude each other")
    if time_ms is not None:
        return Bound(At.TIME, time_ms=time_ms)
    if text is None:
        return None
    if text.lower() in (At.EARLIEST.value, At.LATEST.value):
        return Bound(At(text.lower()))
    return Bound(At.EACH, _offsets(offsets, text))


def _offsets(name: str, text: str) -> dict[QueueKey, int]:
    """``{"topic": {"broker-a": {"0": 12}}}``."""
    wrong = ConfigInvalid(
        f'{name}={text} must be earliest, latest, or JSON like {{"topic":{{"broker-a":{{"0":12}}}}}}'
    )
    try:
        topics = json.loads(text)
        return {
            QueueKey(topic, broker_name, _natural(queue_id, 0)): _natural(offset, OFFSET_EARLIEST)
            for topic, brokers in topics.items()
            for broker_name, queues in brokers.items()
            for queue_id, offset in queues.items()
        }
    except (ValueError, AttributeError, TypeError) as error:
        raise wrong from error


def _natural(value: object, low: int) -> int:
    number = parse_number(value, INT64_MAX) if isinstance(value, str) else value
    if not isinstance(number, int) or isinstance(number, bool) or number < low:
        raise ValueError(f"{value!r} is no number from {low} on")
    return number
