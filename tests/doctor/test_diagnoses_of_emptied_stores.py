"""Diagnoses before a broker is started whose store was emptied: started alone it may be elected."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rmqha.doctor.facts import Facts
from rmqha.store.checkpoint import Checkpoint
from tests.doctor.healthy import (
    BROKERS,
    DOWN,
    END,
    EPOCHS,
    HANGS,
    HEALTHY,
    MASTER,
    NAME,
    OTHER,
    SLAVE,
    broker,
    cache,
    codes,
    find,
    info,
    only,
    replica,
    sets,
    silent,
    store,
)


def emptied(facts: Facts = HEALTHY, **what: object) -> Facts:
    """Broker 2's store after it was emptied by hand: config and brokerIdentity are kept."""
    bare = {"end_offset": 0, "checkpoint": None, "epochs": None, "queues": ()}
    return store(facts, **{**bare, "consumer_offsets": {}, **what})


def all_down(in_sync: tuple[int, ...] = (1, 2, 3)) -> Facts:
    """No broker runs, and the set has no master."""
    facts = HEALTHY
    for broker_id in BROKERS:
        facts = silent(broker_id, facts=facts)
    dead = {n: replica(n, alive=False) for n in BROKERS}
    members = tuple(dead[n] for n in in_sync)
    rest = tuple(dead[n] for n in BROKERS if n not in in_sync)
    return sets(info(members, rest, None), replace(facts, name_servers=()))


def test_store_when_it_is_empty_and_in_sync_then_it_is_not_to_be_started_alone() -> None:
    """It was elected with nothing, and what the others had acknowledged was lost; nothing was said."""
    found = find(emptied(all_down()), "store-wiped")
    assert found.what.startswith(f"the broker is 2 of {NAME}")
    assert "The set is in epoch 3, and this store knows no epoch" in found.why
    assert "started alone it may be elected" in found.why
    assert f"Do not start it now. Start 1 ({MASTER}), 3 ({OTHER}) before it" in found.next_step
    assert f"-b {NAME}`" in found.next_step
    alone = find(emptied(all_down((2,))), "store-wiped")
    assert alone.next_step.startswith("Do not start it: nobody else is in the SyncStateSet.")
    # A hung process is not one that works.
    assert "store-wiped" in codes(emptied(silent(2, HANGS, all_down())))


def test_store_when_others_have_messages_then_who_has_the_newest_log_is_told() -> None:
    """A file of the log is lost, and checkpoint and epochs are not."""
    partly = {"checkpoint": Checkpoint(1, 1, 1, 0, 0), "epochs": EPOCHS[:1]}
    facts = emptied(silent(2), **partly)
    behind = sets(info((replica(1), replica(3)), (replica(2, alive=False),)), facts)
    found = find(behind, "store-wiped")
    assert f"1 ({MASTER}) has a log up to {END}; 3 ({OTHER}) has a log up to {END}." in found.why
    assert "not elected before it has caught up" in found.why
    assert found.next_step.startswith(f"Start it while {MASTER} is master")
    member = find(
        sets(info((replica(1), replica(2, alive=False), replica(3))), facts), "store-wiped"
    )
    assert member.next_step.startswith("Do not start it now.")


@pytest.mark.parametrize(
    "facts",
    [
        emptied(), emptied(all_down(), checkpoint=Checkpoint(1, 1, 1, 0, 0), epochs=EPOCHS[:1]),
        emptied(all_down((1, 3))),
        replace(emptied(all_down()), conf=None), replace(emptied(all_down()), sets={}),
        replace(all_down(), store=HEALTHY.store),
    ],
    ids=["runs", "new set", "outside", "no conf", "unknown", "has messages"],
)  # fmt: skip
def test_store_when_it_is_empty_by_right_then_it_is_not_called_wiped(facts: Facts) -> None:
    """A set to which nobody has written, a replica that copies the log already, and others."""
    assert "store-wiped" not in codes(facts)


def test_set_when_it_has_no_master_then_who_has_the_newest_log_is_told() -> None:
    """Any member is elected by itself when it comes first, an emptied one, too."""
    facts = broker(3, silent(1), epochs=cache(3, EPOCHS[:1]))
    alive = info((replica(1, alive=False), replica(2), replica(3)), (), None)
    step = find(sets(alive, facts), "set-without-master").next_step
    assert f"that of 2 ({SLAVE}): epoch 3, end {END}" in step
    assert "-b 2 --dry-run` says what" in step
    down = find(all_down(), "set-without-master").next_step
    assert "Start a broker of the SyncStateSet whose store is whole" in down
    assert "None of them tells here how far its log goes." in down
    assert "start the others before it" in down
    # One that works and is not heard tells how far it has come.
    deaf = replace(all_down(), brokers=(HEALTHY.brokers[0], *all_down().brokers[1:]))
    assert f"that of 1 ({MASTER}): epoch 3, end {END}" in find(deaf, "set-without-master").next_step


@pytest.mark.parametrize("says", [DOWN, HANGS])
def test_master_when_it_is_gone_and_was_alone_in_sync_then_it_is_to_be_started(
    says: object,
) -> None:
    """It was said to start the slaves of the SyncStateSet, of which there were none."""
    alone = info((replica(1, alive=False),), (replica(2), replica(3)))
    step = find(sets(alone, silent(1, says)), "master-not-alive").next_step
    assert step.startswith(f"Start broker 1 at {MASTER} again")
    assert "Nobody else is in the SyncStateSet" in step
    dead = info((replica(1, alive=False), replica(2, alive=False)), (replica(3),))
    step = find(sets(dead, silent(1, says)), "master-not-alive").next_step
    assert f"start one of the slaves in the SyncStateSet: 2 ({SLAVE})" in step
    living = info((replica(1, alive=False), replica(2), replica(3)))
    assert "electMaster" in find(sets(living, silent(1, says)), "master-not-alive").next_step
    deaf = find(sets(living), "master-not-alive").next_step
    assert deaf.startswith("See that its heartbeats reach the leading controller")


def test_identity_when_only_the_store_is_given_then_epochs_show_that_it_is_missing() -> None:
    """The same store was well without its broker.conf, and ill with it."""
    assert HEALTHY.identity is not None
    alone = Facts(identity=replace(HEALTHY.identity, final=None), store=HEALTHY.store)
    found = only(alone, "identity-missing").found
    assert f"messages up to {END} and epochs" in found.what
    assert "storePathBrokerIdentity" in found.next_step
    assert codes(store(alone, epochs=None)) == [], "no controllers, no identity"
    assert codes(emptied(alone, epochs=EPOCHS[:1])) == []
    assert codes(replace(alone, identity=HEALTHY.identity)) == []
