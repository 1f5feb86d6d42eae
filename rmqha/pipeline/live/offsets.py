"""Where a stream stands, as it is kept in a checkpoint, and what has become of that place since.

A place is an offset in every queue, and for every broker set the place in its log up to which the
stream knows it, with the epoch that wrote there. Queue offsets alone would not show that a log was
cut below that place and has grown past it again with other messages; the epochs do.

Nothing here talks to anybody.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from msgspec import Struct

from rmqha.base.errors import ConfigInvalid, RmqhaError
from rmqha.client.logical import is_logical
from rmqha.client.offsets import Edge
from rmqha.client.routes import QueueKey
from rmqha.remoting.bodies import EpochEntryCache
from rmqha.statictopic.mapping import Segments
from rmqha.statictopic.translate import last_decided, segment_at

VERSION = 1

Histories = Mapping[QueueKey, Segments]
"""Of logical queues, as far as they are known."""


class DataLost(RmqhaError):
    """Messages that were to be read are not there any more."""


class LogPlace(NamedTuple):
    """A place in a broker set's log: where it is (exclusive), in which epoch, and that one's start."""

    epoch: int
    epoch_start: int
    offset: int


class Progress(Struct, frozen=True):
    """Where a stream stands.

    Attributes:
        queues: the next offset of each queue.
        logs: by broker set; only of those that have epochs.
        absent: what was the next offset of queues that are gone: a broker set that comes back goes
            on there, and is not read once more from its beginning.
        begun: where the batch that ends here began in queues that were new to it, for when it is run
            again: the queue itself may begin further on by then.
    """

    queues: Mapping[QueueKey, int]
    logs: Mapping[str, LogPlace]
    absent: Mapping[QueueKey, int] = {}
    begun: Mapping[QueueKey, int] = {}

    def encode(self) -> dict[str, Any]:
        """The form in the checkpoint; the same progress is always the same text.

        It names absent and new queues only where there are some: older releases know nothing of
        them.
        """
        logs = {
            name: {"epoch": one.epoch, "epochStart": one.epoch_start, "offset": one.offset}
            for name, one in sorted(self.logs.items())
        }
        found = {"version": VERSION, "queues": _nested(self.queues), "logs": logs}
        more = {"absent": self.absent, "begun": self.begun}
        return found | {name: _nested(offsets) for name, offsets in more.items() if offsets}

    @classmethod
    def decode(cls, found: Mapping[str, Any]) -> Progress:
        """Read a checkpoint's form.

        Raises:
            ConfigInvalid: it is of a newer release, or none at all.
        """
        if found.get("version") != VERSION:
            raise ConfigInvalid(f"the checkpoint's offsets are not of version {VERSION}: {found}")
        try:
            queues = _flat(found["queues"])
            absent, begun = (_flat(found.get(name, {})) for name in ("absent", "begun"))
            logs = {
                name: LogPlace(int(one["epoch"]), int(one["epochStart"]), int(one["offset"]))
                for name, one in found["logs"].items()
            }
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigInvalid(f"the checkpoint's offsets cannot be read: {found}") from error
        return cls(queues, logs, absent, begun)


def _nested(offsets: Mapping[QueueKey, int]) -> dict[str, dict[str, dict[str, int]]]:
    """Offsets by topic, broker set and queue id."""
    found: dict[str, dict[str, dict[str, int]]] = {}
    for key in sorted(offsets):
        brokers = found.setdefault(key.topic, {})
        brokers.setdefault(key.broker_name, {})[str(key.queue_id)] = offsets[key]
    return found


def _flat(found: Mapping[str, Any]) -> dict[QueueKey, int]:
    """What ``_nested`` made; raises whatever comes of something else."""
    return {
        QueueKey(topic, broker_name, int(queue_id)): int(offset)
        for topic, brokers in found.items()
        for broker_name, numbers in brokers.items()
        for queue_id, offset in numbers.items()
    }


class Holder(NamedTuple):
    """Who has the messages in front of a place, and the first offset that is theirs."""

    broker_name: str
    first: int


def holder_of(queue: QueueKey, offset: int, segments: Histories) -> Holder:
    """The holder of what a queue has in front of an offset.

    Of a logical queue it is the segment in which the offset lies; nobody's while that is unknown.
    """
    if not is_logical(queue):
        return Holder(queue.broker_name, 0)
    item = segment_at(segments.get(queue, ()), offset)
    return Holder("", offset) if item is None else Holder(item.broker_name, item.logic_offset)


def is_newest(history: Segments, offset: int) -> bool:
    """Whether an offset of a queue lies where messages still come; of ordinary queues all do."""
    return segment_at(history, offset) == last_decided(history)


class Loss(NamedTuple):
    """A queue in which reading cannot go on where it was to.

    Attributes:
        wanted: where it was to go on.
        resume: where it can.
    """

    queue: QueueKey
    wanted: int
    resume: int
    reason: str

    def __str__(self) -> str:
        place = f"{self.queue.topic}, {self.queue.broker_name}, queue {self.queue.queue_id}"
        return f"{place}: {self.reason}; offset {self.wanted} was next, {self.resume} is"


def losses(wanted: Mapping[QueueKey, int], edges: Mapping[QueueKey, Edge]) -> list[Loss]:
    """The queues that do not reach to where reading is to go on, in order."""
    found = []
    for queue in sorted(wanted):
        offset, edge = wanted[queue], edges.get(queue)
        if edge is None:
            found.append(Loss(queue, offset, 0, "the queue is gone"))
        elif offset < edge.low:
            reason = f"messages before {edge.low} have been deleted"
            found.append(Loss(queue, offset, edge.low, reason))
        elif offset > edge.high:
            found.append(Loss(queue, offset, edge.high, f"the queue ends at {edge.high}"))
    return found


def place_of(epochs: EpochEntryCache, offset: int) -> LogPlace | None:
    """The epoch that wrote what ends at ``offset``; None when the broker has none there."""
    found = None
    for entry in epochs.epoch_list:
        if entry.start_offset < offset:
            found = LogPlace(entry.epoch, entry.start_offset, offset)
    return found


class Cut(NamedTuple):
    """A log no longer holds what it held.

    Attributes:
        offset: what stands from here on was not there before.
        is_certain: a newer epoch says so; else it may be a replica that is behind.
    """

    offset: int
    is_certain: bool


def cut_of(place: LogPlace, epochs: EpochEntryCache) -> Cut | None:
    """Where a log was cut below a place that it once had; None when the place is as it was."""
    entries = epochs.epoch_list
    count = sum(one.epoch <= place.epoch for one in entries)
    if not count:
        if not entries:
            return None
        # The epoch may have left with files that have expired: then it does not reach past them.
        first = entries[0].start_offset
        return None if place.offset <= first else Cut(first, is_certain=True)
    is_over = count < len(entries)
    end = entries[count].start_offset if is_over else epochs.max_offset
    if entries[count - 1].epoch == place.epoch:
        return None if place.offset <= end else Cut(end, is_certain=is_over)
    # An older epoch goes on where that one had begun, or ends before it.
    return Cut(min(end, place.epoch_start), is_certain=is_over)


def limited(
    start: Mapping[QueueKey, int], latest: Mapping[QueueKey, int], offsets_max: int | None
) -> dict[QueueKey, int]:
    """Where a batch ends: at the latest offsets, or after ``offsets_max`` that are shared fairly.

    A queue whose backlog is below its share is read to its end; the rest is for the others. A
    queue that ends before its start stays where it ends.
    """
    backlog = {queue: max(0, latest[queue] - start.get(queue, 0)) for queue in latest}
    if offsets_max is None or sum(backlog.values()) <= offsets_max:
        return dict(latest)
    ends, left = dict(latest), offsets_max
    waiting = sorted(backlog, key=lambda queue: (backlog[queue], queue))
    for position, queue in enumerate(waiting):
        share = min(backlog[queue], left // (len(waiting) - position))
        if backlog[queue]:
            ends[queue] = start.get(queue, 0) + share
        left -= share
    return ends


class QueueRange(Struct, frozen=True):
    """What one task reads: offsets from ``start`` on, before ``stop``."""

    queue: QueueKey
    start: int
    stop: int

    def __str__(self) -> str:
        return f"{self.queue.topic}/{self.queue.broker_name}/{self.queue.queue_id}[{self.start}:{self.stop}]"


def ranges(start: Mapping[QueueKey, int], end: Mapping[QueueKey, int]) -> list[QueueRange]:
    """One range for each queue that has something to read, in order."""
    return [
        QueueRange(queue, start[queue], end[queue])
        for queue in sorted(end)
        if queue in start and end[queue] > start[queue]
    ]


def told(found: Iterable[Loss]) -> str:
    """All losses as one text for people."""
    return "; ".join(map(str, found))
