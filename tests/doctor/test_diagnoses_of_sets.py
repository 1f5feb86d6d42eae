"""Diagnoses of broker sets where the shape of the set, or what was asked for, is the reason."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rmqha.doctor.examine import diagnose
from rmqha.doctor.facts import Facts, HaFacts
from tests.doctor.healthy import (
    HEALTHY,
    MASTER,
    NAME,
    NAME_SERVERS,
    broker,
    codes,
    config,
    group,
    info,
    name_server,
    only,
    replica,
    sets,
    silent,
)


def test_learner_when_it_follows_then_it_is_not_missed_in_the_sync_state_set() -> None:
    """asyncLearner=true is never in sync, by intention: a healthy set was told ill for ever."""
    less = info(in_sync=(replica(1), replica(2)), behind=(replica(3),))
    facts = broker(1, ha=HaFacts(True, in_sync_slaves=1, lags=(0, 0), connected_in_sync=1))
    assert codes(sets(less, facts)) == ["slave-not-in-sync"]
    assert codes(sets(less, config(3, facts, asyncLearner="true"))) == []


def test_learner_when_the_master_has_nobody_else_then_its_slaves_are_not_said_to_stay_out() -> None:
    """They stay out by right; what is missing is the slave that is down."""
    alone = info(in_sync=(replica(1),), behind=(replica(2, alive=False), replica(3)))
    facts = broker(1, silent(2), ha=HaFacts(True, lags=(0,)))
    facts = replace(facts, identity=None, store=None, conf=None, ports=())
    for broker_id in (1, 3):
        facts = config(broker_id, facts, minInSyncReplicas="1")
    assert set(codes(sets(alone, facts))) == {"replica-down", "sync-state-set-of-one"}
    facts = config(3, facts, asyncLearner="true")
    assert codes(sets(alone, facts)) == ["replica-down"]


def test_set_when_nobody_knows_the_name_then_it_is_not_said_that_nothing_is_wrong() -> None:
    """A typing error in --broker-name had nothing looked at, and nothing found."""
    nothing = tuple(replace(one, sets={}) for one in HEALTHY.name_servers)
    facts = Facts(HEALTHY.controllers, nothing, has_sets=True, set_name="broker-b")
    found = only(facts, "no-such-set").found
    assert found.subject == "broker-b"
    assert f"The controllers know {NAME}." in found.why
    assert codes(replace(facts, set_name="")) == []
    # Nobody was there to ask, or it is a broker's own file, whose set may be new.
    assert codes(replace(facts, name_servers=(), has_sets=False)) == []
    assert codes(replace(facts, conf=HEALTHY.conf)) == []


@pytest.mark.parametrize("is_slave", [True, False])
def test_name_server_when_it_has_no_master_then_clients_find_nobody(is_slave: bool) -> None:
    """It knows the set, and has its master as a slave, or not at all."""
    known = group()
    known.broker_addrs.pop(0)
    if is_slave:
        known.broker_addrs[1] = MASTER
    facts = name_server(0, sets={NAME: known})
    wanted = {"name-server-names-another-master"}
    assert set(codes(facts)) == (wanted if is_slave else {*wanted, "broker-not-registered"})
    assert f"{NAME_SERVERS[0]} has no master of the set" in next(
        one.found.what for one in diagnose(facts) if one.code in wanted
    )
    # There is none to register while the controllers' master does not act as one.
    idle = broker(1, facts, ha=HaFacts(False))
    assert not wanted & set(codes(idle))
