"""Bugs in the log's files and in snapshots."""

from __future__ import annotations

from typing import Any

import pytest

from rmqha.base.ids import Term
from rmqha.controller.aio import snapshot_saving, wal
from rmqha.controller.metadata import state
from rmqha.controller.raft import wal_layout
from rmqha.controller.raft.events import Persist
from rmqha.sim.disk import SimDisk
from tests.sim.mutants.mutant import Mutant


def votes_never_reach_the_disk(patch: pytest.MonkeyPatch) -> None:
    """Terms are written, votes are not."""
    honest = wal.Wal.append

    def forget(self: wal.Wal, persist: Persist, *, may_block: bool = False) -> None:
        if persist.hard_state is not None:
            persist = persist._replace(hard_state=persist.hard_state._replace(vote=None))
        honest(self, persist, may_block=may_block)

    patch.setattr(wal.Wal, "append", forget)


def compacts_one_segment_too_many(patch: pytest.MonkeyPatch) -> None:
    """Segments go although entries in them are still needed."""
    honest = wal.Wal.compact

    async def greedy(self: wal.Wal, up_to_index: int) -> int:
        return await honest(self, up_to_index + 10)

    patch.setattr(wal.Wal, "compact", greedy)


def log_not_restarted_behind_a_snapshot(patch: pytest.MonkeyPatch) -> None:
    """After an install the log on disk goes on where it was."""

    async def nothing(self: wal.Wal, index: int, term: int) -> None:
        return

    patch.setattr(wal.Wal, "reset", nothing)


def damage_taken_for_a_torn_tail(patch: pytest.MonkeyPatch) -> None:
    """Any bad last frame is cut, although others may have been told of it."""
    patch.setattr(wal_layout, "is_torn", lambda data, offset: True)


def log_believed_after_a_failed_sync(patch: pytest.MonkeyPatch) -> None:
    """A start takes what it reads for durable, although a sync of it has failed."""

    async def cut(self: SimDisk, path: str, data: bytes) -> None:
        file = self._plain(path)
        file.durable, file.cached, file.reserved = data, b"", 0
        file.clean = [(low, min(high, len(data))) for low, high in file.clean if low < len(data)]

    patch.setattr(SimDisk, "write_again", cut)


def snapshot_named_one_too_low(patch: pytest.MonkeyPatch) -> None:
    """A snapshot holds an entry more than it says, which is then applied twice."""
    honest = snapshot_saving.SnapshotSaving._save

    async def understate(
        self: snapshot_saving.SnapshotSaving, index: int, term: Term, data: bytes
    ) -> None:
        await honest(self, index - 1, term, data)

    patch.setattr(snapshot_saving.SnapshotSaving, "_save", understate)


def _left_out(position: int, replacement: Any) -> Any:
    """A snapshot in which one field of every set has the value it was born with."""

    def put_in(patch: pytest.MonkeyPatch) -> None:
        honest = state._set_to_plain

        def forgetful(one: state.BrokerSet) -> list[object]:
            plain = honest(one)
            plain[position] = replacement
            return plain

        patch.setattr(state, "_set_to_plain", forgetful)

    return put_in


def _replica_left_out(position: int) -> Any:
    def put_in(patch: pytest.MonkeyPatch) -> None:
        honest = state._set_to_plain

        def forgetful(one: state.BrokerSet) -> list[object]:
            plain: list[Any] = honest(one)
            for replica in plain[4]:
                replica[position] = ""
            return plain

        patch.setattr(state, "_set_to_plain", forgetful)

    return put_in


DIFFER = "two nodes applied the same entries and differ"
FIELDS = {
    "cluster_name": _left_out(0, ""),
    "broker_name": _left_out(1, ""),
    "last_issued_id": _left_out(2, 0),
    "retired_ids": _left_out(3, []),
    "replicas": _left_out(4, []),
    "master_epoch": _left_out(5, 0),
    "sync_state_set_epoch": _left_out(6, 0),
    "sync_state_set": _left_out(7, []),
    "master_broker_id": _left_out(8, None),
    "address": _replica_left_out(1),
    "register_check_code": _replica_left_out(2),
}


def _named(name: str, patch: Any) -> Any:
    patch.__name__ = f"snapshot_without_{name}"
    patch.__doc__ = f"A snapshot leaves out {name}."
    return patch


REFUSED = "a store that nothing damaged would be refused"

MUTANTS = (
    Mutant(votes_never_reach_the_disk, "a vote left before it was durable", 1),
    Mutant(compacts_one_segment_too_many, REFUSED, 6),
    Mutant(log_not_restarted_behind_a_snapshot, REFUSED, 11),
    Mutant(damage_taken_for_a_torn_tail, "a leader was elected without all committed entries", 166),
    Mutant(log_believed_after_a_failed_sync, REFUSED, 7),
    Mutant(snapshot_named_one_too_low, DIFFER, 2),
    *(Mutant(_named(name, patch), DIFFER, 1) for name, patch in FIELDS.items()),
)
