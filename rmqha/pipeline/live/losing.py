"""What a range has lost, by the answers to its pulls, and how long nothing may come."""

from __future__ import annotations

from collections.abc import Callable

from rmqha.client.aio.masters import RETRY_MS
from rmqha.client.logical import begins_at, is_logical
from rmqha.client.pull import Pulled
from rmqha.client.routes import QueueKey
from rmqha.pipeline.live.clients import LiveClient
from rmqha.pipeline.live.gaps import Gap
from rmqha.pipeline.live.offsets import DataLost, Loss, QueueRange
from rmqha.pipeline.live.options import ReadOptions
from rmqha.remoting.codes import ResponseCode

WAS_REMOVING = "MESSAGE_WAS_REMOVING"
"""A Java broker's word for units whose messages have been deleted."""

Warn = Callable[[str], None]


class Losses:
    """Tells what deleted messages are, and of them.

    Args:
        cluster: to ask.
        options: the reader's.
        warn: told what was lost, where that is no error.
    """

    def __init__(self, cluster: LiveClient, options: ReadOptions, warn: Warn) -> None:
        self._cluster = cluster
        self._options = options
        self._warn = warn
        self._sparse: dict[QueueKey, bool] = {}

    def deleted_before(self, queue: QueueKey, offset: int, pulled: Pulled) -> int:
        """The first offset behind messages that have gone with their files; 0 when none have."""
        if pulled.code == ResponseCode.PULL_OFFSET_MOVED:
            return pulled.edge.low
        # Where its end is, a queue has nothing behind it: code 19 that goes on found no file.
        is_jump = pulled.code == ResponseCode.PULL_NOT_FOUND and pulled.next_offset > offset
        if pulled.code != ResponseCode.PULL_RETRY_IMMEDIATELY and not is_jump:
            return 0
        if is_logical(queue):
            history = self._cluster.segments((queue,)).get(queue, ())
            if begins_at(history, pulled.next_offset):
                return 0
            if pulled.edge.low == pulled.next_offset:
                return pulled.next_offset
        if is_jump:
            return 0 if self._is_sparse(queue) else pulled.next_offset
        # Nothing that is there is passed over when all is wanted.
        is_gap = pulled.status == WAS_REMOVING or self._options.expression == "*"
        return pulled.next_offset if is_gap else 0

    def _is_sparse(self, queue: QueueKey) -> bool:
        """Whether a queue has holes in its nature."""
        if queue not in self._sparse:
            self._sparse[queue] = self._cluster.is_compacted(queue)
        return self._sparse[queue]

    def tell_gaps(self, wanted: QueueRange, found: list[Gap]) -> None:
        """Tell of messages that answers have passed over; raises as ``tell``."""
        for gap in found:
            first = max(gap.first, wanted.start)
            if first >= min(gap.stop, wanted.stop) or self._is_sparse(wanted.queue):
                continue
            if is_logical(wanted.queue):
                history = self._cluster.segments((wanted.queue,)).get(wanted.queue, ())
                if begins_at(history, gap.stop):
                    continue
            if self._is_gone(wanted.queue, first):
                reason = f"messages before {gap.stop} have been deleted"
                self.tell(Loss(wanted.queue, first, gap.stop, reason))

    def _is_gone(self, queue: QueueKey, offset: int) -> bool:
        """Whether a message that an answer has passed over does not come when it is asked for alone."""
        patience = Patience(self._cluster)
        while True:
            pulled = self._cluster.pulls(queue, [(offset, 1)], self._options.expression)[0]
            if pulled.code == ResponseCode.SUCCESS:
                return pulled.first_offset is None or pulled.first_offset > offset
            if max(pulled.next_offset, pulled.edge.low) > offset or not patience.wait():
                return True

    def tell(self, loss: Loss) -> int:
        """Where reading goes on behind a loss.

        Raises:
            DataLost: it is to be an error.
        """
        if self._options.fail_on_data_loss:
            raise DataLost(f"{loss} (failOnDataLoss=false goes on)")
        self._warn(str(loss))
        return loss.resume


class Patience:
    """How long nothing may come."""

    def __init__(self, cluster: LiveClient) -> None:
        self._cluster = cluster
        self._deadline_ms: int | None = None

    def renew(self) -> None:
        """Begin the time anew, for something came."""
        self._deadline_ms = None

    def wait(self) -> bool:
        """Wait a moment before the next attempt; False when there shall be none."""
        now_ms = self._cluster.clock.now_ms()
        if self._deadline_ms is None:
            self._deadline_ms = now_ms + self._cluster.failover_timeout_ms
        if now_ms >= self._deadline_ms:
            return False
        self._cluster.forget_masters()
        self._cluster.sleep(RETRY_MS)
        return True
