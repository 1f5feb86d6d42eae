"""Command lines that are advised: whole, and of a kind that this broker takes."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rmqha.broker.admin.config_changes import LIVE
from rmqha.doctor import advice
from rmqha.doctor.diagnosis import Diagnosis, Found, Severity
from rmqha.doctor.facts import ConfFacts, Facts
from tests.doctor.advised import lines_of, need_typed
from tests.doctor.healthy import (
    BROKERS,
    CLUSTER,
    CONTROLLERS,
    DOWN,
    HEALTHY,
    MASTER,
    NAME,
    NAME_SERVERS,
    OTHER,
    SLAVE,
    broker,
    cache,
    config,
    controller,
    diagnose,
    everywhere,
    find,
    info,
    java,
    name_server,
    replica,
    sets,
    silent,
)

BY_CODE = {
    "set-without-master": sets(info((replica(1, alive=False), replica(2)), (), None), silent(1)),
    "replica-down": sets(info((replica(1), replica(2)), (replica(3, alive=False),)), silent(3)),
    "master-epoch-missing": broker(1, epochs=cache(0, ())),
    "disk-stuck": broker(1, runtime={"pageCacheLockTimeMills": "9000"}),
}
ASK = ["-a", CONTROLLERS[0], "-c", CLUSTER, "-bn", NAME]
LINES = {
    "set-without-master": ["electMaster", *ASK, "-b", "2", "--dry-run"],
    "replica-down": ["cleanBrokerMetadata", *ASK, "-b", "3"],
    "master-epoch-missing": ["switchMaster", *ASK, "-b", "2"],
    "disk-stuck": ["electMaster", *ASK, "-b", "2"],
}


@pytest.mark.parametrize("code", LINES)
def test_line_when_the_doctor_knows_who_is_meant_then_it_is_whole(code: str) -> None:
    """They had to be completed at night, and one of the words that were asked for was -l."""
    found = next(one for one in diagnose(BY_CODE[code]) if one.code == code)
    assert lines_of(found)[0] == ["bin/mqadmin", *LINES[code]]


def said(text: str) -> Diagnosis:
    """A diagnosis with this advice."""
    return Diagnosis(Severity.ERROR, "some-code", Found("a", "b", "c", text))


@pytest.mark.parametrize(
    "text",
    [
        "`bin/mqadmin electMaster -bn broker-a -b ID --dry-run`", "mqadmin electMaster does it.",
        "`bin/mqadmin cleanBrokerMetadata -a a:1 -bn broker-a -b 3`",
        f"`bin/mqadmin updateBrokerConfig -b {MASTER} -k minInSyncReplicas -v 2`",
        "Empty it (identity included).", "Empty it ({EMPTYING}).",
    ],
)  # fmt: skip
def test_line_when_it_is_none_then_the_test_of_all_diagnoses_fails(text: str) -> None:
    """What need_typed lets through, nobody looks at."""
    with pytest.raises(AssertionError):
        need_typed(said(text), HEALTHY)


def test_line_when_nothing_tells_a_name_then_a_word_stands_for_it() -> None:
    line = advice.elect_master(Facts(), NAME, 2)
    assert line == "`bin/mqadmin electMaster -a CONTROLLER:9878 -c CLUSTER -bn broker-a -b 2`"
    assert "NAMESERVER:9876" in advice.broker_epochs(Facts(), NAME)
    need_typed(said(line + advice.broker_epochs(Facts(), NAME)), Facts())


def test_line_when_no_controller_leads_then_those_that_answer_are_to_be_asked() -> None:
    facts = controller(0, controller(1, silent=DOWN), leads=False)
    assert advice.known_controllers(facts) == f"{CONTROLLERS[0]};{CONTROLLERS[2]}"
    down = name_server(0, silent=DOWN)
    assert advice.known_name_servers(down) == NAME_SERVERS[1]
    nobody = name_server(1, down, silent=DOWN)
    assert advice.known_name_servers(nobody) == ";".join(NAME_SERVERS)


def test_cluster_when_no_broker_answers_then_name_servers_or_the_file_tell_it() -> None:
    facts = HEALTHY
    for broker_id in BROKERS:
        facts = silent(broker_id, facts=facts)
    assert advice.cluster_of(facts, NAME) == CLUSTER
    assert advice.cluster_of(replace(facts, name_servers=()), NAME) == "DefaultCluster"
    assert advice.cluster_of(replace(facts, name_servers=(), conf=None), NAME) == "CLUSTER"


@pytest.mark.parametrize("key", ["minInSyncReplicas", "controllerAddr", "namesrvAddr"])
def test_key_when_a_broker_of_ours_reads_it_at_its_start_then_a_restart_is_told(key: str) -> None:
    """Of what was advised to set by updateBrokerConfig, brokers of ours refused most."""
    text = advice.change_keys(HEALTHY, NAME, HEALTHY.brokers, {key: "1"})
    assert ("updateBrokerConfig" in text) is (key in LIVE)
    assert ("Restart one at a time, slaves first" in text) is (key not in LIVE)
    assert ("switchMaster -a" in text) is (key not in LIVE), "the master's turn comes last"
    of_slave = advice.change_keys(HEALTHY, NAME, HEALTHY.brokers[1:2], {key: "1"})
    assert "switchMaster" not in of_slave
    need_typed(said(text), HEALTHY)


def test_key_when_brokers_are_of_both_kinds_then_each_is_told_its_own_way() -> None:
    facts = java(2)
    text = advice.change_keys(facts, NAME, facts.brokers, {"minInSyncReplicas": "1"})
    assert f"updateBrokerConfig -b {SLAVE} -k minInSyncReplicas -v 1`" in text
    assert f"Write minInSyncReplicas=1 into the file of {MASTER}, {OTHER}" in text
    everyone = java(1, 2, 3)
    text = advice.change_keys(everyone, NAME, everyone.brokers, {"minInSyncReplicas": "1"})
    assert "Restart" not in text
    assert text.count("updateBrokerConfig") == 3


def test_key_when_nobody_else_is_in_sync_then_no_switch_is_told() -> None:
    alone = sets(info((replica(1),), (replica(2), replica(3))))
    text = advice.change_keys(alone, NAME, alone.brokers, {"minInSyncReplicas": "1"})
    assert "switchMaster" not in text
    assert "The master comes last" in text


def test_successor_when_several_are_in_sync_then_the_newest_log_is_chosen() -> None:
    short = broker(2, runtime={"commitLogMaxOffset": "10"})
    found = advice.successor(short, NAME)
    assert found is not None
    assert found.broker_id == 3
    assert advice.successor(sets(info((replica(1), replica(2, alive=False)))), NAME) is None
    assert advice.successor(HEALTHY, "unknown") is None


BY_DNS = {"fetchNameSrvAddrByDnsLookup": "true", "namesrvAddr": "namesrv:9876"}
BY_SERVER = {
    "fetchNamesrvAddrByAddressServer": "true", "rmqAddressServerDomain": "env.example",
    "namesrvAddr": "",
}  # fmt: skip
CONTROLLERS_BY_DNS = {
    "fetchControllerAddrByDnsLookup": "true", "controllerAddr": "controllers:9878"
}  # fmt: skip


@pytest.mark.parametrize(
    ("keys", "knows", "advised"),
    [
        (BY_DNS, "Its namesrvAddr is namesrv:9876, a name that it looks up.",
         f"give namesrv:9876 in DNS the addresses of all, {', '.join(NAME_SERVERS)} "),
        (BY_SERVER, "It has its name servers from the address server env.example.",
         f"have the address server env.example answer {';'.join(NAME_SERVERS)} in one line"),
        ({**BY_SERVER, **BY_DNS}, "Its namesrvAddr is namesrv:9876, a name", "in DNS"),
    ],
)  # fmt: skip
def test_name_server_when_brokers_look_them_up_then_what_they_look_at_is_to_be_changed(
    keys: dict[str, str], knows: str, advised: str
) -> None:
    """A list in namesrvAddr is refused at the start, or switches the address server off."""
    facts = config(1, name_server(0, sets={}), **keys)
    found = find(facts, "broker-not-registered")
    assert knows in found.why
    assert advised in found.next_step
    assert "Write " not in found.next_step
    assert "updateBrokerConfig" not in found.next_step


def test_name_server_when_its_address_is_behind_the_name_then_the_log_is_to_be_looked_at() -> None:
    """Nothing lacks in DNS."""
    facts = config(1, name_server(0, sets={}), **BY_DNS)
    hosts = tuple(one.partition(":")[0] for one in NAME_SERVERS)
    found = find(replace(facts, resolved={"namesrv": hosts}), "broker-not-registered")
    assert "It names all of them" in found.next_step


def test_controllers_when_brokers_look_them_up_then_the_name_is_to_be_changed() -> None:
    """updateBrokerConfig with the list that was told is refused: a name is one."""
    entry = f"give controllers:9878 in DNS the addresses of all, {', '.join(CONTROLLERS)} "
    differs = find(config(1, **CONTROLLERS_BY_DNS), "controller-addr-differs")
    of_file = replace(HEALTHY, conf=ConfFacts("/broker.conf", CONTROLLERS_BY_DNS))
    unheard = config(2, sets(info((replica(1), replica(2, alive=False)))), **CONTROLLERS_BY_DNS)
    for found in (
        differs,
        find(of_file, "controller-addr-differs"),
        find(unheard, "replica-not-heard"),
    ):
        assert entry in found.next_step
        assert "updateBrokerConfig" not in found.next_step


@pytest.mark.parametrize(
    ("code", "facts", "key"),
    [
        ("writes-impossible", everywhere(minInSyncReplicas="4"), "minInSyncReplicas=3"),
        ("acknowledged-by-master-alone",
         everywhere(allAckInSyncStateSet="false", minInSyncReplicas="1"),
         "allAckInSyncStateSet=true and minInSyncReplicas=2"),
        ("replicas-configured-differently", config(2, minInSyncReplicas="1"),
         "minInSyncReplicas=2"),
        ("broker-not-registered",
         config(1, name_server(0, sets={}), namesrvAddr=NAME_SERVERS[1]),
         f"namesrvAddr={';'.join(NAME_SERVERS)}"),
        ("disk-full", config(1, broker(1, runtime={"diskFull": "true"}), fileReservedTime="48"),
         "fileReservedTime=24"),
    ],
)  # fmt: skip
def test_diagnosis_when_brokers_are_ours_then_the_file_and_a_restart_are_told(
    code: str, facts: Facts, key: str
) -> None:
    """The five diagnoses whose keys our brokers refused; to Java's they are told as before."""
    step = find(facts, code).next_step
    assert f"Write {key} into the file of" in step
    of_java = find(java(1, 2, 3, facts=facts), code).next_step
    assert "Restart" not in of_java
    assert f"-k {key.partition('=')[0]} -v" in of_java
