"""The simulator's client history: all of it is there, and writing it changes nothing."""

from __future__ import annotations

import pytest

from rmqha.sim.replica_swarm import run_replica_seed
from rmqha.verify.client_history import Ack, Consume, End, HistoryWriter, Send, decode_line

pytestmark = [pytest.mark.sim, pytest.mark.slow]
SEED = 7


def test_history_when_written_then_the_story_is_the_same_and_told_in_full() -> None:
    """Every acknowledgement, and a consumer that reads each of them in the end."""
    lines: list[bytes] = []
    told = run_replica_seed(SEED, history=HistoryWriter(lines.append))
    assert told.digest == run_replica_seed(SEED).digest
    records = [decode_line(line) for line in lines]
    acks = [one for one in records if isinstance(one, Ack)]
    assert len(acks) == told.reads
    assert len([one for one in records if isinstance(one, Send)]) >= len(acks)
    read = {(one.key, one.queue, one.offset) for one in records if isinstance(one, Consume)}
    assert {(one.key, one.queue, one.offset) for one in acks} <= read
    ends = {one.queue: one.offset for one in records if isinstance(one, End)}
    assert sum(ends.values()) == len(read)
