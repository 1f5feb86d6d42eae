"""Diagnoses of broker sets where the shape of the set, or what was asked for, is the reason."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rmqha.doctor.diagnosis import Severity
from rmqha.doctor.facts import BrokerFacts, Facts, HaFacts, NameServerFacts, Silent
from rmqha.remoting.bodies import BrokerMemberGroup
from tests.doctor.healthy import (
    BROKERS,
    CLUSTER,
    DOWN,
    HANGS,
    HEALTHY,
    MASTER,
    NAME,
    NAME_SERVERS,
    OTHER,
    SLAVE,
    broker,
    codes,
    config,
    diagnose,
    find,
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
    assert codes(replace(facts, set_name="")) == ["name-server-empty"] * 2
    # Nobody was there to ask, or it is a broker's own file, whose set may be new.
    assert codes(replace(facts, name_servers=(), has_sets=False)) == []
    assert codes(replace(facts, conf=HEALTHY.conf)) == []


def registered(*ids: int, **conf: str) -> Facts:
    """Name servers alone, with these brokers of the set registered; the others are gone."""
    known = {broker_id: BROKERS[broker_id or 1] for broker_id in ids}
    facts = HEALTHY
    for broker_id in BROKERS:
        facts = (
            config(broker_id, facts, **conf) if broker_id in ids else silent(broker_id, facts=facts)
        )
    living = tuple(one for one in facts.brokers if one.silent is None)
    one = BrokerMemberGroup(CLUSTER, NAME, known)
    servers = tuple(NameServerFacts(at, sets={NAME: one}) for at in NAME_SERVERS)
    return Facts(name_servers=servers, brokers=living)


def test_set_when_only_slaves_are_registered_then_nobody_can_write_to_it() -> None:
    """Its master and all controllers were killed, and nothing was said to be wrong."""
    facts = registered(2, 3)
    found = only(facts, "set-without-master")
    assert found.severity is Severity.ERROR
    assert f"They have 2 ({SLAVE}), 3 (" in found.found.why
    assert "acts as master" not in found.found.why
    # The controllers' word comes first, and so does a name server that knows the master.
    assert "set-without-master" not in codes(replace(facts, sets=HEALTHY.sets, has_sets=True))
    known = replace(facts.name_servers[1], sets={NAME: group()})
    one = replace(facts, name_servers=(facts.name_servers[0], known))
    assert codes(one) == ["name-servers-differ"]
    assert codes(replace(facts, name_servers=registered(0, 2).name_servers)) == []
    acting = broker(2, facts, ha=HaFacts(True))
    assert f"{SLAVE} acts as master, unregistered" in only(acting, found.code).found.why
    assert codes(replace(facts, has_sets=True)) == ["set-without-master"], "controllers of others"


def test_set_when_a_slave_acts_for_the_master_then_that_is_told() -> None:
    """Without its master the set takes no writes, by configuration; others take them."""
    facts = registered(2, 3, enableSlaveActingMaster="true")
    found = only(facts, "slave-acts-for-master")
    assert found.severity is Severity.WARNING
    assert f"{SLAVE} serves for it" in found.found.what
    # Only the one with the smallest id may.
    assert codes(config(2, facts, enableSlaveActingMaster="false")) == ["set-without-master"]
    dead = replace(facts, brokers=(BrokerFacts(SLAVE, NAME, DOWN), *facts.brokers[1:]))
    assert "slave-acts-for-master" in codes(dead)


def test_set_when_only_learners_are_registered_then_its_master_is_elsewhere() -> None:
    """A name server of another place has the replicas that shall never be master alone."""
    assert codes(registered(2, 3, asyncLearner="true")) == []
    mixed = config(3, registered(2, 3, asyncLearner="true"), asyncLearner="false")
    assert codes(mixed) == ["set-without-master"]


def test_name_server_when_it_knows_no_broker_then_it_is_told() -> None:
    """All brokers were killed, and nothing was said to be wrong."""
    empty = Facts(name_servers=(NameServerFacts(NAME_SERVERS[0]),))
    found = only(empty, "name-server-empty")
    assert (found.severity, found.found.subject) == (Severity.WARNING, NAME_SERVERS[0])
    # Of one set alone it is told otherwise; so is a name server that lacks what others know.
    assert codes(replace(empty, set_name=NAME, conf=HEALTHY.conf)) == []
    assert "name-server-empty" not in codes(name_server(0, sets={}))
    # Who says nothing knows we know not what.
    for silence in ({"refused": "code 3"}, {"silent": DOWN}, {"unreadable": "no JSON"}):
        one = replace(empty.name_servers[0], **silence)
        assert "name-server-empty" not in codes(Facts(name_servers=(one,)))


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


def test_replica_when_it_hangs_or_turns_away_then_it_is_not_to_be_started_a_second_time() -> None:
    """A process that stands still was also called down, with the advice to start or to forget it."""
    outside = info(in_sync=(replica(1), replica(2)), behind=(replica(3, alive=False),))
    inside = info(in_sync=(replica(1), replica(2), replica(3, alive=False)))
    full = Silent(True, "connection is lost", ended=True)
    for why in (HANGS, full):
        facts = broker(1, silent(3, why), ha=HaFacts(True, "", False, 1, (0,)))
        assert codes(sets(outside, facts)) == ["broker-hangs"]
        assert codes(sets(inside, silent(3, why))) == ["broker-hangs"]


def test_6342_when_the_sets_differ_by_members_alone_then_who_is_told() -> None:
    """The split that loses messages: one may be elected, and another one acknowledged."""
    two = sets(info((replica(1), replica(2)), (replica(3),)))

    def connected(*hosts: str) -> Facts:
        ports = tuple(f"{host}:{40_000 + at}" for at, host in enumerate(hosts))
        return broker(1, two, ha=HaFacts(True, "", False, 1, (0, 0), 1, ports))

    found = find(connected("10.0.1.3"), "sync-state-set-differs")
    assert f"counts 3 ({OTHER}) in sync and not 2 ({SLAVE})" in found.what
    assert f"1 ({MASTER}), 2 ({SLAVE})" in found.what
    well = ["slave-not-in-sync"]
    for hosts in ([], ["10.0.1.2"], ["10.9.9.9"], ["10.0.1.2", "10.0.1.3"]):
        assert codes(connected(*hosts)) == well, "only where another replica is certain"
    beside = replace(replica(3), broker_address="10.0.1.1:10921")
    shared = sets(info((replica(1), replica(2)), (beside,)), connected("10.0.1.1"))
    assert "sync-state-set-differs" not in codes(shared), "it is the master's host, too"
    # On one machine all of them are connected from one host.
    near = replace(connected("10.0.1.3"), resolved={"10.0.1.3": (), "10.0.1.2": ()})
    one_host = tuple(
        replace(r, broker_address=f"10.0.1.3:{r.broker_id}") for r in info().in_sync_replicas
    )
    same = info(one_host[:2], one_host[2:])
    assert "sync-state-set-differs" not in codes(sets(same, near))


def test_replica_when_it_is_dead_for_the_controllers_then_it_need_not_be_registered() -> None:
    """It works and is not heard: that is what has to be mended."""
    deaf = sets(info(in_sync=(replica(1), replica(2), replica(3, alive=False))))
    less = BrokerMemberGroup("DefaultCluster", NAME, {0: MASTER, 2: SLAVE})
    assert codes(name_server(1, deaf, sets={NAME: less})) == ["replica-not-heard"]
