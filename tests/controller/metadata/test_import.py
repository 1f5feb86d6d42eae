"""Sets of other controllers: taken in as they were, once, and never over what is known here."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.base.ids import BrokerId
from rmqha.controller.machine import ControllerMachine, MachineSettings, SnapshotLoaded
from rmqha.controller.metadata import events as ev
from rmqha.controller.metadata.apply import apply
from rmqha.controller.metadata.imported import SET_EPOCH_LEAP, to_event
from rmqha.controller.metadata.messages import Reply
from rmqha.controller.metadata.state import MetadataState
from rmqha.remoting.broker_set_state import BrokerSetState, RegisteredReplica
from tests.controller.metadata.driving import CLUSTER, NAME, Driver

IMPORT = 60013
WHOLE = BrokerSetState(
    cluster_name=CLUSTER, broker_name=NAME, next_broker_id=5, master_broker_id=2, master_epoch=7,
    sync_state_set=(2, 3), sync_state_set_epoch=11,
    replicas=tuple(RegisteredReplica(one, f"h:{one}") for one in (1, 2, 3)),
)  # fmt: skip


def take_in(driver: Driver, said: BrokerSetState = WHOLE, name: str | None = None) -> Reply:
    """60013."""
    return driver.ask(
        IMPORT, 99, said.encode(), brokerName=said.broker_name if name is None else name
    )


def changed(**fields: Any) -> BrokerSetState:
    return msgspec.structs.replace(WHOLE, **fields)


def info(driver: Driver) -> tuple[dict[str, str], bytes]:
    """1004."""
    answer = driver.ask(1004, 1, brokerName=NAME)
    assert answer.code == 0
    return answer.ext_fields, answer.body


def test_set_when_imported_then_brokers_are_told_what_they_know() -> None:
    """Another master or epoch in 1004 and a running broker would change its role."""
    driver = Driver()
    assert take_in(driver).code == 0
    fields, body = info(driver)
    assert fields == {"masterBrokerId": "2", "masterAddress": "h:2", "masterEpoch": "7"}
    assert body == b'{"syncStateSet":[2,3],"syncStateSetEpoch":%d}' % (11 + SET_EPOCH_LEAP)
    assert driver.told() == [], "nothing has changed for the brokers"
    note = driver.notes[-1]
    assert (note.event, note.facts["broker_ids"]) == ("broker_set_imported", [1, 2, 3])


def test_set_when_imported_then_ids_go_on() -> None:
    """An id that was handed out twice would give one broker another's place (#7414)."""
    driver = Driver()
    take_in(driver)
    answer = driver.ask(1012, 9, clusterName=CLUSTER, brokerName=NAME)
    assert answer.ext_fields["nextBrokerId"] == "5"
    taken = {"clusterName": CLUSTER, "brokerName": NAME, "appliedBrokerId": 2}
    assert driver.ask(1013, 9, registerCheckCode="h:9;1", **taken).code == 2014
    known = {"clusterName": CLUSTER, "brokerName": NAME, "brokerId": 2, "brokerAddress": "h:2"}
    assert driver.ask(1003, 2, **known).code == 0


def test_set_when_its_counter_lags_then_ids_go_on_above_the_highest() -> None:
    """Java counts adds instead of the highest id."""
    driver = Driver()
    take_in(driver, changed(next_broker_id=2))
    answer = driver.ask(1012, 9, clusterName=CLUSTER, brokerName=NAME)
    assert answer.ext_fields["nextBrokerId"] == "4"


def test_master_when_dead_after_the_import_then_the_next_epoch_is_one_above() -> None:
    """Epochs go on: at 1 the brokers would ignore the election."""
    driver = Driver()
    for one in (1, 2, 3):
        driver.beat(one, epoch=7, maxOffset=100)
    take_in(driver)
    driver.close(2)
    driver.pass_time(1_000)
    assert driver.master() == (3, 8)


def test_master_when_it_alters_the_set_then_it_goes_on_from_the_imported_epoch() -> None:
    """With 1004's epoch it may; with the one of before it is told to look again."""
    driver = Driver()
    for one in (1, 2, 3):
        driver.beat(one, epoch=7, maxOffset=100)
    take_in(driver)
    assert driver.alter(2, 7, [1, 2, 3], 11).code == 2001
    answer = driver.alter(2, 7, [1, 2, 3], 11 + SET_EPOCH_LEAP)
    assert answer.ext_fields["newSyncStateSetEpoch"] == str(12 + SET_EPOCH_LEAP)


def test_brokers_when_imported_then_the_live_table_knows() -> None:
    """They were heard before they were known: a table full of strangers makes room for them, and for
    nobody at their cost."""
    driver = Driver(MachineSettings(live_brokers_max=3))
    for one in (1, 2, 3):
        driver.beat(one, epoch=7, maxOffset=100)
    live = driver.machine.liveness
    known = [live.info(CLUSTER, NAME, BrokerId(one)) for one in (1, 2, 3)]
    assert [one is not None and one.registered for one in known] == [False, False, False]
    take_in(driver)
    assert [one is not None and one.registered for one in known] == [True, True, True]


def test_import_when_the_set_is_known_then_refused_and_nothing_changes() -> None:
    """What these controllers decided is the newer memory."""
    driver = Driver()
    driver.pair()
    before = driver.machine.snapshot()
    answer = take_in(driver)
    assert (answer.code, answer.remark) == (
        2005, f"Broker-set: {NAME} is known already, with master epoch 1: it is not overwritten",
    )  # fmt: skip
    assert driver.machine.snapshot() == before


def test_import_when_asked_again_then_done_once() -> None:
    """The first answer was lost: mqadmin asks again."""
    driver = Driver()
    assert take_in(driver).code == 0
    entries = len(driver.log)
    assert take_in(driver).code == 0
    assert len(driver.log) == entries
    driver.beat(3, epoch=7)
    driver.elect(3, designate=True)
    assert take_in(driver).code == 2005, "it has gone on since"


@pytest.mark.parametrize("epoch", [8, 2**30])
def test_import_when_a_broker_knows_a_newer_epoch_then_refused(epoch: int) -> None:
    """The old controllers elected somebody after the export: its master would be moved back."""
    driver = Driver()
    driver.beat(3, epoch=epoch, maxOffset=5)
    answer = take_in(driver)
    assert answer.code == 2005
    assert f"broker 3 of {NAME} knows epoch {epoch}" in (answer.remark or "")
    assert driver.machine.state.sets == {}


@pytest.mark.parametrize("epoch", [-1, 7, 2**30 + 1])
def test_import_when_no_believable_epoch_is_newer_then_done(epoch: int) -> None:
    """A broken broker cannot keep a set out."""
    driver = Driver()
    driver.beat(3, epoch=epoch, maxOffset=5)
    assert take_in(driver).code == 0


def test_import_when_another_cluster_has_newer_epochs_then_done() -> None:
    """Names of sets are used again in other clusters; their brokers are not this set's."""
    driver = Driver()
    driver.beat(3, epoch=9, clusterName="another")
    assert take_in(driver).code == 0


@pytest.mark.parametrize(
    ("said", "remark"),
    [
        (changed(cluster_name=None), "must be known"),
        (changed(cluster_name=""), "must be known"),
        (changed(broker_name=""), "must be known"),
        (changed(cluster_name="c" * 256), "255 characters"),
        (changed(replicas=(), sync_state_set=(), master_broker_id=None), "1 to 2 replicas"),
        (WHOLE, "1 to 2 replicas"),
        (changed(replicas=WHOLE.replicas[1:2] * 2, sync_state_set=(2,)), "twice"),
        (changed(replicas=WHOLE.replicas[1:], sync_state_set=(2, 2)), "twice"),
        (changed(replicas=(RegisteredReplica(0, "h:1"),), sync_state_set=()), "from 1 on"),
        (changed(replicas=WHOLE.replicas[1:], next_broker_id=0), "from 1 on"),
        (changed(replicas=(RegisteredReplica(2, ""),), sync_state_set=(2,)), "512 characters"),
        (changed(replicas=WHOLE.replicas[:2]), r"\[3\] are no replicas"),
        (changed(replicas=WHOLE.replicas[1:], master_broker_id=1), "not in its SyncStateSet"),
        (changed(replicas=WHOLE.replicas[1:], master_epoch=2**30 + 1), "0 to 1073741824"),
        (changed(replicas=WHOLE.replicas[1:], sync_state_set_epoch=-1), "0 to 1073741824"),
        (changed(replicas=WHOLE.replicas[1:], master_epoch=0), "never had a master"),
    ],
)  # fmt: skip
def test_import_when_something_is_unknown_or_wrong_then_refused(
    said: BrokerSetState, remark: str
) -> None:
    """Nothing is guessed, and an impossible state would stop every node when it is applied."""
    driver = Driver(MachineSettings(replicas_per_set_max=2))
    answer = take_in(driver, said)
    assert answer.code == 2005
    assert re.search(remark, answer.remark or "")
    assert driver.log == []


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"brokerName":1}', WHOLE.encode() + b"}"])
def test_import_when_the_body_is_none_then_refused(body: bytes) -> None:
    """Typed by hand, or cut off."""
    driver = Driver()
    answer = driver.ask(IMPORT, 99, body, brokerName=NAME)
    assert answer.code == 2005
    assert (answer.remark or "").startswith("not the state of a broker set")


def test_import_when_the_names_differ_then_refused() -> None:
    """The lane is that of the named set: two changes of one set would be decided at once."""
    assert take_in(Driver(), name="broker-b").code == 2005


def test_import_when_the_controller_is_full_then_refused() -> None:
    """Everything that can grow has a maximum."""
    driver = Driver(MachineSettings(broker_sets_max=1))
    assert take_in(driver, changed(broker_name="broker-z")).code == 0
    answer = take_in(driver)
    assert (answer.code, answer.remark) == (2005, "the controller keeps 1 broker-sets at most")


def test_set_without_master_when_imported_then_the_first_in_sync_replica_heard_is_elected() -> None:
    """The old controllers had lost its master; its epochs go on all the same."""
    driver = Driver()
    take_in(driver, changed(master_broker_id=None))
    assert driver.master() == (None, 7)
    driver.beat(1, epoch=7, maxOffset=999)
    assert driver.master() == (None, 7), "it is not in sync"
    driver.beat(3, epoch=7, maxOffset=5)
    assert driver.master() == (3, 8)


def test_set_when_it_never_had_a_master_then_imported_so() -> None:
    """Registered, and not elected yet."""
    driver = Driver()
    said = changed(master_broker_id=None, master_epoch=0, sync_state_set=(), sync_state_set_epoch=0)
    assert take_in(driver, said).code == 0
    driver.beat(1, epoch=-1)
    assert driver.elect(1).code == 0
    assert driver.master() == (1, 1)


def test_import_when_applied_over_a_known_set_then_ignored() -> None:
    """Decided by an old leader, committed behind a registration."""
    state = MetadataState()
    apply(state, ev.BrokerIdTaken(CLUSTER, NAME, "h:1", BrokerId(1), "h:1;1"))
    applied = apply(state, to_event(WHOLE, CLUSTER))
    assert not applied.changed
    assert applied.note is not None
    assert applied.note.facts["why"] == "known broker set"
    assert state.sets[NAME].master_epoch == 0


def test_snapshot_when_a_set_was_imported_then_it_is_all_there() -> None:
    """A node that joins by snapshot knows what one that replays the log does."""
    driver = Driver()
    take_in(driver)
    joined = ControllerMachine()
    joined.step(0, SnapshotLoaded(1, driver.machine.snapshot()))
    assert joined.state == driver.machine.state
    assert joined.state.sets[NAME].replicas[BrokerId(2)].register_check_code == "h:2;imported"


_IDS = st.integers(1, 9)
_SAID = st.builds(
    BrokerSetState, st.sampled_from([None, CLUSTER]), st.just(NAME), st.integers(0, 12),
    st.none() | _IDS, st.integers(-1, 3), st.lists(_IDS, max_size=3).map(tuple), st.integers(-1, 3),
    st.lists(st.builds(RegisteredReplica, _IDS, st.just("h:1")), max_size=4).map(tuple),
)  # fmt: skip


@given(said=_SAID)
def test_import_when_taken_then_apply_never_stops_a_node(said: BrokerSetState) -> None:
    """What decide lets through is a state that every node can hold, and says what was said."""
    driver = Driver()
    answer = take_in(driver, said)
    if answer.code:
        assert driver.log == []
        return
    one = driver.machine.state.sets[NAME]
    assert one.last_issued_id >= max(one.replicas)
    assert {*one.sync_state_set} == {*said.sync_state_set}
    assert (one.master_broker_id, one.master_epoch) == (said.master_broker_id, said.master_epoch)
    assert one.sync_state_set_epoch > said.sync_state_set_epoch
