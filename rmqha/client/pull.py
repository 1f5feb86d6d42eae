"""Request 11 as a client without a place of its own in the group sends it, and its answers.

Source: PullMessageRequestHeader and PullMessageResponseHeader of RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

from typing import NamedTuple

from rmqha.client.offsets import Edge
from rmqha.client.routes import QueueKey
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import ext_fields, long_field

_WITH_SUBSCRIPTION = 4
"""PullSysFlag's bit: the request brings its subscription, nobody need be in the group."""
_PULLED = frozenset(
    {
        ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)  # fmt: skip
_QUEUE_OFFSET_AT = slice(20, 28)
_PHYSICAL_OFFSET_AT = slice(28, 36)
_HEAD_SIZE = 36


def pull_request(
    group: str, queue: QueueKey, offset: int, count: int, expression: str = "*"
) -> RemotingCommand:
    """Ask for records; no offset is stored, and nobody waits for more."""
    fields = ext_fields(
        consumerGroup=group, topic=queue.topic, queueId=queue.queue_id, queueOffset=offset,
        maxMsgNums=count, sysFlag=_WITH_SUBSCRIPTION, commitOffset=0,
        suspendTimeoutMillis=0, subscription=expression, subVersion=0,
        expressionType="TAG", bname=queue.broker_name,
    )  # fmt: skip
    return RemotingCommand(RequestCode.PULL_MESSAGE, ext_fields=fields)


def is_pulled(answer: RemotingCommand) -> bool:
    """Whether an answer says what is in the queue, be it nothing."""
    return answer.code in _PULLED


class Pulled(NamedTuple):
    """A pull's answer.

    Attributes:
        code: SUCCESS, or one of the three PULL codes.
        status: the broker's word for what it found.
        next_offset: where to go on.
        edge: where the queue begins and ends.
        body: records, back to back.
        delta: what is added to the queue offsets of these records: those of a segment of a
            logical queue count from elsewhere.
    """

    code: int
    status: str
    next_offset: int
    edge: Edge
    body: bytes
    delta: int = 0

    @classmethod
    def of(cls, answer: RemotingCommand, offset: int) -> Pulled:
        """Read the answer to a pull from ``offset``, one that ``is_pulled``."""
        got = answer.ext_fields
        edge = Edge(long_field(got, "minOffset", 0), long_field(got, "maxOffset", 0))
        following = long_field(got, "nextBeginOffset", offset)
        delta = long_field(got, "offsetDelta", 0)
        return cls(answer.code, answer.remark or "", following, edge, answer.body, delta)

    @property
    def first_offset(self) -> int | None:
        """The offset of the first record in its queue, a logical one in a logical queue."""
        if self.first_record is None:
            return None
        return int.from_bytes(self.body[_QUEUE_OFFSET_AT], signed=True) + self.delta

    @property
    def first_record(self) -> tuple[int, int] | None:
        """Where in the log the first record begins and ends; None without one."""
        if self.code != ResponseCode.SUCCESS or len(self.body) < _HEAD_SIZE:
            return None
        begin = int.from_bytes(self.body[_PHYSICAL_OFFSET_AT], signed=True)
        return begin, begin + int.from_bytes(self.body[:4], signed=True)
