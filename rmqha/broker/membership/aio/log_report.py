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
        core: of replication; None before this replica has an id.
        broker_id: the persistent id; None before there is one.
        is_learner: whether it is never to be elected.
    """

    def __init__(
        self,
        store: MessageStore,
        *,
        core: Callable[[], HaCore | None],
        broker_id: Callable[[], int | None],
        is_learner: bool,
    ) -> None:
        self._store = store
        self._core = core
        self._broker_id = broker_id
        self._is_learner = is_learner

    def now(self) -> Facts:
        """How far the log is, and since when a write has waited."""
        core, store = self._core(), self._store
        epoch = -1 if core is None else core.ha.epochs.last_epoch
        return Facts(
            0, self._broker_id() or 0, store.writes.oldest_begun_ms or 0, epoch,
            store.max_offset, store.confirm_offset,
        )  # fmt: skip

    def heartbeat_fields(self) -> dict[str, str]:
        """What a heartbeat says of the log; the election looks at it."""
        said = self.now()
        fields = {
            "epoch": str(said.log_epoch),
            "maxOffset": str(said.max_offset),
            "confirmOffset": str(said.confirm_offset),
        }
        if self._is_learner:
            fields["asyncLearner"] = "true"
        waited_ms = self._store.writes.oldest_ms
        return fields | {"stalledMs": str(waited_ms)} if waited_ms >= STALL_TOLD_MS else fields
