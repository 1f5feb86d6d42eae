"""Wall clocks of Java's processes that jump, by the command that people type."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from rmqha.chaos.aio.java_clock import SHARED_MEMORY
from tests.chaos.needs import needs_hosts
from tests.chaos.test_cells import heads, played
from tests.interop import required

ASKED = ("--fault-s", "3", "--pause-s", "0", "--brokers", "java")
JUMPED_MS = 30_000


@needs_hosts
@pytest.mark.timeout(400)
def test_brokers_when_their_wall_clocks_jump_then_messages_are_stored_by_them_and_none_is_lost(
    tmp_path: Path,
) -> None:
    """Whoever is the master: with this seed each broker's clock is wrong by a minute in one of the first
    two rounds, and right in the next. Its waits are as long as ever: with a library that moved other
    clocks as well no broker came up."""
    required.require_classpath()
    shared = set(Path(SHARED_MEMORY).iterdir())
    code, (cell,), said = played(
        tmp_path, "clock-jump-brokers", "--rounds", "3", "--seed", "55", *ASKED,
        "--folder", str(tmp_path / "nodes"), timeout_s=380,
    )  # fmt: skip
    assert (code, cell.lost, cell.broken) == (0, [], []), said
    assert [one.fault for one in cell.rounds] == [
        "clock jump of -60 s broker-0 broker-2", "clock jump of +60 s broker-1",
        "clock jump of +1 s broker-0",
    ]  # fmt: skip
    assert set(Path(SHARED_MEMORY).glob("*faketime*")) <= shared, "the machine's own is as it was"
    (log,) = (tmp_path / "nodes").glob("*/broker-0/disk/store/commitlog/000*0")
    stored_ms = [head.store_timestamp for head in heads(log.read_bytes())]
    assert max(b - a for a, b in pairwise(stored_ms)) > JUMPED_MS, cell.rounds
    assert min(b - a for a, b in pairwise(stored_ms)) < -JUMPED_MS, "a log of Java's goes back"


@needs_hosts
@pytest.mark.timeout(400)
def test_controllers_when_their_wall_clocks_jump_with_the_brokers_then_nothing_is_lost(
    tmp_path: Path,
) -> None:
    """Those of Java, too: both kinds of process are started in one way. That nothing is lost is asked of
    them and not that a set is whole again: Java's leader tells silence by its wall clock, and when it
    looks between a jump of an hour and the next heartbeats all brokers are dead to it."""
    required.require_classpath()
    code, (cell,), said = played(
        tmp_path, "clock-jump-both", "--rounds", "2", "--seed", "3", *ASKED,
        "--controllers", "java", timeout_s=380,
    )  # fmt: skip
    assert (cell.lost, cell.damaged) == ([], 0), said
    assert (code == 0) == (cell.broken == []), said
    assert cell.acknowledged > 0
    assert all("not whole after" in one for one in cell.broken), said
    assert "controller-" in " ".join(one.fault for one in cell.rounds)
