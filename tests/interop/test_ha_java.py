"""Replication between the real RocketMQ and ours, both ways: loads, kills, diverged tails, turns.

The Java side is the project's own DefaultMessageStore with its AutoSwitchHAService
(``java/HaPeer.java``); ours is the same over MessageStore and HaService (``ha_peer.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmqha.testing.real.processes import tails_on_failure, wait_until
from tests.interop import required
from tests.interop.ha_pair import (
    LARGE,
    SMALL,
    Pair,
    first_difference,
    follow,
    opened_by_the_other,
    put,
    same,
    wait_acked,
    wait_joined,
)
from tests.interop.peers import JAVA, PYTHON, summary

MB = 1_000_000
LOAD_BYTES_PER_S = 25 * MB
WAYS = [(JAVA, PYTHON), (PYTHON, JAVA)]
FULL = "5.3.3"
VERSIONS = [FULL, "5.1.4", "5.5.0"]
MakePair = Callable[..., Pair]

both_ways = pytest.mark.parametrize("sides", WAYS, ids=["java-python", "python-java"])
all_versions = pytest.mark.parametrize("version", VERSIONS)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[MakePair]:
    """Makes pairs that run; the end kills them."""
    pairs: list[Pair] = []

    def made(sides: tuple[str, str], version: str = FULL, **settings: object) -> Pair:
        required.require_classpath(version)
        pair = Pair(tmp_path, sides, version, settings)
        pairs.append(pair)
        pair.one.start()
        pair.two.start()
        return pair

    with tails_on_failure(lambda: [peer.child for pair in pairs for peer in pair.peers]):
        try:
            yield made
        finally:
            for pair in pairs:
                pair.end()


def load(seed: int) -> str:
    """A load that goes on until it is ended, slower than any replication."""
    return f"load {10_000 * MB} {SMALL} {LARGE} {seed} 32 {LOAD_BYTES_PER_S}"


@all_versions
@both_ways
def test_a_slave_joins_dies_and_returns_under_load(
    make: MakePair, sides: tuple[str, str], version: str
) -> None:
    """200 MB of records of 100 B to 1 MB: a join with data present, kill -9 of the slave in the
    middle of a load, its return in the middle of it; all logs, epochs and readers agree."""
    pair = make(sides, version)
    master, slave = pair.peers
    master.ask("master 1 1")
    put(master, 160 * MB if version == FULL else 30 * MB, seed=1)
    follow(slave, master, 1)
    master.ask(load(2))
    wait_acked(master, master.offsets().max + 20 * MB)
    slave.kill()
    wait_until(lambda: master.offsets().set == {1}, 30, "the set without the dead slave")
    slave.start()
    follow(slave, master, 1)
    wait_acked(master, master.offsets().max + 20 * MB)
    assert int(summary(master.ask("loaded now"))["succeeded"]) > 0
    put(master, MB, seed=3)
    same(master, slave)
    assert version != FULL or master.offsets().max > 200 * MB
    if version == FULL:
        opened_by_the_other(pair)


@all_versions
@both_ways
def test_a_slave_joins_in_the_middle_of_a_load(
    make: MakePair, sides: tuple[str, str], version: str
) -> None:
    """A fresh slave overtakes a running load, then every put waits for it."""
    pair = make(sides, version)
    master, slave = pair.peers
    master.ask("master 1 1")
    master.ask(load(1))
    wait_acked(master, 20 * MB)
    slave.ask(f"slave {master.address} 1 1")
    wait_joined(master, slave)
    joined_at = master.offsets().max
    wait_acked(master, joined_at + 10 * MB)
    done = summary(master.ask("loaded now"))
    assert done["failed"] == "0", done
    same(master, slave)


@all_versions
@both_ways
def test_a_master_dies_under_load_and_returns(
    make: MakePair, sides: tuple[str, str], version: str
) -> None:
    """What the dead master had acknowledged is on the new one; the old one's tail is cut."""
    pair = make(sides, version)
    old, new = pair.peers
    old.ask("master 1 1")
    put(old, MB)
    follow(new, old, 1)
    old.ask(load(2))
    wait_acked(old, 40 * MB)
    old.kill()
    acked = old.acked
    assert new.offsets().max >= acked
    new.ask("master 2 2")
    assert first_difference(old, new, acked) == acked
    put(new, 5 * MB, seed=3)
    old.start()
    follow(old, new, 2)
    put(new, 5 * MB, seed=4)
    same(new, old)
    epochs = new.offsets().epochs
    assert [epoch for epoch, _ in epochs] == [1, 2]
    assert epochs[1][1] >= acked


@both_ways
def test_what_no_slave_has_is_not_acknowledged_and_is_cut(
    make: MakePair, sides: tuple[str, str]
) -> None:
    """With allAckInSyncStateSet a put without its slave times out, and a new master drops it."""
    pair = make(sides, slaveTimeout=500)
    old, new = pair.peers
    old.ask("master 1 1")
    put(old, MB)
    follow(new, old, 1)
    put(old, MB, seed=2)
    shared = old.offsets().max
    old.ask("agree off")
    new.kill()
    said = summary(old.ask(f"put {2 * MB} {SMALL} {LARGE} 3 1000"))
    assert said["succeeded"] == "0"
    assert said["status"] == "FLUSH_SLAVE_TIMEOUT"
    assert old.offsets().confirm == shared
    assert old.offsets().max > shared
    old.kill()
    new.start()
    new.ask("master 2 2")
    put(new, MB, seed=4)
    old.start()
    follow(old, new, 2)
    put(new, MB, seed=5)
    same(new, old)
    assert old.offsets().epochs == ((1, 0), (2, shared))


def test_mastership_goes_from_java_to_python_to_java(make: MakePair) -> None:
    """Epoch after epoch, by kills and by orders, with an epoch in which nothing is written."""
    pair = make((JAVA, PYTHON))
    java, python = pair.peers
    java.ask("master 1 1")
    put(java, 20 * MB, seed=1)
    follow(python, java, 1)
    put(java, 5 * MB, seed=2)

    java.kill()
    python.ask("master 2 2")
    put(python, 5 * MB, seed=3)
    java.start()
    follow(java, python, 2)
    put(python, 5 * MB, seed=4)
    same(python, java)
    # An order from the controller: nobody has died.
    python.ask("agree off")
    java.ask("master 3 1")
    follow(python, java, 3)
    put(java, 5 * MB, seed=5)
    same(java, python)
    java.kill()
    python.ask("master 4 2")
    python.kill()
    python.start()
    python.ask("master 5 2")
    put(python, 5 * MB, seed=6)
    java.start()
    follow(java, python, 5)
    put(python, MB, seed=7)
    same(python, java)
    opened_by_the_other(pair)
