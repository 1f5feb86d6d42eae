"""Options of ``rocketmq``: what users say, and what they are told when it makes no sense."""

from __future__ import annotations

import pytest

from rmqha.base.errors import ConfigInvalid
from rmqha.client.routes import QueueKey
from rmqha.pipeline.live.bounds import At, Bound
from rmqha.pipeline.live.options import (
    check_batch,
    check_stream,
    read_options,
    write_options,
)

LEAST = {"nameServer": "127.0.0.1:9876", "topic": "orders"}


def test_options_when_least_then_defaults() -> None:
    """Loss is an error, bodies are there, and no group is made."""
    found = read_options(LEAST)
    assert (found.name_servers, found.topics) == (("127.0.0.1:9876",), ("orders",))
    assert (found.fail_on_data_loss, found.include_body, found.tags) == (True, True, None)
    assert (found.starting, found.ending, found.max_offsets_per_trigger) == (None, None, None)
    assert found.consumer_group == "TOOLS_CONSUMER"
    assert (found.assigned, found.is_start_required, found.include_headers) == (None, False, False)
    assert (found.min_partitions, found.partition_records_max) == (None, None)
    assert (found.min_offsets_per_trigger, found.trigger_delay_ms) == (None, 900_000)


def test_options_when_all_are_given_then_read() -> None:
    """Names in any case, as Spark hands them over."""
    found = read_options(
        {
            "nameserver": "a:1;b:2", "SUBSCRIBE": "u, t", "failondataloss": "FALSE",
            "startingOffsets": '{"t":{"broker-a":{"0":12,"1":-2,"2":-1}}}',
            "endingtimestamp": "1700000000000", "subExpression": "b||a", "includeBody": "false",
            "pullBatchSize": "7", "maxOffsetsPerTrigger": "9", "consumerGroup": "mine",
            "minOffsetsPerTrigger": "8", "maxtriggerdelay": "90s", "minPartitions": "6",
            "maxRecordsPerPartition": "1000", "includeHeaders": "true",
        }
    )  # fmt: skip
    assert found.name_servers == ("a:1", "b:2")
    assert found.topics == ("t", "u")
    offsets = {QueueKey("t", "broker-a", 0): 12, QueueKey("t", "broker-a", 1): -2}
    assert found.starting == Bound(At.EACH, offsets | {QueueKey("t", "broker-a", 2): -1})
    assert found.ending == Bound(At.TIME, time_ms=1_700_000_000_000)
    assert found.tags == {"a", "b"}
    assert (found.pull_batch_size, found.max_offsets_per_trigger) == (7, 9)
    assert (found.min_offsets_per_trigger, found.trigger_delay_ms) == (8, 90_000)
    assert (found.min_partitions, found.partition_records_max) == (6, 1000)
    assert found.include_headers
    assert not found.fail_on_data_loss
    assert not found.include_body


def test_queues_when_assigned_then_these_of_their_topics() -> None:
    """Times may be said of each, as with Kafka."""
    found = read_options(
        {
            "nameServer": "a:1", "assign": '{"t":{"b":[0,2]},"s":{"b":["1"]}}',
            "startingOffsetsByTimestamp": '{"t":{"b":{"0":1700000000000}}}',
            "startingOffsetsByTimestampStrategy": "ERROR",
        }
    )  # fmt: skip
    assert found.topics == ("s", "t")
    assert found.assigned == {QueueKey("t", "b", 0), QueueKey("t", "b", 2), QueueKey("s", "b", 1)}
    assert found.starting == Bound(At.EACH_TIME, {QueueKey("t", "b", 0): 1_700_000_000_000})
    assert found.is_start_required


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("1500", 1500), ("1500ms", 1500), ("2 s", 2000), ("3m", 180_000), ("1MIN", 60_000)],
)
def test_delay_when_it_has_a_unit_then_so_long(text: str, milliseconds: int) -> None:
    """As Spark writes times."""
    found = read_options(LEAST | {"minOffsetsPerTrigger": "1", "maxTriggerDelay": text})
    assert found.trigger_delay_ms == milliseconds


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"startingOfsets": "earliest"}, "no option startingofsets; did you mean startingOffsets"),
        ({"kafka.bootstrap.servers": "a:1"}, "given as nameServer"),
        ({"kafka.max.poll.records": "5"}, "no option kafka.max.poll.records"),
        ({"groupIdPrefix": "mine"}, "no option groupIdPrefix: .*consumerGroup"),
        ({"kafkaConsumer.pollTimeoutMs": "5"}, "pullTimeoutMs"),
        ({"fetchOffset.numRetries": "5"}, "failoverTimeoutMs"),
        ({"assign": '{"t":{"b":[0]}}'}, "needs one of"),
        ({"startingOffsetsByTimestamp": '{"t":{"a":{"0":-1}}}'}, "startingOffsetsByTimestamp="),
        ({"startingOffsetsByTimestamp": "{}", "startingTimestamp": "5"}, "exclude"),
        ({"startingOffsetsByTimestampStrategy": "error"}, "needs startingTimestamp"),
        (
            {"startingTimestamp": "5", "startingOffsetsByTimestampStrategy": "earliest"},
            "startingOffsetsByTimestampStrategy=earliest must be latest or error",
        ),
        ({"maxTriggerDelay": "5m"}, "maxTriggerDelay needs minOffsetsPerTrigger"),
        ({"maxTriggerDelay": "5 weeks", "minOffsetsPerTrigger": "1"}, "maxTriggerDelay=5 weeks"),
        ({"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"}, "minOffsetsPerTrigger=6"),
        ({"minPartitions": "0"}, "minPartitions=0"),
        ({"minPartitions": "100001"}, "minPartitions=100001"),
        ({"maxRecordsPerPartition": "0"}, "maxRecordsPerPartition=0"),
        ({"includeHeaders": "yes"}, "includeHeaders=yes"),
        ({"nameServer": " "}, "nameServer is empty"),
        ({"nameServer": "here"}, "here"),
        ({"nameServer": ";"}, "nameServer=; names none"),
        ({"nameServer": " , ;"}, "names none"),
        ({"subscribe": "other"}, "needs one of"),
        ({"topic": "or ders"}, "or ders"),
        ({"startingOffsets": "first"}, "startingOffsets=first"),
        ({"startingOffsets": '{"t":{"a":{"0":-3}}}'}, "startingOffsets="),
        ({"startingOffsets": '{"t":{"a":{"x":3}}}'}, "startingOffsets="),
        ({"startingOffsets": '{"t":{"a":{"0":true}}}'}, "startingOffsets="),
        ({"startingOffsets": "[1]"}, "startingOffsets="),
        ({"startingOffsets": '{"t":{"a":{"0":1,"00":2}}}'}, "startingOffsets="),
        ({"startingOffsets": '{"t":{"a":{"0":1,"0":2}}}'}, "startingOffsets="),
        ({"startingOffsets": '{"t":{"a":{"0":1}},"t":{"a":{"1":2}}}'}, "startingOffsets="),
        ({"startingOffsets": "[" * 100_000}, "startingOffsets="),
        ({"startingOffsets": '{"t":{"a":{"0":' + "1" * 5000 + "}}}"}, "startingOffsets="),
        ({"startingOffsets": "latest", "startingTimestamp": "5"}, "exclude"),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp=yesterday"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger=0"),
        ({"failOnDataLoss": "no"}, "failOnDataLoss=no"),
        ({"subExpression": "a || "}, "subExpression=a"),
        ({"pullBatchSize": "5000"}, "pullBatchSize=5000"),
    ],
)
def test_option_when_wrong_then_named(more: dict[str, str], what: str) -> None:
    """Before anything runs, and never a silent default."""
    with pytest.raises(ConfigInvalid, match=what):
        read_options(LEAST | more)


@pytest.mark.parametrize("missing", ["nameServer", "topic"])
def test_option_when_it_misses_then_named(missing: str) -> None:
    """There is no cluster by default."""
    with pytest.raises(ConfigInvalid, match=missing):
        read_options({key: text for key, text in LEAST.items() if key != missing})


@pytest.mark.parametrize(
    "text",
    [
        "t",
        "[]",
        "{}",
        '{"t":[0]}',
        '{"t":{"b":0}}',
        '{"t":{"b":[-1]}}',
        '{"t":{"b":[]}}',
        "[" * 100_000,
        '{"t":{"b":[0]},"t":{"c":[0]}}',
    ],
)
def test_assignment_when_it_names_no_queue_then_said(text: str) -> None:
    """Kafka's form has no broker, and is no assignment here."""
    with pytest.raises(ConfigInvalid, match="assign="):
        read_options({"nameServer": "a:1", "assign": text})


def test_pattern_when_it_is_none_then_said() -> None:
    """With the regular expression's own words."""
    with pytest.raises(ConfigInvalid, match="no pattern"):
        read_options({"nameServer": "a:1", "subscribePattern": "("})
    assert read_options({"nameServer": "a:1", "subscribePattern": "t.*"}).pattern == "t.*"


def test_batch_and_stream_when_asked_for_the_others_then_said() -> None:
    """A batch has no triggers, a stream no end."""
    for more, what in (
        ({"maxOffsetsPerTrigger": "1"}, "maxOffsetsPerTrigger"),
        ({"minOffsetsPerTrigger": "1"}, "minOffsetsPerTrigger"),
        ({"startingOffsets": "latest"}, "startingOffsets"),
        ({"endingOffsets": "earliest"}, "endingOffsets"),
    ):
        with pytest.raises(ConfigInvalid, match=what):
            check_batch(read_options(LEAST | more))
    with pytest.raises(ConfigInvalid, match="endingOffsets"):
        check_stream(read_options(LEAST | {"endingOffsets": "latest"}))
    check_stream(read_options(LEAST | {"maxOffsetsPerTrigger": "1", "startingOffsets": "latest"}))


def test_sink_when_given_options_then_read_or_refused() -> None:
    """What Spark adds for a stream is no mistake of the user's."""
    found = write_options(LEAST | {"checkpointLocation": "/x", "batchMessages": "5"})
    assert (found.topic, found.batch_messages, found.batch_bytes) == ("orders", 5, 1 << 20)
    assert write_options({"nameServer": "a:1"}).topic is None
    for more, what in (
        ({"startingOffsets": "latest"}, "no option startingoffsets"),
        ({"topic": "a b"}, "a b"),
        ({"batchBytes": "9", "maxMessageBytes": "8"}, "batchBytes=9"),
    ):
        with pytest.raises(ConfigInvalid, match=what):
            write_options(LEAST | more)


def test_trigger_when_its_least_is_its_most_then_each_batch_is_of_that_size() -> None:
    """Nothing contradicts there."""
    found = read_options(LEAST | {"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "5"})
    assert (found.max_offsets_per_trigger, found.min_offsets_per_trigger) == (5, 5)
