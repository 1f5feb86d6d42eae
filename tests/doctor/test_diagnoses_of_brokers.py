"""Diagnoses of brokers and of replication: named after the complaint behind each."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rmqha.doctor.examine import diagnose
from rmqha.doctor.facts import BrokerFacts, Facts, HaFacts, Silent
from rmqha.ha.epochs import EpochEntry
from tests.doctor.healthy import (
    BROKERS,
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
    conf,
    config,
    info,
    only,
    replica,
    sets,
    silent,
    store,
)

SLAVE_HA = HEALTHY.brokers[1].ha
assert SLAVE_HA is not None


def test_6468_when_a_broker_hangs_then_its_address_is_told() -> None:
    """Writes hang and heartbeats are fine: who looks at connections sees nothing."""
    facts = silent(3, HANGS)
    assert only(facts, "broker-hangs").found.subject == f"{NAME} {OTHER}"


def test_broker_when_it_ends_its_connections_then_nobody_is_told_to_kill_it() -> None:
    """One at connectionsMax serves those that are in; it hangs as little as it answers."""
    found = only(silent(3, Silent(True, "connection is lost", ended=True)), "broker-hangs").found
    assert "gives none of them an answer: connection is lost" in found.what
    assert "connectionsMax" in found.why
    assert "kill it" not in found.next_step


def test_operator_218_when_a_living_broker_cannot_be_reached_then_its_address_is_wrong() -> None:
    """Wrong Pod addresses: the controllers hear it, and clients are given nonsense."""
    found = only(silent(3), "address-not-reachable").found
    assert found.subject == f"{NAME} {OTHER}"
    assert "brokerIP1" in found.next_step


def test_operator_218_when_no_controllers_are_asked_then_a_registered_address_counts() -> None:
    """``check -n`` of masters and slaves: it was silent about a broker that nobody reaches."""
    facts = replace(silent(1), controllers=(), sets={}, has_sets=False, conf=None, identity=None)
    found = only(facts, "address-not-reachable").found
    assert found.what.startswith("name servers send clients to this broker")
    # Where controllers know the set, they say whether it lives.
    down = info((replica(2), replica(3)), (replica(1, alive=False),), 2)
    assert "address-not-reachable" not in codes(sets(down, silent(1)))


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "localhost", "[::1]"])
def test_operator_202_when_a_broker_is_known_by_loopback_then_it_is_told(host: str) -> None:
    """The cluster is unusable after a move: brokerIP1 is the own machine to everybody."""
    facts = replace(HEALTHY, brokers=(*HEALTHY.brokers, BrokerFacts(f"{host}:10911", "other")))
    assert f"{host}:10911" in only(facts, "loopback-advertised").found.what


def test_operator_202_when_all_is_on_one_machine_then_loopback_is_right() -> None:
    assert codes(Facts(brokers=(BrokerFacts("127.0.0.1:10911", NAME),))) == []


def test_operator_202_when_the_file_says_loopback_then_it_is_told_before_a_start() -> None:
    assert HEALTHY.conf is not None
    facts = replace(HEALTHY, conf=replace(HEALTHY.conf, address="127.0.0.1:10911"))
    assert "loopback-advertised" in codes(facts)


def test_operator_70_when_an_address_is_another_brokers_then_both_names_are_told() -> None:
    found = only(broker(3, epochs=cache(3, name="broker-b")), "address-of-another-broker").found
    assert "known as a broker of broker-a, and says that it is of broker-b" in found.what


def test_6316_when_two_act_as_master_then_both_and_their_epochs_are_told() -> None:
    """Two masters: the old one is cut off, or has not heard."""
    old = cache(0, (EpochEntry(1, 0), EpochEntry(2, 1_500)))
    facts = broker(3, ha=HaFacts(True), epochs=old)
    found = only(facts, "two-masters").found
    assert f"{MASTER} (epoch 3), {OTHER} (epoch 2) all act as master" in found.what
    assert f"have {MASTER} as master" in found.why


def test_6813_when_the_master_does_not_act_as_one_then_who_does_is_told() -> None:
    """The role in the file differs from the one that is shown."""
    idle = broker(1, ha=HaFacts(False))
    assert "nobody acts as master" in only(idle, "wrong-broker-acts-as-master").found.what
    other = broker(3, idle, ha=HaFacts(True, in_sync_slaves=2, lags=(0, 0)))
    found = only(other, "wrong-broker-acts-as-master").found
    assert f"have {MASTER} as master, and {OTHER} acts as master" in found.what


def test_7414_when_a_store_was_copied_with_its_identity_then_the_id_is_told() -> None:
    found = only(broker(3, epochs=cache(2)), "broker-id-twice").found
    assert f"{SLAVE} and {OTHER} both are broker 2" in found.what


@pytest.mark.parametrize(("ahead_ms", "said"), [(61_000, "before"), (-61_000, "behind")])
def test_8006_when_a_clock_is_wrong_then_by_how_much_is_told(ahead_ms: int, said: str) -> None:
    """Delayed messages are delivered by the clock of whoever is master."""
    found = only(broker(3, clock_ahead_ms=ahead_ms), "clock-skew").found
    assert f"61 s {said}" in found.what
    assert codes(broker(3, clock_ahead_ms=4_900)) == []
    assert codes(broker(3, clock_ahead_ms=-4_900)) == []


def test_6468_when_a_write_is_stuck_then_for_how_long_is_told() -> None:
    """No switch when disk I/O is stuck; dledger #287 is the same."""
    stuck = {"commitLogMaxOffset": str(END), "pageCacheLockTimeMills": "31000"}
    assert "31000 ms" in only(broker(1, runtime=stuck), "disk-stuck").found.what


def test_messages_when_they_are_damaged_or_differ_then_how_many_is_told() -> None:
    """Bits that flipped are seen by nobody else until a consumer meets them."""
    damaged = {"commitLogMaxOffset": str(END), "recordsDamaged": "3", "recordsDiffering": "0"}
    assert "3 messages" in only(broker(2, runtime=damaged), "records-damaged").found.what
    differing = {"commitLogMaxOffset": str(END), "recordsDamaged": "0", "recordsDiffering": "2"}
    assert "not the same" in only(broker(2, runtime=differing), "records-damaged").found.what
    assert codes(broker(2, runtime={**damaged, "recordsDamaged": "0"})) == []
    assert codes(broker(2, runtime={**damaged, "recordsDamaged": "many"})) == []


def test_6435_when_one_broker_is_without_controllers_then_it_is_told() -> None:
    found = only(config(3, enableControllerMode="false"), "controller-mode-mixed").found
    assert f"{OTHER} false" in found.what
    assert "controller-mode-mixed" in codes(conf(enableControllerMode="false"))


def test_6586_when_controllers_forgot_a_registered_set_then_it_is_told() -> None:
    """Stale or lost controller data: the advice of old was to delete directories."""
    facts = replace(HEALTHY, sets={}, identity=None)
    assert codes(facts) == ["set-unknown-to-controllers"] * 2
    assert "Replacing Java controllers" in facts_step(facts)
    assert codes(replace(facts, has_sets=False)) == []


def facts_step(facts: Facts) -> str:
    """The next step of the first diagnosis."""
    return diagnose(facts)[0].found.next_step


# -- replication -------------------------------------------------------------------------------


def test_5633_when_a_slave_reads_from_an_old_master_then_both_addresses_are_told() -> None:
    """registerBroker ignored whether the master lives."""
    ha = replace(SLAVE_HA, master_address="10.0.1.3:10912")
    found = only(broker(2, ha=ha), "slave-of-old-master").found
    assert "reads from 10.0.1.3:10912, and the master serves slaves at 10.0.1.1:10912" in found.what


@pytest.mark.parametrize(
    ("followed", "said"), [("", "no master"), ("10.0.1.1:10912", "no transfer from")]
)
def test_6306_when_a_slave_copies_nothing_then_it_is_told(followed: str, said: str) -> None:
    """The handshake ends in a loop of connections."""
    ha = HaFacts(False, followed, transfers=False)
    assert said in only(broker(2, ha=ha), "slave-not-replicating").found.what


def test_8875_when_there_are_more_connections_than_slaves_then_they_are_counted() -> None:
    facts = broker(1, ha=HaFacts(True, in_sync_slaves=2, lags=(0, 0, 99)))
    assert "3 HA connections for 2 slaves" in only(facts, "too-many-ha-connections").found.what


def test_9689_when_the_master_lacks_its_epoch_then_both_numbers_are_told() -> None:
    """Endless Failed to find epochEntry; no epoch file is to be deleted."""
    found = only(broker(1, epochs=cache(0, EPOCHS[:1])), "master-epoch-missing").found
    assert "newest epoch is 1, the controllers' is 3" in found.what


def test_6586_when_a_broker_is_ahead_of_the_controllers_then_theirs_is_the_older_memory() -> None:
    later = (*EPOCHS, EpochEntry(9, 4_000))
    found = only(broker(2, epochs=cache(2, later)), "epoch-ahead-of-controllers").found
    assert found.subject == f"{NAME} {SLAVE}"
    assert "has epoch 9, and the controllers are at 3" in found.what
    assert only(store(epochs=later), "epoch-ahead-of-controllers").found.subject == f"{NAME} /store"


def test_9942_when_epochs_conflict_then_where_each_begins_is_told() -> None:
    """Epoch files differ with equal offsets after a switch with an empty log and delays."""
    other = (EpochEntry(1, 0), EpochEntry(3, 1_800))
    found = only(broker(2, epochs=cache(2, other)), "epochs-conflict").found
    assert "epoch 3 begins at 1800 in the slave's log and at 2000 in the master's" in found.what
    nothing = (EpochEntry(2, 700),)
    found = only(broker(2, epochs=cache(2, nothing)), "epochs-conflict").found
    assert "no epoch in common" in found.what


def test_9804_when_a_slave_lacks_topics_then_they_are_named() -> None:
    """Topics lost after a switch: No topic in this broker."""
    found = only(broker(2, topics=frozenset({"Orders"})), "topics-missing").found
    assert "lacks 1 topics of its master: Payments" in found.what
    assert codes(broker(2, topics=None)) == []


def test_9984_when_a_slave_lost_many_topics_then_some_are_named() -> None:
    """A slave deleted topics on a partial answer."""
    many = frozenset(f"T{n}" for n in range(9))
    facts = broker(1, broker(2, broker(3, topics=many), topics=frozenset()), topics=many)
    assert only(facts, "topics-missing").found.what.endswith("T0, T1, T2, T3, T4 and 4 more")


def test_broker_when_it_answers_for_another_set_then_it_is_no_evidence_about_this_one() -> None:
    """A stranger's epochs and role say nothing about this set."""
    facts = broker(3, ha=HaFacts(True), epochs=cache(0, (EpochEntry(99, 0),), name="broker-b"))
    assert codes(facts) == ["address-of-another-broker"]


@pytest.mark.parametrize("broker_id", BROKERS)
def test_unknown_when_a_broker_tells_nothing_then_rules_keep_still(broker_id: int) -> None:
    """Brokers out of controller mode refuse 1007 (#7400), and older ones 907."""
    blank = {"ha": None, "epochs": None, "topics": None, "runtime": {}, "clock_ahead_ms": None}
    assert codes(broker(broker_id, **blank)) == []


def test_rules_when_there_are_two_masters_then_the_chosen_one_is_not_blamed_again() -> None:
    """One cause, one diagnosis."""
    facts = broker(1, ha=HaFacts(False))
    for broker_id in (2, 3):
        facts = broker(broker_id, facts, ha=HaFacts(True))
    assert codes(facts) == ["two-masters"]


def test_file_when_it_is_of_another_set_then_it_is_not_compared_with_this_one() -> None:
    other = conf(brokerName="broker-b", enableControllerMode="false", controllerAddr="")
    facts = store(other, epochs=(*EPOCHS, EpochEntry(9, 4_000)))
    assert not {"controller-mode-mixed", "epoch-ahead-of-controllers"} & set(codes(facts))
