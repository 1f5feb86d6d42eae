"""Options of the source and the sink ``rocketmq``: what may be said, checked and made into values.

Names are those of Spark's Kafka source and of rocketmq-spark where these have one; case does not
matter, as everywhere in Spark. Nothing here talks to anybody.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from rmqha.base.errors import ConfigInvalid
from rmqha.client.access import Access
from rmqha.client.routes import QueueKey
from rmqha.pipeline.live.bounds import At, Bound, assigned_queues, bound
from rmqha.pipeline.live.said import Said
from rmqha.remoting.address import parse_address
from rmqha.remoting.headers import INT64_MAX
from rmqha.remoting.topic_names import topic_error
from rmqha.runtime.tls_settings import read_tls

NAME = "rocketmq"
ACCESS_OPTIONS = (
    "accessKey", "secretKey", "tls.enable", "tls.client.authServer", "tls.client.trustCertPath",
    "tls.client.certPath", "tls.client.keyPath", "tls.client.keyPassword",
)  # fmt: skip
READ_OPTIONS = (
    "nameServer", "topic", "subscribe", "subscribePattern", "assign", "startingOffsets",
    "endingOffsets", "startingTimestamp", "endingTimestamp", "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy", "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger", "maxTriggerDelay", "minPartitions", "maxRecordsPerPartition",
    "failOnDataLoss", "subExpression", "includeBody", "includeHeaders", "pullBatchSize",
    "pullTimeoutMs", "failoverTimeoutMs", "consumerGroup", *ACCESS_OPTIONS,
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
PARTITIONS_MAX = 100_000
"""Tasks of one batch."""
TRIGGER_DELAY_MS = 900_000
"""Kafka's, too."""


class ReadOptions(Struct, frozen=True):
    """What a reader was asked. Times are milliseconds.

    Attributes:
        topics: named topics; empty with a pattern.
        pattern: matches the whole name of each topic that is read.
        assigned: the only queues that are read; None for all of the topics.
        expression: tags as a consumer subscribes to them; ``*`` for all.
        starting, ending: None where nothing was said.
        is_start_required: a queue without a message at or after the starting time is an error.
        min_offsets_per_trigger: a stream waits for so many, but no longer than
            ``trigger_delay_ms`` since its last batch.
        min_partitions, partition_records_max: how finely queues are split.
        failover_timeout_ms: how long a broker set may be without a master, or its new master
            without what was read before.
    """

    name_servers: tuple[str, ...]
    topics: tuple[str, ...]
    pattern: str | None
    assigned: frozenset[QueueKey] | None
    starting: Bound | None
    ending: Bound | None
    is_start_required: bool
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    trigger_delay_ms: int
    min_partitions: int | None
    partition_records_max: int | None
    fail_on_data_loss: bool
    expression: str
    include_body: bool
    include_headers: bool
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
    said = Said(NAME, given, READ_OPTIONS)
    topics, pattern, assigned = _subscription(said)
    starting, most, least, delay_ms = bound(said, "starting"), *_trigger(said)
    return ReadOptions(
        name_servers=_name_servers(said),
        topics=topics,
        pattern=pattern,
        assigned=assigned,
        starting=starting,
        ending=bound(said, "ending"),
        is_start_required=_is_start_required(said, starting),
        max_offsets_per_trigger=most,
        min_offsets_per_trigger=least,
        trigger_delay_ms=delay_ms,
        min_partitions=said.number("minPartitions", None, 1, PARTITIONS_MAX),
        partition_records_max=said.number("maxRecordsPerPartition", None, 1, INT64_MAX),
        fail_on_data_loss=said.flag("failOnDataLoss", default=True),
        expression=_expression(said.text("subExpression", "*")),
        include_body=said.flag("includeBody", default=True),
        include_headers=said.flag("includeHeaders", default=False),
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
    said = Said(NAME, given, WRITE_OPTIONS, SPARK_OPTIONS)
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
    if options.min_offsets_per_trigger is not None:
        raise ConfigInvalid("minOffsetsPerTrigger is for streams: a batch waits for nothing")
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
            "endingOffsets, endingTimestamp and endingOffsetsByTimestamp are for batches:"
            " a stream has no end"
        )


def _access(said: Said) -> Access:
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


def _name_servers(said: Said) -> tuple[str, ...]:
    text = said.text("nameServer", None)
    if text is None:
        raise ConfigInvalid(f"{NAME} needs nameServer: host:port, several with semicolons")
    found = tuple(one.strip() for one in re.split("[;,]", text) if one.strip())
    if not found:
        raise ConfigInvalid(f"nameServer={text} names none: host:port, several with semicolons")
    for one in found:
        parse_address(one)
    return found


def _subscription(said: Said) -> tuple[tuple[str, ...], str | None, frozenset[QueueKey] | None]:
    names = ("topic", "subscribe", "subscribePattern", "assign")
    chosen = [name for name in names if said.text(name, None) is not None]
    if len(chosen) != 1:
        raise ConfigInvalid(f"{NAME} needs one of {', '.join(names)}, not {len(chosen)} of them")
    text = said.text(chosen[0], "")
    if chosen[0] == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise ConfigInvalid(f"subscribePattern={text} is no pattern: {error}") from error
        return (), text, None
    queues = assigned_queues(text) if chosen[0] == "assign" else None
    found = text.split(",") if queues is None else (queue.topic for queue in queues)
    topics = tuple(sorted({one.strip() for one in found}))
    for topic in topics:
        _check_topic(topic)
    return topics, None, queues


def _trigger(said: Said) -> tuple[int | None, int | None, int]:
    """How much a stream takes at once: at most, at least, and how long it waits for that."""
    most = said.number("maxOffsetsPerTrigger", None, 1, INT64_MAX)
    least = said.number("minOffsetsPerTrigger", None, 1, INT64_MAX)
    if most is not None and least is not None and least > most:
        raise ConfigInvalid(f"minOffsetsPerTrigger={least} is over maxOffsetsPerTrigger={most}")
    if least is None and said.text("maxTriggerDelay", None) is not None:
        raise ConfigInvalid("maxTriggerDelay needs minOffsetsPerTrigger: nothing else waits")
    return most, least, said.duration_ms("maxTriggerDelay", TRIGGER_DELAY_MS)


def _is_start_required(said: Said, starting: Bound | None) -> bool:
    name = "startingOffsetsByTimestampStrategy"
    text = said.text(name, None)
    if text is None:
        return False
    if text.lower() not in ("latest", "error"):
        raise ConfigInvalid(f"{name}={text} must be latest or error")
    if starting is None or starting.at not in (At.TIME, At.EACH_TIME):
        raise ConfigInvalid(f"{name} needs startingTimestamp or startingOffsetsByTimestamp")
    return bool(text.lower() == "error")


def _check_topic(topic: str) -> None:
    error = topic_error(topic)
    if error is not None:
        raise ConfigInvalid(error)


def _expression(text: str) -> str:
    tags = [one.strip() for one in text.split("||")]
    if not all(tags):
        raise ConfigInvalid(f"subExpression={text} is no list of tags: TagA || TagB, or *")
    return "*" if "*" in tags else " || ".join(sorted(set(tags)))
