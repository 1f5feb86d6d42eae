"""Reading for consumers: the fields of requests 11 and 361, who may pull what, and the answer's code.

Source: PullMessageRequestHeader and PullMessageProcessor of RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rmqha.base.ids import MASTER_ID
from rmqha.broker.common.refusal import Refusal
from rmqha.broker.groups.consumers import TAG, ConsumerGroup, Subscription, subscription
from rmqha.broker.pull.filters import PARSE_FAILED, Matches, Selectors, unsupported
from rmqha.broker.topics.group_table import GroupConfig
from rmqha.broker.topics.topic_table import TopicConfig
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.headers import int_field, long_field, text_field
from rmqha.remoting.topic_names import PERM_READ
from rmqha.store.transfer import Transfer

FILTER_UNKNOWN = "The broker's consumer filter data is not exist!Your expression may be wrong!"

FLAG_COMMIT, FLAG_SUSPEND, FLAG_SUBSCRIPTION = 1, 2, 4
BYTES_MAX = 256 * 1024
"""Of a pop and a peek."""

TRANSFER_KEYS = (
    "maxTransferCountOnMessageInMemory", "maxTransferBytesOnMessageInMemory",
    "maxTransferCountOnMessageInDisk", "maxTransferBytesOnMessageInDisk",
)  # fmt: skip
TRANSFER_BYTES_MAX = 8 << 20
"""Whatever is set: with one message of the largest size more, an answer still is a frame."""

SCAN_MAX = 16_000
"""Units that one pull looks at before it answers, however few of them match."""

_EMPTY = ("NO_MESSAGE_IN_QUEUE", "NO_MATCHED_LOGIC_QUEUE")


class PullRequest(NamedTuple):
    """One request's fields."""

    consumer_group: str
    topic: str
    queue_id: int
    queue_offset: int
    max_msg_nums: int
    sys_flag: int
    commit_offset: int
    suspend_timeout_ms: int
    subscription: str | None
    sub_version: int
    expression_type: str
    max_msg_bytes: int

    @property
    def may_suspend(self) -> bool:
        """The consumer would rather wait than be told that there is nothing."""
        return bool(self.sys_flag & FLAG_SUSPEND)

    @property
    def commits(self) -> bool:
        """The request also stores an offset."""
        return bool(self.sys_flag & FLAG_COMMIT)


def shortened(pull: PullRequest, left_ms: int) -> PullRequest:
    """A pull that has waited once more, for the rest of its time; what it commits is stored."""
    flags = pull.sys_flag & ~FLAG_COMMIT & (-1 if left_ms > 0 else ~FLAG_SUSPEND)
    return pull._replace(sys_flag=flags, suspend_timeout_ms=max(0, left_ms))


def transfer_of(near_bytes: int, values: Mapping[str, str]) -> Transfer:
    """What one read gives at most, as ``TRANSFER_KEYS`` say.

    Args:
        near_bytes: what counts as still being in memory.
        values: of the configuration, checked.
    """
    near_count, near_size, far_count, far_size = (int(values[key]) for key in TRANSFER_KEYS)
    near_size, far_size = min(near_size, TRANSFER_BYTES_MAX), min(far_size, TRANSFER_BYTES_MAX)
    return Transfer(near_bytes, near_count, near_size, far_count, far_size)


def parse_pull(fields: Mapping[str, str] | None) -> PullRequest:
    """Read the fields; numbers that miss have the value that asks for least."""
    return PullRequest(
        consumer_group=text_field(fields, "consumerGroup", ""),
        topic=text_field(fields, "topic", ""),
        queue_id=int_field(fields, "queueId", -1),
        queue_offset=long_field(fields, "queueOffset", 0),
        max_msg_nums=int_field(fields, "maxMsgNums", 1),
        sys_flag=int_field(fields, "sysFlag", 0),
        commit_offset=long_field(fields, "commitOffset", -1),
        suspend_timeout_ms=long_field(fields, "suspendTimeoutMillis", 0),
        subscription=text_field(fields, "subscription", None),
        sub_version=long_field(fields, "subVersion", 0),
        expression_type=text_field(fields, "expressionType", TAG) or TAG,
        max_msg_bytes=int_field(fields, "maxMsgBytes", TRANSFER_BYTES_MAX),
    )


def check_pull(
    pull: PullRequest,
    group: GroupConfig | None,
    topic: TopicConfig | None,
    online: ConsumerGroup | None,
    before: Subscription | None = None,
) -> Subscription | Refusal:
    """What the consumer wants of the topic, or why it gets nothing; in Java's order.

    Args:
        group: its settings; None when there are none and none may be made.
        topic: the topic; None for an unknown one.
        online: what the group's members have subscribed to; None when none is connected.
        before: what it wanted when it came, for one that has waited.
    """
    if group is None:
        return Refusal(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            f"subscription group [{pull.consumer_group}] does not exist",
        )
    refusal = _closed(pull, group, topic)
    if refusal is not None:
        return refusal
    if not pull.sys_flag & FLAG_SUBSCRIPTION:
        wanted = _subscribed(pull, group, online)
        if isinstance(wanted, Refusal):
            return wanted
    else:
        wanted = before or subscription(
            pull.topic, pull.subscription, pull.expression_type, pull.sub_version
        )
    if wanted.wants_nothing:
        # Java's parser refuses such a text. Its broker takes it in a heartbeat, and passes over all.
        return Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, PARSE_FAILED)
    return wanted


def _closed(pull: PullRequest, group: GroupConfig, topic: TopicConfig | None) -> Refusal | None:
    """Why nobody of the group reads the queue."""
    if not group.consume_enable:
        return Refusal(
            ResponseCode.NO_PERMISSION, f"subscription group no permission, {pull.consumer_group}"
        )
    if topic is None:
        return Refusal(
            ResponseCode.TOPIC_NOT_EXIST, f"topic[{pull.topic}] not exist, apply first please!"
        )
    if not topic.perm & PERM_READ:
        return Refusal(
            ResponseCode.NO_PERMISSION, f"the topic[{pull.topic}] pulling message is forbidden"
        )
    if not 0 <= pull.queue_id < topic.read_queue_nums:
        return Refusal(
            ResponseCode.INVALID_PARAMETER,
            f"queueId[{pull.queue_id}] is illegal, topic:[{pull.topic}] "
            f"topicConfig.readQueueNums:[{topic.read_queue_nums}]",
        )
    return None


def check_filter(
    pull: PullRequest, wanted: Subscription, selectors: Selectors, *, enabled: bool
) -> Matches | Refusal | None:
    """What a pull asks of records besides their tags, or why it gets nothing; in Java's order.

    Args:
        enabled: enablePropertyFilter.
    """
    if not enabled and wanted.expression_type != TAG:
        # Nobody may have a text compiled for nothing.
        return Refusal(ResponseCode.SYSTEM_ERROR, unsupported(wanted.expression_type))
    matches = selectors.matches(wanted)
    in_request = pull.sys_flag & FLAG_SUBSCRIPTION
    if isinstance(matches, str) and not in_request:
        return Refusal(ResponseCode.FILTER_DATA_NOT_EXIST, FILTER_UNKNOWN)
    if isinstance(matches, str):
        return Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, PARSE_FAILED)
    return matches


def _subscribed(
    pull: PullRequest, group: GroupConfig, online: ConsumerGroup | None
) -> Subscription | Refusal:
    """The subscription of an earlier heartbeat."""
    if online is None:
        return Refusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's group info not exist")
    if online.is_broadcasting and not group.consume_broadcast_enable:
        return Refusal(
            ResponseCode.NO_PERMISSION,
            f"the consumer group[{group.name}] can not consume by broadcast way",
        )
    wanted = online.subscriptions.get(pull.topic)
    if wanted is None:
        return Refusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's subscription not exist")
    # Whoever takes every message gets all that a newer subscription can want, and its client
    # looks at the tags again; Java refuses for up to one heartbeat.
    takes_all = wanted.hashes is None and wanted.expression_type == TAG
    if wanted.sub_version < pull.sub_version and not takes_all:
        return Refusal(
            ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest"
        )
    return wanted


def status_code(status: str, offset: int) -> int:
    """The response code to a reader's status word.

    Args:
        offset: where the consumer asked.
    """
    if status == "FOUND":
        return ResponseCode.SUCCESS
    if status == "NO_MATCHED_MESSAGE":
        return ResponseCode.PULL_RETRY_IMMEDIATELY
    if status == "OFFSET_OVERFLOW_ONE" or (status in _EMPTY and offset == 0):
        return ResponseCode.PULL_NOT_FOUND
    return ResponseCode.PULL_OFFSET_MOVED


def suggest_broker(
    group: GroupConfig, *, slave_reads: bool, is_master: bool, lag_bytes: int, near_bytes: int
) -> int:
    """The replica that a group should read from next; 0 is the master.

    Args:
        slave_reads: slaveReadEnable.
        lag_bytes: how far behind the log's end the consumer reads.
        near_bytes: what counts as still being in memory.
    """
    if not slave_reads:
        return MASTER_ID
    if lag_bytes > near_bytes:
        return group.which_broker_when_consume_slowly
    return group.broker_id if is_master else MASTER_ID
