"""The source ``rocketmq`` as a stream: Spark asks how far it can go, and from where to where to read.

An offset in the checkpoint is a ``Progress``. Between two calls nothing is remembered that the next
one needs: a query that starts again from its checkpoint plans the same ranges.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from rmqha.client.aio.master_client import MasterClient
from rmqha.client.routes import QueueKey
from rmqha.pipeline.live.bounds import At, Bound
from rmqha.pipeline.live.offsets import Progress, limited, ranges
from rmqha.pipeline.live.options import ReadOptions
from rmqha.pipeline.live.planning import Planner, Resumed, connect
from rmqha.pipeline.live.source import LOG, parts, read_partition
from rmqha.pipeline.spark.plain_errors import one_line


class LiveStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans on the driver, in a process of its own; reads in the workers."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._cluster: MasterClient | None = None
        self._target: Mapping[QueueKey, int] | None = None
        self._latest: Mapping[QueueKey, int] | None = None
        self._resumed: tuple[dict[str, Any], Resumed] | None = None
        self._behind: Mapping[QueueKey, int] = {}
        self._taken_ms: float | None = None

    @property
    def _planner(self) -> Planner:
        if self._cluster is None:
            self._cluster = connect(self._options)
        return Planner(self._cluster, self._options, LOG.warning)

    @one_line()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a new query begins; by default with what is sent from now on.

        Raises:
            ConfigInvalid: a topic does not exist, or offsets are given of a queue that does not.
            DataLost: a queue does not reach to where it is to be read from.
            Unreachable: nobody answers.
        """
        planner = self._planner
        edges = planner.known_and({})
        start = planner.begun(self._options.starting or Bound(At.LATEST), edges)
        return planner.placed(start, {}, {}, edges).encode()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The limit that ``maxOffsetsPerTrigger`` sets."""
        most = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    @one_line()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Remember where the queues end now: the query ends there."""
        edges = self._planner.known_and({})
        self._target = {queue: edge.high for queue, edge in edges.items()}

    @one_line()
    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, Any]:
        """Where the next batch ends; ``start`` itself when there is nothing new.

        Raises:
            DataLost: what ``start`` tells was lost, and that is to be an error.
            Unreachable: nobody answers.
        """
        # Where the batch before began matters to no other one.
        planner, before = self._planner, replace(Progress.decode(start), begun={})
        resumed = self._resume(planner, start)
        begin = resumed.progress.queues
        self._latest = {queue: edge.high for queue, edge in resumed.edges.items()}
        latest = {
            queue: max(begin[queue], self._capped(queue, high))
            for queue, high in self._latest.items()
        }
        if resumed.progress == before and self._waits(sum(latest.values()) - sum(begin.values())):
            self._behind = {queue: latest[queue] - begin[queue] for queue in latest}
            return start
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        ends = limited(begin, latest, most)
        self._behind = {queue: latest[queue] - ends[queue] for queue in latest}
        found = planner.placed(ends, begin, resumed.progress.logs, resumed.edges)
        known = before.queues.keys() | before.absent.keys()
        begun = {queue: offset for queue, offset in begin.items() if queue not in known}
        found = replace(found, absent=resumed.progress.absent, begun=begun)
        is_unchanged = found.queues == before.queues and resumed.progress == before
        return start if is_unchanged else found.encode()

    def _waits(self, backlog: int) -> bool:
        """Whether a batch is worth waiting for more: never the first one, nor one of a query that ends."""
        least, now_ms = self._options.min_offsets_per_trigger, self._planner.now_ms()
        if least is None or self._target is not None or not backlog:
            return False
        taken_ms = self._taken_ms
        is_due = taken_ms is None or now_ms >= taken_ms + self._options.trigger_delay_ms
        if backlog < least and not is_due:
            return True
        self._taken_ms = now_ms
        return False

    def _capped(self, queue: QueueKey, high: int) -> int:
        return high if self._target is None else min(high, self._target.get(queue, 0))

    def _resume(
        self, planner: Planner, start: dict[str, Any], end: Progress | None = None
    ) -> Resumed:
        resumed = planner.resumed(Progress.decode(start), end)
        self._resumed = (start, resumed)
        return resumed

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Where the queues end, and how far behind that the batch ends, by Kafka's names.

        Spark (4.3) shows no metrics of a source that is written in Python; this it shows.
        """
        if self._latest is None:
            return None
        behind = list(self._behind.values()) or [0]
        return Progress(self._latest, {}).encode() | {
            "avgOffsetsBehindLatest": round(sum(behind) / len(behind), 1),
            "maxOffsetsBehindLatest": max(behind),
            "minOffsetsBehindLatest": min(behind),
        }

    @one_line()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """A range of each queue that has something to read.

        Raises:
            DataLost, Unreachable: as ``latestOffset``.
        """
        known, resumed = self._resumed or (None, None)
        decoded = Progress.decode(end)
        if resumed is None or known != start:
            resumed = self._resume(self._planner, start, decoded)
        return parts(ranges(resumed.progress.queues, decoded.queues), self._options)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """One range's messages as Arrow batches; raises as ``RangeReader``."""
        return read_partition(partition, self._options, self._columns)

    def stop(self) -> None:
        """Close the connections."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None
