"""Diagnoses of brokers and of replication: named after the complaint behind each."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rmqha.doctor.diagnosis import Severity
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
    diagnose,
    find,
    group,
    info,
    name_server,
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
    facts = broker(3, epochs=cache(3, name="broker-b"))
    found = only(facts, "address-of-another-broker").found
    assert (
        f"cleanBrokerMetadata -a 10.0.0.1:9878 -c DefaultCluster -bn {NAME} -b 3`"
        in found.next_step
    )
    unknown = replace(facts, sets={}, has_sets=False, identity=None)
    assert "a name server forgets" in find(unknown, "address-of-another-broker").next_step
    assert "known as a broker of broker-a, and says that it is of broker-b" in found.what


def test_6316_when_two_act_as_master_then_both_and_their_epochs_are_told() -> None:
    """Two masters: the old one is cut off, or has not heard."""
    old = cache(0, (EpochEntry(1, 0), EpochEntry(2, 1_500)))
    facts = broker(3, ha=HaFacts(True), epochs=old)
    found = only(facts, "two-masters").found
    assert f"{MASTER} (epoch 3), {OTHER} (epoch 2) all act as master" in found.what
    assert f"have {MASTER} as master" in found.why
    assert "Stop the one that is not the controllers' master now" in found.next_step


def test_6316_when_controllers_name_no_master_or_are_not_heard_then_none_is_to_be_stopped() -> None:
    """By the words of the other case both would have been stopped."""
    two = broker(2, ha=HaFacts(True))
    alone = replace(two, sets={}, has_sets=False, controllers=(), conf=None, identity=None)
    found = only(alone, "two-masters").found
    assert "No controller tells of the set here" in found.why
    assert found.next_step.startswith("Stop none of them yet.")
    found = find(sets(info(master=None), two), "two-masters")
    assert "have nobody as master, and are in epoch 3" in found.why
    assert found.next_step.startswith("Stop the producers, and none of these brokers yet.")


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


COPY = "10.0.1.9:10911"
"""Where a process runs whose store was copied from another broker's."""


@pytest.mark.parametrize("of", [1, 2])
def test_7414_when_the_copy_takes_the_others_place_in_the_tables_then_the_id_is_told(
    of: int,
) -> None:
    """Controllers have the copy, name servers the original: it was not registered, they said."""
    copied = replace(replica(of), broker_address=COPY)
    members = tuple(copied if n == of else replica(n) for n in BROKERS)
    known = replace(info(members), master_address=COPY if of == 1 else MASTER)
    one = next(b for b in HEALTHY.brokers if b.address == BROKERS[of])
    facts = sets(known, replace(HEALTHY, brokers=(*HEALTHY.brokers, replace(one, address=COPY))))
    facts = replace(facts, moved={(NAME, of): (BROKERS[of], COPY)}, conf=None, identity=None)
    found = find(facts, "broker-id-twice")
    assert f"{BROKERS[of]} and {COPY} both are broker {of}" in found.what
    assert not {"broker-not-registered", "broker-address-changes"} & set(codes(facts))
    # In the first look only the tables differ; then the two are known by their own word.
    if of == 2:
        assert codes(replace(facts, moved={})) == ["broker-id-twice"]


def test_7414_when_an_address_changes_between_looks_then_both_are_told() -> None:
    """The other process is not reached from here, or the broker was started elsewhere just now."""
    facts = replace(HEALTHY, moved={(NAME, 2): (COPY, SLAVE)})
    found = only(facts, "broker-address-changes")
    assert f"had broker 2 at {COPY} and at {SLAVE}" in found.found.what
    assert found.severity is Severity.WARNING
    registered = group(id2=COPY)
    unheard = name_server(
        0, name_server(1, facts, sets={NAME: registered}), sets={NAME: registered}
    )
    assert codes(unheard) == ["broker-address-changes"]
    assert codes(replace(unheard, moved={})) == ["broker-not-registered"] * 2


@pytest.mark.parametrize(("ahead_ms", "said"), [(61_000, "ahead of"), (-61_000, "behind")])
def test_8006_when_a_clock_is_wrong_then_by_how_much_is_told(ahead_ms: int, said: str) -> None:
    """Delayed messages are delivered by the clock of whoever is master."""
    found = only(broker(3, clock_ahead_ms=ahead_ms), "clock-skew").found
    assert f"61 s {said}" in found.what
    assert codes(broker(3, clock_ahead_ms=5_001)) == ["clock-skew"]
    assert codes(broker(3, clock_ahead_ms=4_900)) == []
    assert codes(broker(3, clock_ahead_ms=-4_900)) == []


def test_6468_when_a_write_is_stuck_then_for_how_long_is_told() -> None:
    """No switch when disk I/O is stuck; dledger #287 is the same."""
    stuck = {"commitLogMaxOffset": str(END), "pageCacheLockTimeMills": "31000"}
    found = only(broker(1, runtime=stuck), "disk-stuck").found
    assert "31000 ms" in found.what
    assert "then stop this broker" in found.next_step
    assert codes(broker(1, runtime={**stuck, "pageCacheLockTimeMills": "2001"})) == ["disk-stuck"]
    assert codes(broker(1, runtime={**stuck, "pageCacheLockTimeMills": "2000"})) == []
    slaves = only(broker(2, runtime=stuck), "disk-stuck").found.next_step
    assert "electMaster" not in slaves, "it is not the master who stands still"
    alone = sets(info((replica(1),), (replica(2), replica(3))), broker(1, runtime=stuck))
    assert "keep this broker" in find(alone, "disk-stuck").next_step


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
