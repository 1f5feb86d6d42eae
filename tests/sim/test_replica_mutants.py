"""Bugs put into replication on purpose: the simulator must find each of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from rmqha.base.errors import RmqhaError
from rmqha.broker.send.aio.plain_sends import PlainSends
from rmqha.ha import membership, put_waits
from rmqha.ha.epochs import EpochCache
from rmqha.ha.events import SendAck
from rmqha.ha.frames import TransferHeader
from rmqha.ha.slave_session import SlaveSession
from rmqha.sim.replica_options import TOPIC, ReplicaOptions
from rmqha.sim.replica_swarm import run_replica_seed
from rmqha.store.aio.commit_log import AppendResult
from rmqha.store.aio.mapped_files import MappedFiles
from rmqha.store.aio.message_store import MessageStore
from rmqha.store.record import Message
from tests.sim.old_stops import without_lists

Patch = Callable[[pytest.MonkeyPatch], None]
SEEDS_MAX = 60
POWER_MAY_FAIL = ReplicaOptions(sync_flush=True)
MEMORY_ONLY = ReplicaOptions(sync_flush=False)


def ack_before_append(patch: pytest.MonkeyPatch) -> None:
    """A slave says that it holds a batch when it has seen its header."""
    take_header = SlaveSession._transfer

    def hasty(self: SlaveSession, now_ms: int, header: TransferHeader) -> None:
        take_header(self, now_ms, header)
        if self._header is header:
            self._ha.emit(SendAck(self.conn, header.offset + header.body_size))

    patch.setattr(SlaveSession, "_transfer", hasty)


def truncate_without_erase(patch: pytest.MonkeyPatch) -> None:
    """Cut bytes stay on the disk (#10666)."""
    without_lists(patch)

    async def keep(self: MappedFiles, low: int, high: int) -> int:
        return 0

    patch.setattr(MappedFiles, "erase", keep)


def confirm_offset_from_connected_slaves_only(patch: pytest.MonkeyPatch) -> None:
    """Members that are away do not count (#6662)."""
    honest = membership.compute_confirm_offset

    def careless(**facts: Any) -> int:
        present = {one for one in facts["union"] if facts["acks"].get(one)}
        return honest(**{**facts, "union": present | {facts["own_id"]}})

    patch.setattr(membership, "compute_confirm_offset", careless)


def epoch_entry_dropped_on_reconnect(patch: pytest.MonkeyPatch) -> None:
    """Entries that start at the log's end go, and batches teach no epoch but the first."""

    def forget(self: EpochCache, master: Any, log_end: int) -> bool:
        return self.drop_beyond(log_end - 1)

    learn = SlaveSession._learn

    def learn_the_first(self: SlaveSession, header: TransferHeader) -> None:
        if not len(self._ha.epochs):
            learn(self, header)

    adopt_epochs = SlaveSession._adopt_epochs

    def adopt_nothing_new(self: SlaveSession, now_ms: int) -> None:
        adopt_epochs(self, now_ms)
        self._pending_epochs = []

    patch.setattr(SlaveSession, "_adopt_epochs", adopt_nothing_new)
    patch.setattr(EpochCache, "adopt", forget)
    patch.setattr(SlaveSession, "_learn", learn_the_first)


def puts_wait_for_nobody(patch: pytest.MonkeyPatch) -> None:
    """A put is answered when it is in the master's log."""
    patch.setattr(membership, "acked_level", lambda **facts: facts["max_offset"])


def every_seventh_message_is_stored_twice(patch: pytest.MonkeyPatch) -> None:
    """Its answer tells of the first copy."""
    append, count = MessageStore.append, itertools.count(1)

    def twice(self: MessageStore, message: Message, *, own: bool = False) -> AppendResult:
        result = append(self, message, own=own)
        if message.topic == TOPIC and next(count) % 7 == 0:
            append(self, message, own=own)
        return result

    patch.setattr(MessageStore, "append", twice)
    # One by one: what is appended together does not come this way.
    patch.setattr(PlainSends, "take_all", lambda self, commands, begin, most: [])


MUTANTS = (
    (
        every_seventh_message_is_stored_twice,
        MEMORY_ONLY,
        1,
        "a message is stored more often than it was sent",
    ),
    (ack_before_append, POWER_MAY_FAIL, 760, "an acknowledged record is lost"),
    (truncate_without_erase, POWER_MAY_FAIL, 1227, "two histories of one epoch"),
    (
        confirm_offset_from_connected_slaves_only,
        MEMORY_ONLY,
        2,
        "confirmOffset passed what a member of the SyncStateSet holds",
    ),
    (epoch_entry_dropped_on_reconnect, MEMORY_ONLY, 1, "epoch files agree"),
    (puts_wait_for_nobody, MEMORY_ONLY, 5, "an acknowledged record is lost"),
)


@pytest.mark.sim
@pytest.mark.slow
@pytest.mark.turns(3)
@pytest.mark.parametrize(
    ("mutant", "kind", "first", "rule"), MUTANTS, ids=lambda m: getattr(m, "__name__", "")
)
def test_the_simulator_finds_a_bug_put_in_on_purpose(
    mutant: Patch, kind: ReplicaOptions, first: int, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the rule that it breaks, at a seed from the first one on that is known to find it."""
    mutant(monkeypatch)
    found = next(
        filter(None, (failure(seed, kind) for seed in range(first, first + SEEDS_MAX))), None
    )
    assert found is not None, f"{SEEDS_MAX} seeds found nothing wrong with {mutant.__name__}"
    assert rule in found


def failure(seed: int, kind: ReplicaOptions) -> str | None:
    """What went wrong in a story, if anything did."""
    try:
        run_replica_seed(seed, kind)
    except RmqhaError as error:
        return f"seed {seed}: {error}"
    return None


def test_the_names_that_mutants_replace_are_the_ones_in_use() -> None:
    """If one moved, its mutant would change nothing."""
    assert membership.acked_level is put_waits.acked_level
    assert membership.compute_confirm_offset.__module__ == "rmqha.ha.confirm_offset"
