"""A mapping as a body: read and written in one go, where it is as usual.

A topic of 64 logical queues with 300 segments each has 2.5 MB of JSON. Brokers read it several
times in a remap, while messages wait: looked at one member at a time it takes them four times as
long. What is not as usual (Java's bare keys, members that miss) is looked at that way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta, MsgspecError, Struct
from msgspec.json import Decoder, Encoder

from rmqha.remoting import fastjson
from rmqha.remoting.headers import INT64_MAX
from rmqha.statictopic.mapping import (
    QUEUES_MAX,
    SEGMENTS_MAX,
    LogicQueueMappingItem,
    TopicQueueMappingDetail,
)

_Name = Annotated[str, Meta(min_length=1)]
_Queue = Annotated[int, Meta(ge=0, lt=QUEUES_MAX)]
_Segments = Annotated[tuple[LogicQueueMappingItem, ...], Meta(max_length=SEGMENTS_MAX)]


class _Body(Struct, frozen=True, rename="camel"):
    """All members, in Java's order; ``currIdMap`` is empty in a detail."""

    bname: _Name
    curr_id_map: dict[str, int]
    dirty: bool
    epoch: Annotated[int, Meta(ge=-1, le=INT64_MAX)]
    hosted_queues: Annotated[Mapping[_Queue, _Segments], Meta(max_length=QUEUES_MAX)]
    scope: _Name
    topic: _Name
    total_queues: Annotated[int, Meta(ge=-1, le=QUEUES_MAX)]


_DECODER = Decoder(_Body)
_ENCODER = Encoder()


def encode_detail(detail: TopicQueueMappingDetail) -> bytes:
    """The JSON of :meth:`TopicQueueMappingDetail.members`; those of a segment in another order."""
    return _ENCODER.encode(_Body(
        detail.broker_name, {}, detail.dirty, detail.epoch,
        dict(sorted(detail.hosted_queues.items())), detail.scope, detail.topic,
        detail.total_queues,
    ))  # fmt: skip


def decode_detail(body: bytes) -> TopicQueueMappingDetail:
    """Read the JSON of a mapping, whoever wrote it.

    Raises:
        RemoteProtocolError: as :meth:`TopicQueueMappingDetail.of`.
    """
    found = _usual(body)
    return TopicQueueMappingDetail.of(fastjson.loads(body)) if found is None else found


def _usual(body: bytes) -> TopicQueueMappingDetail | None:
    """A mapping as we write it; None for one that is not as usual, whether or not it is right."""
    if b'"-' in body:
        return None  # perhaps a key: -0 would be another one than 0
    try:
        one = _DECODER.decode(body)
    except (MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return TopicQueueMappingDetail(
        one.topic, one.total_queues, one.bname, one.epoch, one.scope, one.dirty,
        dict(sorted(one.hosted_queues.items())),
    )  # fmt: skip
