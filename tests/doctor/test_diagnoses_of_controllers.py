"""Diagnoses of controllers, broker sets and name servers: named after the complaint behind each."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rmqha.doctor.facts import (
    BrokerFacts,
    ControllerFacts,
    ControllerView,
    Door,
    Facts,
    HaFacts,
    NameServerFacts,
    SetView,
    Silent,
)
from rmqha.remoting.bodies import BrokerMemberGroup
from tests.doctor.healthy import (
    BROKERS,
    CONTROLLERS,
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
    controller,
    diagnose,
    everywhere,
    group,
    info,
    name_server,
    only,
    replica,
    sets,
    silent,
)

MASTER_HA = HEALTHY.brokers[0].ha
assert MASTER_HA is not None


def view(number: int, **what: object) -> ControllerView:
    """One controller's view, changed."""
    found = HEALTHY.controllers[number].view
    assert found is not None
    return replace(found, **what)


def gone(number: int, facts: Facts = HEALTHY) -> Facts:
    """The cluster with one controller that does not answer."""
    one = ControllerFacts(CONTROLLERS[number], DOWN)
    rest = (c if c.address != one.address else one for c in facts.controllers)
    return replace(facts, controllers=tuple(rest))


def test_nothing_when_all_is_well_then_no_diagnosis() -> None:
    """An operator who is told of what is well reads no further the next time."""
    assert codes(HEALTHY) == []
    assert codes(Facts()) == []


# -- controllers -------------------------------------------------------------------------------


def test_controller_when_it_is_down_then_it_is_named() -> None:
    found = only(gone(2), "controller-unreachable").found
    assert found.subject == CONTROLLERS[2]
    assert "cannot connect" in found.what
    hung = replace(HEALTHY.controllers[2], silent=HANGS)
    facts = replace(HEALTHY, controllers=(*HEALTHY.controllers[:2], hung))
    assert "takes connections" in only(facts, "controller-unreachable").found.why


def test_dledger_25_when_nobody_leads_then_the_missing_majority_is_told() -> None:
    """Asymmetric partitions: elections for ever, and no leader."""
    facts = gone(0, gone(1, controller(2, leader_address="")))
    facts = replace(facts, sets={}, has_sets=False)
    assert codes(facts)[0] == "no-controller-leader"
    assert set(codes(facts)) == {"no-controller-leader", "controller-unreachable"}
    all_run = controller(0, leads=False)
    assert (
        "3 of 3"
        in only(replace(all_run, sets={}, has_sets=False), "no-controller-leader").found.why
    )


@pytest.mark.parametrize("why", [DOWN, HANGS])
def test_controllers_when_none_that_was_named_answers_then_it_is_not_said_that_nobody_leads(
    why: Silent,
) -> None:
    """The only one that was named was down, and a leader led."""
    down = replace(HEALTHY.controllers[1], silent=why, view=None, leads=False, peers={}, config={})
    facts = Facts(controllers=(down,))
    assert codes(facts) == ["no-controller-answers", "controller-unreachable"]
    found = diagnose(facts)[0].found
    assert CONTROLLERS[1] in found.what
    assert "cannot be told" in found.why
    assert "--controllers" in found.next_step
    many = replace(facts, controllers=tuple(replace(down, address=f"{n}:1") for n in range(7)))
    assert "and 2 more" in diagnose(many)[0].found.what
    # One that answers knows whether somebody leads, by the others' word or by their silence.
    assert codes(replace(facts, controllers=(*HEALTHY.controllers[:1], down))) == [
        "controller-unreachable"
    ]


def test_dledger_52_when_two_lead_then_both_and_their_terms_are_told() -> None:
    facts = controller(2, leads=True, view=view(2, term=3))
    found = only(facts, "two-controller-leaders").found
    assert f"{CONTROLLERS[0]} in term 4, {CONTROLLERS[2]} in term 3" in found.what


@pytest.mark.parametrize("named", ["", CONTROLLERS[2]])
def test_4800_when_a_controller_hears_another_leader_then_it_is_named(named: str) -> None:
    """An asymmetric partition: one of the controllers alone does not hear the leader."""
    found = only(controller(1, leader_address=named), "controller-follows-another").found
    assert found.subject == CONTROLLERS[1]
    assert (named or "nobody") in found.what


def test_4443_when_members_differ_then_what_each_says_is_told() -> None:
    """Operators cannot compare the views of Java's controllers."""
    peers = dict(list(HEALTHY.controllers[0].peers.items())[:2])
    found = only(controller(1, peers=peers), "controller-members-differ").found
    assert f"{CONTROLLERS[1]}: n0={CONTROLLERS[0]}, n1={CONTROLLERS[1]};" in found.what


def test_4443_when_views_of_one_entry_differ_then_the_set_is_named() -> None:
    other = {NAME: SetView(2, 3, (1, 2, 3), 7)}
    found = only(controller(1, view=view(1, sets=other)), "controller-views-differ").found
    assert found.subject == NAME
    assert "n0 and n1 and n2" in found.what
    # A node that is behind has another state by right, and so has one that was removed.
    assert codes(controller(1, view=view(1, sets=other, applied_index=89))) == []
    assert codes(controller(1, view=view(1, sets=other, role="removed"))) == ["controller-removed"]


def test_dledger_319_when_a_follower_stays_behind_then_by_how_much_is_told() -> None:
    facts = HEALTHY
    for number in (0, 2):
        facts = controller(
            number, facts, view=view(number, applied_index=2_000, commit_index=2_000)
        )
    assert "1910 entries behind" in only(facts, "controller-behind").found.what
    assert codes(controller(1, facts, view=view(1, applied_index=1_000))) == []


def test_dledger_52_when_a_controller_does_not_vote_then_it_is_told() -> None:
    found = only(controller(2, view=view(2, may_vote=False)), "controller-without-vote").found
    assert found.subject == CONTROLLERS[2]


def stores(*kinds: str) -> Facts:
    """Nobody leads, and the controllers' stores are these; a controller of none is down."""
    facts = HEALTHY
    for number, kind in enumerate(kinds):
        seen = view(number, standing=kind, may_vote=kind == "voter")
        facts = controller(number, facts, leads=False, leader_address="", view=seen)
    for number, kind in enumerate(kinds):
        facts = facts if kind else gone(number, facts)
    return replace(facts, sets={}, has_sets=False)


def test_first_start_when_a_member_is_missing_then_it_is_said_that_the_group_waits_for_it() -> None:
    """It looks like a group without a leader, and nothing is broken."""
    facts = stores("new", "new", "")
    assert set(codes(facts)) == {"controllers-not-founded", "controller-unreachable"}
    found = diagnose(facts)[0].found
    assert f"the stores of {CONTROLLERS[0]}, {CONTROLLERS[1]} are new" in found.what
    assert f"do not answer: {CONTROLLERS[2]}." in found.why
    assert "all of them answer here" in only(stores(*["new"] * 3), codes(facts)[0]).found.why


def test_majority_when_it_lost_its_stores_then_it_is_said_that_waiting_does_not_help() -> None:
    """Two disks lost in a new group's first second, or later: nobody may be elected."""
    lost = "controllers-lost-majority"
    found = only(stores("voter", "recovering", "recovering"), lost).found
    assert f"2 of 3 controllers lost their stores, and nobody leads: {CONTROLLERS[1]}" in found.what
    # One of three is caught up by the others, as soon as they have found a leader.
    assert lost not in codes(stores("voter", "voter", "recovering"))
    # Who is down may have a whole store.
    assert set(codes(stores("", "", "recovering"))) == {
        "no-controller-leader", "controller-unreachable", "controller-without-vote",
    }  # fmt: skip


def test_9082_when_the_group_is_known_by_loopback_then_brokers_elsewhere_are_named() -> None:
    """GetNextBrokerId fails: the leader is told as 127.0.0.1:8878."""
    peers = {"n0": "127.0.0.1:9878", "n1": CONTROLLERS[1], "n2": CONTROLLERS[2]}
    facts = HEALTHY
    for number in range(3):
        facts = controller(number, facts, peers=peers)
    assert set(codes(facts)) == {"controller-loopback", "controller-addr-differs"}
    alone = ControllerFacts("127.0.0.1:9878", leads=True, peers={"n0": "127.0.0.1:9878"})
    assert codes(Facts(controllers=(alone,))) == []


@pytest.mark.parametrize(
    ("named", "lacks", "strange"),
    [
        (CONTROLLERS[:2], CONTROLLERS[2], "nobody"),
        ((*CONTROLLERS, "10.0.0.9:9878"), "nobody", "10.0.0.9:9878"),
    ],
)
def test_6873_when_a_broker_names_others_than_the_members_then_both_are_told(
    named: tuple[str, ...], lacks: str, strange: str
) -> None:
    """A broker that lost controllers from its list heartbeats to the rest only."""
    found = only(config(3, controllerAddr=";".join(named)), "controller-addr-differs").found
    assert found.subject == OTHER
    assert f"lacks {lacks} and names {strange}" in found.what


def test_operator_70_when_controllers_have_names_then_the_same_place_is_the_same() -> None:
    """DNS names as addresses everywhere: c1 is 10.0.0.1."""
    named = ";".join(("c1:9878", *CONTROLLERS[1:]))
    facts = replace(everywhere(controllerAddr=named), resolved={"c1": ("10.0.0.1",)})
    assert codes(facts) == []
    elsewhere = replace(facts, resolved={"c1": ("10.9.9.9",)})
    assert set(codes(elsewhere)) == {"controller-addr-differs"}


def test_dashboard_233_when_a_name_server_is_given_for_a_controller_then_it_is_told() -> None:
    """All pages are empty: the ports of name server and controller were mixed up."""
    wrong = ControllerFacts(NAME_SERVERS[0], refused="code 3 request type 1005 not supported")
    facts = replace(HEALTHY, controllers=(*HEALTHY.controllers, wrong))
    assert only(facts, "not-a-controller").found.subject == NAME_SERVERS[0]
    server = NameServerFacts(CONTROLLERS[0], refused="code 3 request type 106 not supported")
    facts = replace(HEALTHY, name_servers=(*HEALTHY.name_servers, server))
    assert only(facts, "not-a-name-server").found.subject == CONTROLLERS[0]


def test_4771_when_unclean_elections_are_allowed_then_it_is_noted() -> None:
    facts = controller(0, config={"enableElectUncleanMaster": "true"})
    assert only(facts, "unclean-elections-allowed").severity.name == "NOTE"


# -- broker sets -------------------------------------------------------------------------------


def test_6382_when_a_set_has_no_master_then_who_may_be_elected_is_told() -> None:
    """Inactive masters were not elected anew when a notification was lost."""
    alive = info(in_sync=(replica(1, alive=False), replica(2)), behind=(replica(3),), master=None)
    found = only(sets(alive, silent(1)), "set-without-master").found
    assert f"hear 2 ({SLAVE}); outside it they hear 3 ({OTHER})" in found.why
    assert "--dry-run" in found.next_step
    others = (replica(2), replica(3))
    dead = info(in_sync=(replica(1, alive=False),), behind=others, master=None)
    assert (
        "Start a broker of the SyncStateSet"
        in only(sets(dead, silent(1)), "set-without-master").found.next_step
    )


@pytest.mark.parametrize("hangs", [False, True])
def test_10416_when_the_master_is_silent_and_still_master_then_it_is_told(hangs: bool) -> None:
    """JRaft's scan never runs, so that a hung broker is never detected."""
    dead = info(in_sync=(replica(1, alive=False), replica(2), replica(3)))
    facts = sets(dead, silent(1, HANGS if hangs else DOWN))
    wanted = {"master-not-alive", "broker-hangs"} if hangs else {"master-not-alive"}
    assert set(codes(facts)) == wanted


def test_10812_when_a_broker_works_and_is_not_heard_then_whom_it_tells_is_told() -> None:
    """Heartbeats went to a follower or learner only: the slave is never alive."""
    deaf = info(in_sync=(replica(1), replica(2), replica(3, alive=False)))
    facts = sets(deaf, config(3, controllerAddr=";".join(CONTROLLERS)))
    found = only(facts, "replica-not-heard").found
    assert CONTROLLERS[0] in found.why


def test_operator_213_when_alive_is_false_at_the_leader_then_it_is_no_followers_word() -> None:
    """A follower of Java's says alive=false of everybody; only the leader's word counts here."""
    deaf = info(in_sync=tuple(replica(n, alive=False) for n in BROKERS))
    assert set(codes(sets(deaf))) == {"master-not-alive", "replica-not-heard"}


def test_replica_when_it_is_down_outside_the_set_then_a_copy_is_missed() -> None:
    less = info(in_sync=(replica(1), replica(2)), behind=(replica(3, alive=False),))
    facts = broker(1, silent(3), ha=replace(MASTER_HA, in_sync_slaves=1, lags=(0,)))
    assert only(sets(less, facts), "replica-down").found.subject == f"{NAME} 3"
    # One that controllers hear lives, at an address that is not reached from here.
    heard = info(in_sync=(replica(1), replica(2)), behind=(replica(3),))
    assert codes(sets(heard, facts)) == ["address-not-reachable"]


def test_9897_when_a_dead_replica_stays_in_the_set_then_writes_wait_for_it() -> None:
    """FLUSH_SLAVE_TIMEOUT far beyond 20 s: dead ids stay in the SyncStateSet."""
    dead = info(in_sync=(replica(1), replica(2), replica(3, alive=False)))
    found = only(sets(dead, silent(3)), "dead-in-sync-replica").found
    assert "FLUSH_SLAVE_TIMEOUT" in found.why


def test_7219_when_the_master_is_alone_while_slaves_read_then_it_is_told() -> None:
    """The task that expands and shrinks the SyncStateSet died."""
    alone = info(in_sync=(replica(1),), behind=(replica(2), replica(3)))
    facts = broker(1, ha=HaFacts(True, in_sync_slaves=0, lags=(0, 12)))
    facts = everywhere_but_ha(facts, minInSyncReplicas="1")
    found = only(sets(alone, facts), "sync-state-set-of-one").found
    assert "0 to 12 bytes behind" in found.what


def everywhere_but_ha(facts: Facts, **keys: str) -> Facts:
    """Keys of all brokers' configurations changed, in these facts."""
    for broker_id in BROKERS:
        facts = config(broker_id, facts, **keys)
    return facts


def test_slave_when_it_follows_and_is_not_in_sync_then_its_lag_is_told() -> None:
    """What haMaxTimeSlaveNotCatchup and haMaxGapNotInSync decide about is shown with the figures."""
    less = info(in_sync=(replica(1), replica(2)), behind=(replica(3),))
    facts = broker(1, ha=replace(MASTER_HA, in_sync_slaves=1))
    facts = broker(3, facts, runtime={"commitLogMaxOffset": "1200"})
    found = only(sets(less, facts), "slave-not-in-sync").found
    assert "3800 bytes behind" in found.what


@pytest.mark.parametrize(
    ("keys", "subject", "never"),
    [
        ({"minInSyncReplicas": "4"}, "minInSyncReplicas", True),
        ({"allAckInSyncStateSet": "false", "inSyncReplicas": "4"}, "inSyncReplicas", True),
    ],
)
def test_7017_when_no_write_can_be_acknowledged_then_the_key_is_told(
    keys: dict[str, str], subject: str, never: bool
) -> None:
    """The combination that protects against an isolated master may also stop all writes."""
    found = only(everywhere(**keys), "writes-impossible").found
    assert found.subject == f"{NAME} {subject}"
    assert ("never" in found.why) is never


def test_7017_when_all_must_acknowledge_then_in_sync_replicas_does_not_count() -> None:
    assert codes(everywhere(inSyncReplicas="4")) == []
    assert codes(everywhere(inSyncReplicas="3", allAckInSyncStateSet="false")) == []
    auto = everywhere(inSyncReplicas="4", allAckInSyncStateSet="false",
                      enableAutoInSyncReplicas="true")  # fmt: skip
    assert codes(auto) == []


@pytest.mark.parametrize("word", ["TRUE", "True", " true "])
@pytest.mark.parametrize("key", ["allAckInSyncStateSet", "enableAutoInSyncReplicas"])
def test_7017_when_the_key_has_capitals_then_it_counts_as_for_the_broker(
    key: str, word: str
) -> None:
    """A broker takes the word in any case, and shows it as it was given."""
    facts = everywhere(**{"allAckInSyncStateSet": "false", "inSyncReplicas": "4", key: word})
    assert codes(facts) == []


def test_7017_when_all_must_acknowledge_in_capitals_then_the_master_is_not_alone() -> None:
    facts = everywhere(allAckInSyncStateSet="TRUE", minInSyncReplicas="1", inSyncReplicas="1")
    assert codes(facts) == []


@pytest.mark.parametrize(
    ("key", "word"),
    [("allAckInSyncStateSet", "TRUE"), ("inSyncReplicas", "01"), ("minInSyncReplicas", " 2")],
)
def test_7017_when_one_promise_is_written_in_two_ways_then_nothing_differs(
    key: str, word: str
) -> None:
    assert codes(config(2, **{key: word})) == []


def test_7017_when_the_master_acknowledges_alone_then_it_is_noted() -> None:
    """An isolated room loses messages: nothing but these keys protects Java's brokers."""
    facts = everywhere(allAckInSyncStateSet="false", minInSyncReplicas="1")
    found = only(facts, "acknowledged-by-master-alone")
    assert found.severity.name == "NOTE"
    assert codes(everywhere(allAckInSyncStateSet="false", inSyncReplicas="2")) == []


def test_7017_when_replicas_promise_different_things_then_the_key_is_told() -> None:
    found = only(config(2, allAckInSyncStateSet="false"), "replicas-configured-differently").found
    assert found.subject == f"{NAME} allAckInSyncStateSet"


def test_6342_when_master_and_controllers_mean_different_sets_then_both_are_told() -> None:
    """Same epoch, different SyncStateSet."""
    facts = broker(1, ha=replace(MASTER_HA, in_sync_slaves=1))
    assert "counts 2 in sync, the controllers 3" in only(facts, "sync-state-set-differs").found.what


@pytest.mark.parametrize("door", [None, Door.TLS])
def test_dashboard_233_when_something_else_listens_there_then_it_is_told(door: Door | None) -> None:
    """The port of a status page was a name server that was down, as a warning, to be started."""
    page = Silent(True, "it is an HTTP port", door, ended=True, is_other=True)
    down = NameServerFacts(NAME_SERVERS[0], page)
    facts = replace(HEALTHY, name_servers=(down, HEALTHY.name_servers[1]))
    wanted = "tls-differs" if door else "not-a-name-server"
    found = only(facts, wanted)
    assert found.severity.name == "ERROR"
    assert "it is an HTTP port" in found.found.what + found.found.why
    odd = ControllerFacts("10.0.0.7:8080", page)
    facts = replace(HEALTHY, controllers=(*HEALTHY.controllers, odd))
    assert codes(facts) == ["tls-differs" if door else "not-a-controller"]


def test_servers_when_they_end_connections_then_nothing_is_said_of_silence() -> None:
    """It takes connections and does not answer, it said of one that had ended them."""
    full = Silent(True, "connection is lost", ended=True)
    facts = replace(
        HEALTHY, controllers=(*HEALTHY.controllers[:2], ControllerFacts(CONTROLLERS[2], full))
    )
    found = only(facts, "controller-unreachable").found
    assert "it takes connections and ends them" in found.why
    assert "removeController -a 10.0.0.1:9878 -i n2`" in found.next_step
    hung = replace(
        HEALTHY, name_servers=(NameServerFacts(NAME_SERVERS[0], full), *HEALTHY.name_servers[1:])
    )
    assert "look at the process" in only(hung, "name-server-unreachable").found.next_step


# -- name servers ------------------------------------------------------------------------------


def test_name_server_when_it_is_down_then_it_is_named() -> None:
    facts = replace(HEALTHY, name_servers=(
        NameServerFacts(NAME_SERVERS[0], DOWN), HEALTHY.name_servers[1],
    ))  # fmt: skip
    assert only(facts, "name-server-unreachable").found.subject == NAME_SERVERS[0]


def test_4857_when_a_broker_is_not_registered_then_the_name_server_is_named() -> None:
    """Brokers that did not register again."""
    less = BrokerMemberGroup("DefaultCluster", NAME, {0: MASTER, 2: SLAVE})
    facts = name_server(1, sets={NAME: less})
    found = only(facts, "broker-not-registered").found
    assert found.subject == f"{NAME} 3 at {NAME_SERVERS[1]}"
    empty = name_server(1, sets={})
    assert codes(empty) == ["broker-not-registered"] * 3


def test_6316_when_a_name_server_names_another_master_then_both_are_told() -> None:
    """Two masters at the name server: the last registration won."""
    swapped = group(id0=SLAVE, id2=MASTER)
    found = only(name_server(0, sets={NAME: swapped}), "name-server-names-another-master").found
    assert f"has {SLAVE} as master, the controllers {MASTER} in epoch 3" in found.what


def test_dashboard_383_when_one_address_has_two_ids_then_it_is_told() -> None:
    """A broker that consoles show as undefined."""
    found = only(name_server(0, sets={NAME: group(id7=SLAVE)}), "address-under-two-ids").found
    assert f"{SLAVE} is registered as 2 and 7" in found.what


def test_exporter_36_when_name_servers_differ_about_an_unknown_set_then_it_is_told() -> None:
    one = BrokerMemberGroup("DefaultCluster", "old", {0: "10.0.9.1:10911"})
    facts = Facts(name_servers=(
        NameServerFacts(NAME_SERVERS[0], sets={"old": one}), NameServerFacts(NAME_SERVERS[1]),
    ), brokers=(BrokerFacts("10.0.9.1:10911", "old"),))  # fmt: skip
    assert "names 10.0.9.1:10911" in only(facts, "name-servers-differ").found.what
