"""Requests and answers about a logical queue, from its offsets to those of a segment and back.

Source: RIP-21; TopicQueueMappingContext, LogicQueueMappingItem and
PullMessageProcessor.rewriteResponseForStaticTopic of RocketMQ 5.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from rmqha.remoting.codes import ResponseCode
from rmqha.statictopic.mapping import (
    UNDECIDED,
    LogicQueueMappingItem,
    Segments,
    TopicQueueMappingDetail,
)


class SegmentState(StrEnum):
    """The states of RIP-21."""

    NORMAL = "Normal"
    READ_ONLY = "ReadOnly"
    EXPIRED = "Expired"


def segment_states(segments: Segments, empty: frozenset[int]) -> tuple[SegmentState, ...]:
    """The state of each segment: the last one takes messages, the others only have some.

    Args:
        empty: generations whose physical queue has no message left.
    """
    states = [
        SegmentState.EXPIRED if one.gen in empty else SegmentState.READ_ONLY
        for one in segments[:-1]
    ]
    return (*states, SegmentState.NORMAL) if segments else ()


def led_by(detail: TopicQueueMappingDetail, logical_id: int) -> Segments | None:
    """The history of a logical queue if this broker set leads it; None if it does not."""
    segments = detail.hosted_queues.get(logical_id)
    if not segments or segments[-1].broker_name != detail.broker_name:
        return None
    return segments


def not_leader(detail: TopicQueueMappingDetail, logical_id: int) -> str:
    """The remark of a 501, in Java's words."""
    return (
        f"{detail.topic}-{logical_id} does not exit in request process of current broker "
        f"{detail.broker_name}"
    )


def segment_at(segments: Segments, logical: int) -> LogicQueueMappingItem | None:
    """The newest segment that begins at or before a logical offset, else the first decided one."""
    for one in reversed(segments):
        if one.is_decided and one.logic_offset <= logical:
            return one
    return first_decided(segments)


def first_decided(segments: Segments) -> LogicQueueMappingItem | None:
    """The oldest segment whose offsets can be translated."""
    return next((one for one in segments if one.is_decided), None)


def last_decided(segments: Segments) -> LogicQueueMappingItem | None:
    """The newest segment whose offsets can be translated."""
    for one in reversed(segments):
        if one.is_decided:
            return one
    return None


def next_decided(segments: Segments, item: LogicQueueMappingItem) -> LogicQueueMappingItem | None:
    """The segment behind another one; None behind the last, or while its offset is undecided."""
    for one in segments:
        if one.gen > item.gen:
            return one if one.is_decided else None
    return None


class PullAnswer(NamedTuple):
    """What a pull is answered: of a segment in physical offsets, of a queue in logical ones."""

    code: int
    next_offset: int
    min_offset: int
    max_offset: int


def logical_answer(
    segments: Segments, item: LogicQueueMappingItem, physical: int, answer: PullAnswer
) -> PullAnswer:
    """A segment's answer to a pull, in the offsets of the logical queue.

    Args:
        item: the segment that was read.
        physical: where in it.
        answer: of its broker.
    """
    code, target, low, high = answer
    is_leader = item.gen == segments[-1].gen
    if code != ResponseCode.SUCCESS:
        if not is_leader and physical >= high:
            return _behind(segments, item, answer)
        if physical < low:
            # The first segment's queue begins where its oldest message is. In the others what is
            # missing has been read, or has expired, and the way on is the same.
            is_first = item.gen == segments[0].gen
            code = (
                ResponseCode.PULL_OFFSET_MOVED if is_first
                else ResponseCode.PULL_RETRY_IMMEDIATELY
            )  # fmt: skip
            target = low
        elif code == ResponseCode.PULL_OFFSET_MOVED and physical > high:
            target = high
    return PullAnswer(
        code, item.logical(target), item.logical(low), _logical_max(segments, item, high)
    )


def _behind(segments: Segments, item: LogicQueueMappingItem, answer: PullAnswer) -> PullAnswer:
    """All of an older segment has been read: the consumer goes on in the next one."""
    low, high = item.logical(answer.min_offset), _logical_max(segments, item, answer.max_offset)
    following = next_decided(segments, item)
    if following is None:
        # Where the next one begins is being decided; there is nothing until then.
        return PullAnswer(ResponseCode.PULL_NOT_FOUND, item.logical(answer.max_offset), low, high)
    return PullAnswer(ResponseCode.PULL_RETRY_IMMEDIATELY, following.logic_offset, low, high)


def _logical_max(segments: Segments, item: LogicQueueMappingItem, high: int) -> int:
    """No queue ends before its newest segment begins."""
    newest = last_decided(segments)
    begin = UNDECIDED if newest is None else newest.logic_offset
    return max(item.logical(high), begin)


BLOCK = 10_000
_SLACK = 5_000


def block_above(logical_end: int) -> int:
    """Where the next segment begins: a whole block, and far enough that late messages fit before it.

    Source: TopicQueueMappingUtils.blockSeqRoundUp.
    """
    blocks, rest = divmod(max(0, logical_end), BLOCK)
    return (blocks + (1 if rest < _SLACK else 2)) * BLOCK
