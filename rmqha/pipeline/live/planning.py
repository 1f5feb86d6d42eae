"""What is to be read: queues of the subscription, where they begin and end, and what has been lost."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct

from rmqha.base.errors import ConfigInvalid
from rmqha.client.aio.master_client import MasterClient
from rmqha.client.aio.masters import RETRY_MS
from rmqha.client.logical import Leaders
from rmqha.client.offsets import Edge
from rmqha.client.routes import QueueKey
from rmqha.pipeline.live.bounds import OFFSET_EARLIEST, OFFSET_LATEST, At, Bound
from rmqha.pipeline.live.clients import LiveClient, Way
from rmqha.pipeline.live.offsets import (
    Cut,
    DataLost,
    Histories,
    LogPlace,
    Loss,
    Progress,
    cut_of,
    holder_of,
    is_newest,
    losses,
    told,
)
from rmqha.pipeline.live.options import ReadOptions
from rmqha.pipeline.live.placing import placed
from rmqha.remoting.topic_names import (
    DLQ_PREFIX,
    OF_NEWER_BROKERS,
    PERM_READ,
    RETRY_PREFIX,
    SYSTEM_PREFIX,
    SYSTEM_TOPICS,
)

REPLY_SUFFIX = "_REPLY_TOPIC"
"""Each cluster has a topic of its name and this, which nobody subscribes to by a pattern."""

Warn = Callable[[str], None]
Edges = Mapping[QueueKey, Edge]
Logs = Mapping[str, LogPlace]


def connect(options: ReadOptions) -> LiveClient:
    """A client by a reader's options."""
    return way(options).connect()


def way(options: ReadOptions) -> Way:
    """How a reader asks its cluster."""
    return Way(
        options.name_servers,
        timeout_ms=options.pull_timeout_ms,
        failover_timeout_ms=options.failover_timeout_ms,
        group=options.consumer_group,
        access=options.access,
    )


class Resumed(Struct, frozen=True):
    """Where a stream goes on from, as far as that is still there, and the edges of its queues."""

    progress: Progress
    edges: Edges


class Planner:
    """Plans what a batch, or the next part of a stream, reads.

    Args:
        cluster: to ask.
        options: the reader's.
        warn: told what was lost, where that is no error.
    """

    def __init__(self, cluster: MasterClient, options: ReadOptions, warn: Warn) -> None:
        self._cluster = cluster
        self._options = options
        self._warn = warn

    def now_ms(self) -> float:
        """The cluster's clock."""
        return self._cluster.clock.now_ms()

    # -- queues ------------------------------------------------------------------------------------

    def queues(self, *, may_miss: bool = False) -> list[QueueKey]:
        """The readable queues of the subscription, in order.

        Args:
            may_miss: a named topic may be nowhere just now.

        Raises:
            ConfigInvalid: a named topic does not exist, or an assigned queue.
            Refused, Unreachable: the name servers do not tell.
        """
        found: list[QueueKey] = []
        for topic, route in self._cluster.routes(self._topics()).items():
            if route is None:
                if self._options.pattern is None and not may_miss:
                    raise ConfigInvalid(f"topic {topic} does not exist")
                continue
            if route.is_mapped:
                found += Leaders.of(topic, route).allowing(PERM_READ)
                continue
            found += [
                QueueKey(topic, one.broker_name, queue_id)
                for one in route.queues
                if one.perm & PERM_READ
                for queue_id in range(one.read_queue_nums)
            ]
        assigned = self._options.assigned
        if assigned is None:
            return sorted(found)
        unknown = sorted(assigned.difference(found))
        if unknown and not may_miss:
            raise ConfigInvalid(f"assign names {unknown[0]}, which does not exist")
        return sorted(assigned.intersection(found))

    def _topics(self) -> Iterable[str]:
        if self._options.pattern is None:
            return self._options.topics
        pattern = re.compile(self._options.pattern)
        listed, internal = self._cluster.topics()
        # A pattern that begins as these do means them.
        hidden = tuple(
            prefix
            for prefix in (RETRY_PREFIX, DLQ_PREFIX, SYSTEM_PREFIX)
            if not pattern.pattern.startswith(prefix)
        )
        unwanted = (
            SYSTEM_TOPICS
            | OF_NEWER_BROKERS
            | internal
            | {f"{name}{REPLY_SUFFIX}" for name in internal}
        )
        return [
            one
            for one in listed
            if pattern.fullmatch(one) and one not in unwanted and not one.startswith(hidden)
        ]

    def known_and(self, start: Mapping[QueueKey, int]) -> dict[QueueKey, Edge]:
        """The edges of the subscription's queues; those of ``start`` are waited for.

        A broker set that restarts, or whose new master has not registered, misses for a moment.
        """
        deadline_ms = self._cluster.clock.now_ms() + self._options.failover_timeout_ms
        while True:
            self._cluster.forget_masters()
            listed = self.queues(may_miss=bool(start))
            is_late = self._cluster.clock.now_ms() >= deadline_ms
            if is_late or not set(start) - set(listed):
                return self._cluster.edges(listed)
            self._cluster.sleep(RETRY_MS)

    # -- edges of what is read ---------------------------------------------------------------------

    def bounded(self, bound: Bound, edges: Edges, others: At) -> dict[QueueKey, int]:
        """The offset of each queue that a bound means.

        Those of times may lie behind the edges: a queue that is written has got messages since.

        Args:
            others: of queues that an ``EACH`` does not name.

        Raises:
            ConfigInvalid: it names a queue that the subscription does not have.
        """
        if bound.at is At.TIME:
            return self._at_times(dict.fromkeys(edges, bound.time_ms), edges)
        unknown = sorted(set(bound.each) - set(edges))
        if unknown:
            raise ConfigInvalid(f"offsets are given of {unknown[0]}, which is not subscribed to")
        usual = others if bound.at in (At.EACH, At.EACH_TIME) else bound.at
        default = OFFSET_EARLIEST if usual is At.EARLIEST else OFFSET_LATEST
        each = bound.each if bound.at is At.EACH else {}
        found = {}
        for queue, edge in edges.items():
            offset = each.get(queue, default)
            by_name = {OFFSET_EARLIEST: edge.low, OFFSET_LATEST: edge.high}
            found[queue] = by_name.get(offset, offset)
        return found | (self._at_times(bound.each, edges) if bound.at is At.EACH_TIME else {})

    def _at_times(self, times_ms: Mapping[QueueKey, int], edges: Edges) -> dict[QueueKey, int]:
        """The first messages since some times; Java says 0 of a queue that has lost all of its own."""
        found = self._cluster.offsets_at(times_ms)
        return {queue: max(offset, edges[queue].low) for queue, offset in found.items()}

    def begun(self, bound: Bound, edges: Edges) -> dict[QueueKey, int]:
        """Where reading begins; raises as ``bounded`` and ``checked``, and:

        Raises:
            DataLost: a queue has no message since the time given, and must have one.
        """
        found = self.bounded(bound, edges, At.EARLIEST)
        if self._options.is_start_required:
            since = found if bound.at is At.TIME else {one: found[one] for one in bound.each}
            # Asked for now: what came meanwhile is a message since then.
            ends = self._cluster.edges(since)
            empty = [queue for queue in sorted(since) if since[queue] >= ends[queue].high]
            if empty:
                raise DataLost(
                    f"{empty[0]} has no message since then"
                    " (startingOffsetsByTimestampStrategy=latest begins at its end)"
                )
        return self._reached(bound, found, edges, "startingOffsets")

    def ended(self, bound: Bound, edges: Edges) -> dict[QueueKey, int]:
        """Where a batch ends; raises as ``bounded`` and ``checked``."""
        found = self.bounded(bound, edges, At.LATEST)
        return self._reached(bound, found, edges, "endingOffsets")

    def _reached(
        self, bound: Bound, found: dict[QueueKey, int], edges: Edges, what: str
    ) -> dict[QueueKey, int]:
        """``checked`` of offsets that users wrote; others the queues themselves have told."""
        return self.checked(found, edges, what) if bound.at is At.EACH else found

    def checked(
        self, wanted: Mapping[QueueKey, int], edges: Edges, what: str
    ) -> dict[QueueKey, int]:
        """Offsets that the queues hold: what they do not is an error, or brought to their edges.

        Raises:
            DataLost: they do not, and that is to be an error.
        """
        found = losses(wanted, edges)
        self._settle(found, what)
        resumed = {one.queue: one.resume for one in found}
        return {queue: resumed.get(queue, wanted[queue]) for queue in wanted if queue in edges}

    def _settle(self, found: list[Loss], what: str) -> None:
        if not found:
            return
        if self._options.fail_on_data_loss:
            raise DataLost(f"{what}: {told(found)} (failOnDataLoss=false goes on)")
        self._warn(f"{what}: {told(found)}")

    # -- where a stream was, and is ----------------------------------------------------------------

    def resumed(self, start: Progress, end: Progress | None = None) -> Resumed:
        """Where a stream goes on from, and the edges of all its queues.

        New queues begin at their beginning, those that were absent where they were. A new master
        that does not have all at once is given ``failoverTimeoutMs``; a newer epoch that begins
        below what was read is certain.

        Args:
            end: of the batch, when that was planned before: its queues must be there, and those that
                were new to it begin where they began then.

        Raises:
            DataLost: something was lost, and that is to be an error.
        """
        deadline_ms = self._cluster.clock.now_ms() + self._options.failover_timeout_ms
        known = {**({} if end is None else end.begun), **start.absent, **start.queues}
        ends = {} if end is None else end.queues
        needed = {one: at for one, at in known.items() if one in start.queues or one in ends}
        while True:
            edges = self.known_and(needed)
            begin = {queue: known.get(queue, edge.low) for queue, edge in edges.items()}
            segments = self._cluster.segments(begin)
            cuts = self._cuts(start.logs, begin, known, segments)
            wanted = {one: at for one, at in known.items() if one in edges or one in needed}
            found = losses(wanted, edges)
            if _are_settled(found, cuts, segments):
                break
            if self._cluster.clock.now_ms() >= deadline_ms:
                break
            self._cluster.sleep(RETRY_MS)
        rewound = self._rewound(begin, edges, cuts, segments)
        mended = {one.queue for one in rewound}
        found = sorted([one for one in found if one.queue not in mended] + rewound)
        self._settle(found, "data was lost")
        begin |= {one.queue: one.resume for one in found if one.queue in begin}
        begin |= self._behind_gaps(begin, edges, segments)
        logs = {name: place for name, place in start.logs.items() if name not in cuts}
        absent = {queue: offset for queue, offset in known.items() if queue not in edges}
        return Resumed(Progress(begin, logs, absent), edges)

    def _behind_gaps(
        self, begin: Mapping[QueueKey, int], edges: Edges, segments: Histories
    ) -> dict[QueueKey, int]:
        """Where queues go on that stand between two segments, or before a gap.

        ``maxOffsetsPerTrigger`` would be spent on thousands of offsets without messages.
        """
        return {
            queue: min(self._cluster.next_offset(queue, begin[queue], history), edges[queue].high)
            for queue, history in segments.items()
            if edges[queue].low <= begin[queue] < edges[queue].high
            and not is_newest(history, begin[queue])
        }

    def _cuts(
        self,
        logs: Logs,
        begin: Mapping[QueueKey, int],
        known: Mapping[QueueKey, int],
        segments: Histories,
    ) -> dict[str, Cut]:
        """The logs that were cut, of the sets that have what was read of queues that are there.

        The master of a set that is away would be waited for, and the query would fail.
        """
        names = {holder_of(one, begin[one], segments).broker_name for one in known if one in begin}
        cuts = {}
        for name, place in logs.items():
            epochs = self._cluster.epochs(name) if name in names else None
            cut = None if epochs is None else cut_of(place, epochs)
            if cut is not None:
                cuts[name] = cut
        return cuts

    def _rewound(
        self,
        begin: Mapping[QueueKey, int],
        edges: Edges,
        cuts: Mapping[str, Cut],
        segments: Histories,
    ) -> list[Loss]:
        """The queues of cut logs in which messages before ``begin`` are other ones now.

        No segment that has been read through gets messages any more, so that of a logical queue
        only the segment counts in which it stands.
        """
        found = []
        for queue, offset in begin.items():
            name, first = holder_of(queue, offset, segments)
            cut, edge = cuts.get(name), edges[queue]
            if cut is None:
                continue
            low = max(edge.low, first)
            resume = self._first_behind(queue, cut.offset, low, min(offset, edge.high))
            if resume < offset:
                reason = f"the log of {name} was cut at {cut.offset}"
                found.append(Loss(queue, offset, resume, reason))
        return found

    def _first_behind(self, queue: QueueKey, place: int, low: int, high: int) -> int:
        """The first offset in ``[low, high]`` whose record does not end at or before a place."""
        while low < high:
            middle = (low + high) // 2
            ends = self._cluster.record_ends({queue: middle})[queue]
            if ends is not None and ends[1] <= place:
                low = middle + 1
            else:
                high = middle
        return low

    def placed(
        self, ends: Mapping[QueueKey, int], begin: Mapping[QueueKey, int], logs: Logs, edges: Edges
    ) -> Progress:
        """The progress that ends at these offsets.

        A last message that cannot be had just now is waited for, ``failoverTimeoutMs`` at most.

        Args:
            begin: where it was; empty for a stream that begins.
            logs: the places in logs that are known.
        """
        return placed(
            self._cluster, ends, begin, logs, edges,
            timeout_ms=self._options.failover_timeout_ms, warn=self._warn,
        )  # fmt: skip


def _are_settled(found: list[Loss], cuts: Mapping[str, Cut], segments: Histories) -> bool:
    """Whether waiting would change nothing: what was cut for certain, or has expired, stays so.

    A queue of another set that does not reach to what was read yet may still come to it.
    """
    return all(cut.is_certain for cut in cuts.values()) and all(
        one.resume > one.wanted or holder_of(one.queue, one.wanted, segments).broker_name in cuts
        for one in found
    )
