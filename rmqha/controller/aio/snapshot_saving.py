"""When this node saves a snapshot of its own state: every so many entries, one at a time."""

from __future__ import annotations

from collections.abc import Callable

from rmqha.base.errors import DiskFailed
from rmqha.base.ids import Term
from rmqha.controller.aio.snapshots import Snapshots
from rmqha.controller.raft.events import SnapshotMeta
from rmqha.runtime.aio.tasks import Tasks
from rmqha.runtime.logs import Logger

SENDING_TIMES = 10
"""So many times as many entries until the next one, while a follower is being sent the last: each new
one has it begin anew, and what the last one lacks must still be in the log when it has arrived."""


class SnapshotSaving:
    """Saves the state of one node as its log grows.

    Args:
        every: entries between two snapshots.
        is_sending: whether a follower is being sent the last one.
        state: the bytes of the state as it is now.
        on_saved: told when a snapshot is durable; the log before it may go.
    """

    def __init__(
        self,
        snapshots: Snapshots,
        *,
        every: int,
        is_sending: Callable[[], bool],
        state: Callable[[], bytes],
        on_saved: Callable[[SnapshotMeta], None],
        tasks: Tasks,
        log: Logger,
    ) -> None:
        self._snapshots = snapshots
        self._every = every
        self._is_sending = is_sending
        self._state = state
        self._on_saved = on_saved
        self._tasks = tasks
        self._log = log
        self._is_saving = False
        self._not_before = 0

    def applied(self, index: int, term: Term) -> None:
        """The state is that of ``index`` now: save it, if the last snapshot is long ago."""
        if self._is_saving or index < self._not_before:
            return
        since = index - self._snapshots.meta.last_index
        if since < self._every or (since < self._every * SENDING_TIMES and self._is_sending()):
            return
        self._is_saving = True
        self._tasks.start(self._save(index, term, self._state()), name="save snapshot")

    async def _save(self, index: int, term: Term, data: bytes) -> None:
        try:
            if index > self._snapshots.meta.last_index:
                meta = await self._snapshots.save(index, term, data)
                if meta.last_index != index:
                    return  # A newer one came from the leader meanwhile, and is being installed.
                self._log.log("info", "snapshot_saved", index=index, bytes=meta.size)
                self._on_saved(meta)
        except DiskFailed as error:
            # The log has everything; a snapshot only makes it shorter.
            self._not_before = index + max(1, self._every // 8)
            self._log.log("warning", "snapshot_failed", index=index, error=str(error))
        finally:
            self._is_saving = False
