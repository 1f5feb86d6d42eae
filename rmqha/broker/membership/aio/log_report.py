"""What a broker says of its log, in heartbeats and to who acts for it while it stands still."""

from __future__ import annotations

from collections.abc import Callable

from rmqha.broker.membership.stall_page import Facts
from rmqha.ha.ha_core import HaCore
from rmqha.store.aio.message_store import MessageStore

STALL_TOLD_MS = 500
"""Heartbeats tell of a write that has waited for so long; no good disk takes it."""


class LogReport:
    """Looks at one store.

    Args:
        now_ms: the clock.
        core: of replication; None before this replica has an id.
        broker_id: the persistent id; None before there is one.
        is_learner: whether it is never to be elected.
    """

    def __init__(
        self,
        store: MessageStore,
        *,
        now_ms: Callable[[], int],
        core: Callable[[], HaCore | None],
        broker_id: Callable[[], int | None],
        is_learner: bool,
    ) -> None:
        self._store = store
        self._core = core
        self._broker_id = broker_id
        self._is_learner = is_learner
        self._now_ms = now_ms
        self._full_since_ms: int | None = None

    def now(self) -> Facts:
        """How far the log is, and since when a write has waited."""
        core, store = self._core(), self._store
        epoch = -1 if core is None else core.ha.epochs.last_epoch
        return Facts(
            0, self._broker_id() or 0, store.writes.oldest_begun_ms or 0, epoch,
            store.max_offset, store.confirm_offset,
        )  # fmt: skip

    def heartbeat_fields(self) -> dict[str, str]:
        """What a heartbeat says of the log and its disk; the election looks at it."""
        said = self.now()
        fields = {
            "epoch": str(said.log_epoch),
            "maxOffset": str(said.max_offset),
            "confirmOffset": str(said.confirm_offset),
        }
        if self._is_learner:
            fields["asyncLearner"] = "true"
        waited_ms, full_ms = self._store.writes.oldest_ms, self._full_ms()
        if waited_ms >= STALL_TOLD_MS:
            fields["stalledMs"] = str(waited_ms)
        if full_ms:
            fields["noRoomMs"] = str(full_ms)
        return fields

    def _full_ms(self) -> int:
        """For how long there has been no room for what a master must do; 0 while there is.

        A replica whose log has a place for more may still be in sync. As master it would refuse every
        send, or wait for its queues, while another one has room.
        """
        store, now_ms = self._store, self._now_ms()
        if not (store.dispatcher.lacks_space or store.expiring.is_disk_full):
            self._full_since_ms = None
            return 0
        if self._full_since_ms is None:
            self._full_since_ms = now_ms
        return max(1, now_ms - self._full_since_ms)
