"""Reading for consumers: the fields of request 11, tag filters, and the answer's code.

Source: PullMessageRequestHeader and PullMessageProcessor of RocketMQ 5.1.1 to 5.5 (reference
broker-namesrv 2.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rmqha.remoting.headers import int_field, long_field, text_field
from rmqha.store import properties as props

PULL_NOT_FOUND = 19
PULL_RETRY_IMMEDIATELY = 20
PULL_OFFSET_MOVED = 21
SUBSCRIPTION_NOT_EXIST = 24

FLAG_COMMIT, FLAG_SUSPEND, FLAG_SUBSCRIPTION = 1, 2, 4
COUNT_MAX = 32
BYTES_MAX = 256 * 1024
SCAN_MAX = 16_000
"""Messages that one pull looks at before it answers, however few of them match."""


class PullRequest(NamedTuple):
    """One request's fields."""

    consumer_group: str
    topic: str
    queue_id: int
    queue_offset: int
    max_msg_nums: int
    sys_flag: int
    suspend_timeout_ms: int
    subscription: str | None
    expression_type: str
    max_msg_bytes: int


def parse_pull(fields: Mapping[str, str] | None) -> PullRequest:
    """Read the fields; numbers that miss have the value that asks for least."""
    return PullRequest(
        consumer_group=text_field(fields, "consumerGroup", ""),
        topic=text_field(fields, "topic", ""),
        queue_id=int_field(fields, "queueId", -1),
        queue_offset=long_field(fields, "queueOffset", 0),
        max_msg_nums=int_field(fields, "maxMsgNums", 1),
        sys_flag=int_field(fields, "sysFlag", 0),
        suspend_timeout_ms=long_field(fields, "suspendTimeoutMillis", 0),
        subscription=text_field(fields, "subscription", None),
        expression_type=text_field(fields, "expressionType", "TAG") or "TAG",
        max_msg_bytes=int_field(fields, "maxMsgBytes", BYTES_MAX),
    )


def tag_hashes(subscription: str | None) -> frozenset[int] | None:
    """The hashes of ``a || b``; None takes every message."""
    text = (subscription or "*").strip()
    if text in ("", "*"):
        return None
    tags = [part.strip() for part in text.split("||")]
    return frozenset(props.java_hash(tag) for tag in tags if tag)


def status_code(status: str, *, found: bool, offset: int, max_offset: int) -> int:
    """The response code to a reader's status word.

    Args:
        found: at least one message passed the filter.
        offset: where the consumer asked.
        max_offset: where the queue ends.
    """
    if status == "FOUND":
        return 0 if found else PULL_RETRY_IMMEDIATELY
    if status == "OFFSET_OVERFLOW_ONE":
        return PULL_NOT_FOUND
    if status in ("NO_MESSAGE_IN_QUEUE", "NO_MATCHED_LOGIC_QUEUE"):
        return PULL_NOT_FOUND if offset in (0, max_offset) else PULL_OFFSET_MOVED
    return PULL_OFFSET_MOVED
