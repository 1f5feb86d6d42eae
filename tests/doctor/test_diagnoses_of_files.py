"""Diagnoses of broker.conf, identity files and stores: named after the complaint behind each."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from rmqha.doctor.diagnosis import Severity
from rmqha.doctor.facts import Facts, IdentityFacts, PortFacts, QueueFacts, StoreFacts
from rmqha.ha.epochs import EpochEntry
from rmqha.store.checkpoint import Checkpoint
from rmqha.store.identity import Identity
from tests.doctor.healthy import (
    CLUSTER,
    CONTROLLERS,
    END,
    EPOCHS,
    HANGS,
    HEALTHY,
    NAME,
    SLAVE,
    STORE,
    codes,
    conf,
    diagnose,
    find,
    identity,
    info,
    only,
    replica,
    sets,
    silent,
    store,
)


def offline(**values: str) -> Facts:
    """A broker.conf with these keys, and nothing else to look at."""
    assert HEALTHY.conf is not None
    return Facts(conf=replace(HEALTHY.conf, values=values))


# -- broker.conf -------------------------------------------------------------------------------


def test_6435_when_our_broker_refuses_the_file_then_its_reason_is_told() -> None:
    """A lint of broker.conf with plain reasons."""
    assert HEALTHY.conf is not None
    facts = replace(HEALTHY, conf=replace(HEALTHY.conf, refusal="listenPort=x is not a number"))
    assert "listenPort=x" in only(facts, "config-refused").found.what


def test_file_when_it_has_keys_that_nobody_knows_then_some_are_named() -> None:
    assert HEALTHY.conf is not None
    keys = tuple(f"key{number}" for number in range(7))
    found = only(replace(HEALTHY, conf=replace(HEALTHY.conf, unknown=keys)), "keys-unknown")
    assert found.found.what.endswith("key0, key1, key2, key3, key4 and 2 more")
    assert found.severity is Severity.NOTE


@pytest.mark.parametrize(
    ("values", "is_wrong"),
    [
        ({"brokerRole": "SLAVE"}, True),
        ({"brokerRole": "SLAVE", "brokerId": "0"}, True),
        ({"brokerRole": "SLAVE", "brokerId": "-1"}, True),
        ({"brokerRole": "SLAVE", "brokerId": "1"}, False),
        ({"brokerRole": "ASYNC_MASTER"}, False),
    ],
)
def test_6435_when_a_slave_has_no_id_then_java_would_exit(
    values: dict[str, str], is_wrong: bool
) -> None:
    """The slave of an embedded controller exits at its start."""
    assert codes(offline(**values)) == (["slave-without-id"] if is_wrong else [])


def test_6813_when_the_file_gives_a_role_then_it_has_no_effect() -> None:
    found = only(conf(brokerRole="SYNC_MASTER", brokerId="0"), "role-in-config")
    assert "brokerRole=SYNC_MASTER and brokerId=0" in found.found.what
    assert found.severity is Severity.NOTE


def test_dashboard_233_when_no_controller_is_named_then_it_is_told() -> None:
    found = only(offline(enableControllerMode="true"), "no-controllers-named").found
    assert "not the name server's" in found.next_step


def test_6435_when_controllers_are_named_without_the_mode_then_it_is_told() -> None:
    assert codes(offline(controllerAddr="10.0.0.1:9878")) == ["controllers-without-mode"]


def test_6873_when_a_name_cannot_be_resolved_then_it_is_told() -> None:
    """A DNS failure nulled the controllers' addresses."""
    facts = replace(HEALTHY, resolved={"controllers.example": (), "other.example": ("10.0.0.9",)})
    assert only(facts, "name-not-resolved").found.subject == "controllers.example"


def test_4808_when_a_port_is_taken_by_another_then_it_is_told() -> None:
    """Only while no broker answers at the address: the broker's own ports are its own."""
    taken = (PortFacts("listenPort - 2", 10909, is_free=False), PortFacts("haListenPort", 1, True))
    dead = silent(2, facts=replace(HEALTHY, ports=taken, sets={}, identity=None, store=None))
    dead = replace(dead, name_servers=(), controllers=())
    assert only(dead, "port-taken").found.subject == "listenPort - 2 10909"
    assert codes(replace(HEALTHY, ports=taken)) == []
    hung = silent(2, HANGS, facts=replace(HEALTHY, ports=taken, sets={}, identity=None))
    assert codes(replace(hung, name_servers=(), controllers=())) == ["broker-hangs"]


# -- identity ----------------------------------------------------------------------------------


def test_6586_when_the_identity_is_missing_then_the_id_to_write_is_told() -> None:
    """A wipe on one side: the broker would be given a new id and stay a slave."""
    found = only(identity(final=None), "identity-missing").found
    assert f"Write {CLUSTER}#{NAME}#2" in found.next_step
    unknown = identity(sets(info(in_sync=(replica(1), replica(3)))), final=None)
    assert "with its old id" in find(unknown, "identity-missing").next_step


def test_6586_when_the_identity_is_damaged_then_what_to_write_is_told() -> None:
    facts = identity(final=None, damage="b'x' is not the identity of a broker")
    assert "CLUSTER#BROKERNAME#ID" in only(facts, "identity-damaged").found.next_step


@pytest.mark.parametrize("final", [None, Identity(CLUSTER, NAME, 2)])
def test_6586_when_a_temporary_identity_is_left_then_it_is_told(final: Identity | None) -> None:
    left = Identity(CLUSTER, NAME, 4, f"{SLAVE};1")
    found = only(identity(final=final, temporary=left), "identity-unfinished").found
    assert "id 4" in found.what


@pytest.mark.parametrize("names", [(CLUSTER, "broker-b"), ("OtherCluster", NAME)])
def test_7414_when_the_store_is_anothers_then_both_names_are_told(names: tuple[str, str]) -> None:
    """Quick start works only with broker-a: a second set shares the store of the first."""
    facts = identity(final=Identity(*names, 2))
    assert "identity-of-another" in codes(facts)
    assert set(codes(facts)) <= {"identity-of-another", "id-unknown-to-controllers"}
    # Of a set that the controllers were not asked for nobody says that they do not know it.
    asked = replace(facts, set_name=NAME)
    assert codes(asked) == ["identity-of-another"]


def test_6586_when_controllers_do_not_know_the_id_then_nothing_is_to_be_deleted() -> None:
    found = only(identity(final=Identity(CLUSTER, NAME, 8)), "id-unknown-to-controllers").found
    assert "broker is 8 of broker-a, and the controllers know 1, 2, 3" in found.what
    assert found.next_step.startswith("Delete nothing yet")


def test_4808_when_the_address_has_changed_then_both_are_told() -> None:
    """An IP change broke a broker's identity."""
    found = only(identity(final=Identity(CLUSTER, NAME, 3)), "address-changed").found
    assert f"have broker 3 at 10.0.1.3:10911, broker.conf says {SLAVE}" in found.what


@pytest.mark.parametrize(("members", "flag"), [((1, 2, 3), False), ((2,), True)])
def test_6586_when_the_store_was_wiped_then_what_the_controllers_remember_is_told(
    members: tuple[int, ...], flag: bool
) -> None:
    """A single broker stays slave: whoever was alone in the SyncStateSet is gone for good."""
    rest = tuple(replica(n) for n in (1, 2, 3) if n not in members)
    facts = sets(info(tuple(map(replica, members)), rest))
    facts = store(identity(facts, final=None), end_offset=0, checkpoint=None, epochs=None,
                  queues=(), consumer_offsets={})  # fmt: skip
    step = find(facts, "store-wiped").next_step
    line = f"cleanBrokerMetadata -a {CONTROLLERS[0]} -c {CLUSTER} -bn {NAME} -b 2"
    assert f"`bin/mqadmin {line}{' -l' if flag else ''}`" in step
    assert "identity-missing" not in codes(facts)


# -- the store ---------------------------------------------------------------------------------


def test_10666_when_the_log_is_damaged_then_the_place_is_told() -> None:
    facts = store(damage="damaged at offset 77: body CRC, but the log was durable up to 5000",
                  end_offset=77, later_record=300)  # fmt: skip
    assert "damaged at offset 77" in only(facts, "commit-log-damaged").found.what


def test_7689_when_a_file_is_missing_then_where_the_log_ends_is_told() -> None:
    facts = store(missing_before="the file before /store/commitlog/2 is missing", damage="x",
                  end_offset=1_000)  # fmt: skip
    assert "ends at 1000" in only(facts, "commit-log-file-missing").found.what


def test_10666_when_records_stand_behind_the_end_then_the_first_is_told() -> None:
    """A truncation that is not crash-safe: a stale tail revives."""
    found = only(store(later_record=6_000), "records-behind-end").found
    assert "follows at 6000" in found.what


@pytest.mark.parametrize(
    ("what", "code"),
    [
        ({"lost_queues": tuple(f"Orders/{n} has 0 to 0" for n in range(5))}, "queue-lost"),
        ({"unreached": tuple(f"Orders/{n} has none" for n in range(5))}, "messages-out-of-reach"),
        (
            {
                "queues": tuple(
                    QueueFacts("T", n, 1, 1, 0, f"Orders/{n} has none") for n in range(5)
                )
            },
            "queue-damaged",
        ),
    ],
)
def test_queues_when_something_of_them_is_missing_then_three_are_named(
    what: dict[str, Any], code: str
) -> None:
    """Messages that were acknowledged were out of reach, and nothing was said to be wrong."""
    told = only(store(**what), code)
    assert told.severity is (Severity.WARNING if code == "queue-lost" else Severity.ERROR)
    assert "5 consume queues" in told.found.what
    assert "Orders/2 has" in told.found.what
    assert told.found.what.endswith("; and 2 more")
    assert not only(store(lost_queues=("Orders/1",)), "queue-lost").found.what.endswith("more")


def test_7689_when_there_is_no_checkpoint_then_it_is_told() -> None:
    assert codes(store(checkpoint=None)) == ["checkpoint-missing"]


def test_6662_when_more_was_confirmed_than_is_there_then_the_bytes_are_told() -> None:
    facts = store(checkpoint=Checkpoint(1, 1, 1, 0, END + 40))
    assert "40 bytes" in only(facts, "confirm-offset-beyond-log").found.why


def test_6609_when_queues_point_behind_the_log_then_they_are_named() -> None:
    """Consumers read unconfirmed data: the queues were built beyond the confirm offset."""
    queues = (QueueFacts("Orders", 0, 10, END), QueueFacts("Orders", 3, 11, END + 1))
    found = only(store(queues=queues), "queue-beyond-log").found
    assert f"1 consume queues point behind the log's end at {END}: Orders/3" in found.what


def test_4771_when_an_offset_is_beyond_its_queue_then_the_group_is_named() -> None:
    """Consumers' offsets are not cut with the log."""
    offsets = {("Orders", "group", 0): 14, ("Gone", "group", 0): 99}
    found = only(store(consumer_offsets=offsets), "consumer-offset-beyond-queue").found
    assert "1 consumer offsets lie behind their queues: group on Orders/0 at 14 of 10" in found.what


def test_store_when_the_broker_was_killed_then_the_abort_file_is_explained() -> None:
    dead = replace(silent(2, facts=store(abort=True)), sets={}, controllers=(), name_servers=())
    dead = replace(dead, ports=(), identity=None)
    assert codes(dead) == ["broker-not-running", "unclean-stop"]
    assert "Do not delete" in diagnose(dead)[1].found.next_step
    assert "it was killed" in diagnose(dead)[0].found.why
    assert codes(store(abort=True)) == []
    assert "unclean-stop" not in codes(silent(2, HANGS, store(abort=True)))


@pytest.mark.parametrize("epochs", [None, EPOCHS])
def test_9942_when_the_epoch_file_is_damaged_then_its_backup_is_told_of(
    epochs: tuple[EpochEntry, ...] | None,
) -> None:
    found = only(
        store(epochs=epochs, epoch_damage="CRC 1, its lines 2"), "epoch-file-damaged"
    ).found
    assert ("backup is whole" in found.why) is (epochs is not None)


def test_9689_when_there_is_no_epoch_file_then_the_log_is_told_of() -> None:
    assert codes(store(epochs=None)) == ["epoch-file-missing"]
    assert codes(replace(store(epochs=None), conf=None)) == []


def test_9689_when_epochs_begin_behind_the_log_then_both_offsets_are_told() -> None:
    """An older entry was removed although its part of the log is there."""
    facts = store(epochs=EPOCHS[1:])
    assert "epoch 3 begins at 2000, the log at 0" in only(facts, "epoch-begins-late").found.what


def test_9942_when_an_epoch_begins_behind_the_end_then_both_offsets_are_told() -> None:
    facts = store(epochs=(EpochEntry(1, 0), EpochEntry(3, END + 1)))
    assert (
        "epoch 3 begins at 5001, and the log ends at 5000"
        in only(facts, "epoch-beyond-log").found.what
    )
    assert codes(store(epochs=(EpochEntry(1, 0), EpochEntry(3, END)))) == []


def test_store_when_it_is_all_there_is_then_it_is_judged_alone() -> None:
    """``--store`` without a broker.conf."""
    alone: dict[str, Any] = {"conf": None, "brokers": (), "sets": {}, "controllers": ()}
    facts = replace(store(later_record=6_000), name_servers=(), identity=None, ports=(), **alone)
    assert only(facts, "records-behind-end").found.subject == STORE


def test_store_when_a_file_is_missing_then_what_follows_from_it_is_not_told_again() -> None:
    """One cause, one diagnosis: the end that was found is not where the log ends."""
    facts = store(missing_before="the file before 2 is missing", end_offset=1_000)
    assert codes(facts) == ["commit-log-file-missing"]


def test_store_when_it_is_empty_then_no_checkpoint_and_no_epochs_are_right() -> None:
    """A broker that never started has none."""
    facts = store(end_offset=0, checkpoint=None, epochs=None, queues=(), consumer_offsets={})
    assert codes(facts) == []


def test_store_when_the_broker_stopped_in_order_then_it_is_told_that_it_does_not_run() -> None:
    """Of a broker that is down nothing was said to be wrong."""
    dead = replace(silent(2), sets={}, controllers=(), name_servers=(), ports=(), identity=None)
    found = only(dead, "broker-not-running")
    assert found.severity is Severity.WARNING
    assert f"no broker answers at {SLAVE}" in found.found.what
    assert "cannot connect" in found.found.what
    assert "stopped in order" in found.found.why
    assert "not run yet" in only(replace(dead, store=StoreFacts(STORE)), found.code).found.why
    assert "How it ended is not known" in only(replace(dead, store=None), found.code).found.why
    # The files alone say nothing of who runs, and who hangs is told otherwise.
    assert codes(replace(dead, conf=None)) == []
    assert codes(silent(2, HANGS, dead)) == ["broker-hangs"]
    assert dead.conf is not None
    refused = replace(dead, conf=replace(dead.conf, refusal="listenPort=x"))
    assert codes(refused) == ["config-refused"]


def test_broker_when_others_miss_it_then_it_is_told_once() -> None:
    """By those that know it, with what is missing without it."""
    gone = replica(2, alive=False)
    outside = info(in_sync=(replica(1), replica(3)), behind=(gone,))
    assert "broker-not-running" not in codes(sets(outside, silent(2)))
    registered = replace(silent(2), sets={}, controllers=(), ports=(), identity=None)
    assert "broker-not-running" not in codes(registered)


def test_store_when_its_checkpoint_is_damaged_then_it_is_told_and_not_called_missing() -> None:
    facts = store(checkpoint=None, checkpoint_damage="/store/checkpoint has 2 bytes")
    found = only(facts, "checkpoint-damaged")
    assert "has 2 bytes" in found.found.what
    assert found.severity is Severity.ERROR


def test_store_when_tables_are_damaged_then_each_file_is_told() -> None:
    facts = store(config_damages={"/store/config/topics.json": "no JSON", "/b": "no object"})
    found = diagnose(facts)
    assert [(one.code, one.found.subject) for one in found] == [
        ("config-file-damaged", "/store/config/topics.json"), ("config-file-damaged", "/b"),
    ]  # fmt: skip
    assert "no JSON" in found[0].found.what


@pytest.mark.parametrize(
    ("setting", "sizes", "wrong"),
    [
        ("4096", (4096, 4096), None), ("4096", (4096, 4106), "/1 has 4106 bytes;"),
        ("8192", (4096, 4096), "/0 has 4096, /1 has 4096 bytes;"),
        ("", (1 << 30, 1 << 30), None), ("", (1 << 30, 4096), "/1 has 4096 bytes;"),
        ("4096", (1, 2, 3, 4, 5), "/2 has 3 bytes (and 2 more files);"), ("much", (1, 2), None),
        (None, (4096, 4096), None), (None, (4096, 4106), "/1 has 4106 bytes; the first one has 4096"),
    ],
)  # fmt: skip
def test_store_when_files_of_the_log_have_another_length_then_they_are_told(
    setting: str | None, sizes: tuple[int, ...], wrong: str | None
) -> None:
    """A broker ends for it at its start; without its configuration the first file is the measure."""
    facts = store(log_sizes={f"/{at}": size for at, size in enumerate(sizes)})
    facts = (
        replace(facts, conf=None) if setting is None
        else conf(facts, mappedFileSizeCommitLog=setting)
    )  # fmt: skip
    if wrong is None:
        assert codes(facts) == []
    else:
        found = only(facts, "commit-log-file-size-differs").found.what
        assert wrong in found
        assert ("mappedFileSizeCommitLog = " in found) is (setting is not None)


def test_identity_when_there_are_no_controllers_then_none_is_needed() -> None:
    facts = replace(offline(brokerName=NAME), store=HEALTHY.store)
    assert codes(replace(facts, identity=IdentityFacts("/store/brokerIdentity"))) == []
