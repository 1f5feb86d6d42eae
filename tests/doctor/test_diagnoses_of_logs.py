"""Diagnoses of logs that part, stand still or are longer: whose messages are the only copies."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rmqha.doctor.facts import Facts, HaFacts
from rmqha.ha.epochs import EpochEntry
from tests.doctor.healthy import (
    END,
    EPOCHS,
    HEALTHY,
    NAME,
    NAME_SERVERS,
    OTHER,
    OURS,
    SLAVE,
    broker,
    cache,
    codes,
    diagnose,
    find,
    info,
    only,
    replica,
    sets,
)

EMPTIED = (EpochEntry(4, 0),)
"""The epochs of a master whose store was emptied before it was elected."""
SLAVES = (2, 3)


def ends(broker_id: int, end: int, facts: Facts = HEALTHY, **what: object) -> Facts:
    """The cluster with one broker's log ending elsewhere, by all that it says."""
    one = next(b for b in facts.brokers if b.address.startswith(f"10.0.1.{broker_id}:"))
    assert one.epochs is not None
    runtime = {**one.runtime, "commitLogMaxOffset": str(end)}
    epochs = replace(one.epochs, max_offset=end)
    return broker(broker_id, facts, runtime=runtime, epochs=epochs, **what)


def emptied(*, master_end: int = 0) -> Facts:
    """The master has nothing of what both slaves have, who stand outside the SyncStateSet."""
    facts = broker(1, ha=HaFacts(True, lags=(0, 0)), epochs=cache(0, EMPTIED))
    facts = ends(1, master_end, facts)
    apart = replace(info((replica(1),), (replica(2), replica(3))), master_epoch=4)
    return replace(sets(apart, facts), conf=None, identity=None, store=None)


@pytest.mark.parametrize("master_end", [0, END, 90_000])
def test_epochs_when_slaves_agree_against_the_master_then_nothing_is_to_be_emptied(
    master_end: int,
) -> None:
    """It was advised to empty both, which had the only copies of acknowledged messages."""
    found = find(emptied(master_end=master_end), "epochs-conflict")
    assert f"it agrees with that of {OTHER}, against the master's" in found.why
    assert "The slave cannot follow." in found.why, "it was said to cut its log off at 0"
    assert "The MASTER may be the wrong one" in found.next_step
    assert "Empty no store" in found.next_step
    asked = ";".join(NAME_SERVERS)
    assert f"`bin/mqadmin getBrokerEpoch -n '{asked}' -b {NAME}`" in found.next_step
    assert "then, and what" not in found.next_step, "the advice of the other case"


def test_epochs_when_the_master_may_be_the_wrong_one_then_nothing_else_lets_writes_into_it() -> (
    None
):
    """Beside it stood to restart a slave, and a lower minInSyncReplicas, so that the master writes on."""
    facts = emptied()
    assert set(codes(facts)) == {"epochs-conflict", "writes-impossible"}
    step = find(facts, "writes-impossible").next_step
    assert step.endswith("Not while logs part (epochs-conflict): the master may be the wrong one.")
    assert "Write minInSyncReplicas" not in step
    assert not any("Restart" in one.found.next_step for one in diagnose(facts))


def test_epochs_when_the_slave_is_longer_or_older_then_the_master_is_doubted() -> None:
    """Of two replicas nobody agrees: the length and the first epoch speak for the slave."""
    alone = emptied()
    alone = replace(alone, brokers=tuple(b for b in alone.brokers if b.address != OTHER))
    found = find(alone, "epochs-conflict")
    assert f"it ends at {END}, the master's at 0" in found.why
    assert "it begins with epoch 1, the master's with 4" in found.why
    assert "Empty no store" in found.next_step
    # The master has written since, so that its log is the longer one.
    later = ends(1, 90_000, alone)
    found = find(later, "epochs-conflict")
    assert "it ends at" not in found.why
    assert "Empty no store" in found.next_step


def test_epochs_when_one_slave_alone_differs_then_its_store_is_copied_before_it_is_emptied() -> (
    None
):
    """An old master with a tail of its own: the others agree with the master."""
    other = (EpochEntry(1, 0), EpochEntry(3, 1_800))
    found = only(broker(2, epochs=cache(2, other)), "epochs-conflict").found
    assert "has to cut its log off at 1800" in found.why
    assert "MASTER" not in found.next_step
    assert found.next_step.startswith("Copy the slave's store")
    assert "OPERATIONS, Emptying a replica" in found.next_step


def test_slaves_when_they_part_then_they_are_not_told_as_catching_up() -> None:
    """Beside the conflict it said 0 bytes behind of a slave whose log was longer."""
    facts = broker(1, emptied(), ha=HaFacts(True))
    assert set(codes(facts)) == {"epochs-conflict", "writes-impossible"}
    assert "slave-not-in-sync" not in codes(ends(1, 90_000, facts))
    # Without the conflict it is told, unless the slave is longer, which is told otherwise.
    less = sets(
        info((replica(1), replica(2)), (replica(3),)), broker(1, ha=HaFacts(True, "", False, 1))
    )
    assert codes(ends(3, END - 7, less)) == ["slave-not-in-sync"]
    assert "7 bytes behind" in find(ends(3, END - 7, less), "slave-not-in-sync").what
    assert codes(ends(3, END + 7, less)) == ["slave-longer-than-master"]


@pytest.mark.parametrize(("lag", "is_told"), [(4_096, False), (4_097, True), (END - 10, True)])
def test_slave_when_it_is_in_sync_and_behind_then_it_stands_still(lag: int, is_told: bool) -> None:
    """Sends timed out, and nothing was wrong."""
    facts = ends(2, END - lag)
    if not is_told:
        assert codes(facts) == []
        return
    found = only(facts, "slave-stands-still").found
    assert found.subject == f"{NAME} {SLAVE} at {END - lag}", "another one when it has moved"
    assert f"{lag} bytes behind" in found.what
    # Out of the SyncStateSet it may be behind; without a connection that is told.
    behind = sets(info((replica(1), replica(3)), (replica(2),)), facts)
    assert "slave-stands-still" not in codes(behind)
    cut_off = broker(2, facts, ha=HaFacts(False))
    assert codes(cut_off) == ["slave-not-replicating"]


def test_slave_when_its_log_is_longer_than_the_masters_then_its_store_is_kept() -> None:
    """What it has beyond is cut off as soon as it follows."""
    found = only(ends(2, 900_000), "slave-longer-than-master").found
    assert f"ends at 900000, the master's at {END}: 895000 bytes" in found.what
    assert found.next_step.startswith("Copy the slave's store")
    # Who does not act as master is told of otherwise, and who does not tell is not judged.
    assert "slave-longer-than-master" not in codes(broker(1, ends(2, 900_000), ha=HaFacts(False)))
    assert codes(broker(2, runtime=OURS)) == []
    assert codes(broker(1, runtime=OURS)) == []


def test_epochs_when_the_master_knows_none_then_that_is_told_with_a_way_out() -> None:
    """Slaves are sent away whether its newest epoch is old or not there."""
    found = only(broker(1, epochs=cache(0, ())), "master-epoch-missing").found
    assert "newest epoch is 0, the controllers' is 3" in found.what
    assert "switchMaster" in found.next_step
    assert "electMaster" in found.next_step
    alone = sets(
        info((replica(1),), (replica(2), replica(3))), broker(1, epochs=cache(0, EPOCHS[:1]))
    )
    step = find(alone, "master-epoch-missing").next_step
    assert step.startswith("No slave is in sync, so restart the master")


def test_slave_when_it_reads_from_the_master_by_name_then_it_is_the_same() -> None:
    """HA addresses of the one are names, and of the other numbers."""
    ha = HEALTHY.brokers[1].ha
    assert ha is not None
    facts = broker(2, ha=replace(ha, master_address="m1:10912"))
    assert codes(replace(facts, resolved={"m1": ("10.0.1.1",)})) == []
    assert codes(replace(facts, resolved={"m1": ("10.0.1.3",)})) == ["slave-of-old-master"]
