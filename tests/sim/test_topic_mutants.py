"""Bugs put on purpose into how topics and groups follow the log: the simulator must find each.

Three more are found by scripts: ``tests/broker/test_metadata_in_simulator.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rmqha.base.errors import RmqhaError
from rmqha.broker.common.aio.writer import Writer
from rmqha.broker.groups.offset_table import ConsumerOffsets, Merged
from rmqha.broker.sync.aio import metadata_log as shell
from rmqha.broker.topics.metadata import Change, Metadata
from rmqha.remoting.codes import ResponseCode
from rmqha.sim.replica_swarm import run_lease_seed, run_replica_seed
from rmqha.store.aio import message_store
from rmqha.store.aio.consume_queues import ConsumeQueues

Patch = Callable[[pytest.MonkeyPatch], None]
TOLD = "a master does not have what an administrator was told"
DIFFER = "replicas with the same log have other tables"


def slaves_take_no_records(patch: pytest.MonkeyPatch) -> None:
    """Tables come by copies only, as before."""
    passed = Metadata.passed

    def deaf(self: Metadata, offset: int, end: int, change: Change, wall_ms: int) -> bool:
        own = any(one.end == end for one in self._pending)
        return passed(self, offset, end, change, wall_ms) if own else False

    patch.setattr(Metadata, "passed", deaf)


def tables_stay_when_the_log_is_cut(patch: pytest.MonkeyPatch) -> None:
    """Records go, and what they did stays."""
    patch.setattr(Metadata, "cut", lambda self, offset: True)


def answers_wait_for_nobody(patch: pytest.MonkeyPatch) -> None:
    """A change is acknowledged when it is in the master's log."""

    def hasty(self: Writer, connection: Any, request: Any, end: int, followed: Any = None) -> None:
        connection.send(request.reply(ResponseCode.SUCCESS))

    patch.setattr(Writer, "answer_when_durable", hasty)


def nothing_to_change_is_answered_at_once(patch: pytest.MonkeyPatch) -> None:
    """Asked for again, a change that is not safe yet passes for one that is."""
    change = shell.MetadataLog.change

    def hasty(self: Any, connection: Any, request: Any, wanted: Change, *more: Any) -> Any:
        if wanted == Change():
            return request.reply(ResponseCode.SUCCESS)
        return change(self, connection, request, wanted, *more)

    patch.setattr(shell.MetadataLog, "change", hasty)


def old_queues_stay(patch: pytest.MonkeyPatch) -> None:
    """A deleted topic's queues are those of the next one of its name."""

    async def keep(self: ConsumeQueues, topic: bytes) -> None:
        """The old one."""

    patch.setattr(ConsumeQueues, "_end", keep)


def queues_do_not_come_back(patch: pytest.MonkeyPatch) -> None:
    """The record that ended a topic is cut off, and its queues are gone all the same."""

    def none(*facts: Any) -> Iterator[Any]:
        return iter(())

    patch.setattr(message_store, "dispatched_since", none)


def commits_are_taken_and_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A group's offset is acknowledged, and that is all."""
    commit = ConsumerOffsets.commit

    def forget(self: Any, group: str, topic: str, *more: Any) -> bool:
        return topic.startswith("Life") or commit(self, group, topic, *more)

    patch.setattr(ConsumerOffsets, "commit", forget)


def slaves_copy_no_offsets(patch: pytest.MonkeyPatch) -> None:
    """What the master tells of groups is thrown away."""
    patch.setattr(ConsumerOffsets, "merge", lambda self, value, *ended: Merged(0, 0))


MUTANTS = (
    (
        commits_are_taken_and_forgotten,
        run_replica_seed,
        1,
        "a master does not have what a group has",
    ),
    (slaves_copy_no_offsets, run_replica_seed, 1, "a slave has another offset than its master"),
    (slaves_take_no_records, run_replica_seed, 1, TOLD),
    (tables_stay_when_the_log_is_cut, run_lease_seed, 424, DIFFER),
    (answers_wait_for_nobody, run_replica_seed, 15, TOLD),
    (nothing_to_change_is_answered_at_once, run_replica_seed, 34, TOLD),
    (old_queues_stay, run_replica_seed, 1, "a deleted topic gives out an old message"),
    (queues_do_not_come_back, run_lease_seed, 62, DIFFER),
)
SEEDS_MAX = 6


@pytest.mark.sim
@pytest.mark.slow
@pytest.mark.turns(3)
@pytest.mark.parametrize(
    ("mutant", "play", "first", "rule"), MUTANTS, ids=lambda m: getattr(m, "__name__", "")
)
def test_the_simulator_finds_a_bug_put_in_on_purpose(
    mutant: Patch,
    play: Callable[[int], object],
    first: int,
    rule: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the rule that it breaks, at a seed from the first one on that is known to find it."""
    mutant(monkeypatch)
    found: list[str] = []
    for seed in range(first, first + SEEDS_MAX):
        try:
            play(seed)
        except RmqhaError as error:
            found.append(f"seed {seed}: {error}")
            break
    assert found, f"{SEEDS_MAX} seeds found nothing wrong with {mutant.__name__}"
    assert rule in found[0]
