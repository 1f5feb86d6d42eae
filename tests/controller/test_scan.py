"""Tests for the leader's walk over all sets, and for many deaths at once: a part at a time."""

from __future__ import annotations

import pytest

from rmqha.base.ids import BrokerId
from rmqha.base.machine import Ticked
from rmqha.controller.liveness import DEATHS_A_PART, Liveness
from rmqha.controller.machine import LeadershipChanged, MachineSettings
from rmqha.controller.metadata.state import BrokerSet, Replica
from rmqha.controller.metadata.status import COUNTS_A_TURN, SETS_A_TURN
from rmqha.controller.scan import SETS_A_PART, Scan
from rmqha.controller.settings import load_config
from rmqha.controller.status_document import NodeFacts, document
from rmqha.remoting.heartbeat import Heartbeat
from tests.controller.metadata.driving import CLUSTER, Driver, in_parts

SETS = 2 * SETS_A_PART + 500
SETTINGS = MachineSettings(scan_inactive_master_interval_ms=5_000)
ONE, TWO = BrokerId(1), BrokerId(2)


def vacant(number: int) -> BrokerSet:
    """A set that lost its master and whose only replica in sync is back."""
    made = BrokerSet(CLUSTER, f"broker-{number}", master_epoch=1, sync_state_set=(TWO,))
    made.replicas[TWO] = Replica("h:2", "c;1")
    return made


def beat(live: Liveness, now_ms: int, name: str, connection: int = 1) -> None:
    fields = {"clusterName": CLUSTER, "brokerName": name, "brokerId": "2"}
    live.heartbeat(now_ms, connection, Heartbeat.of(fields))


def test_walk_when_there_are_many_sets_then_in_parts_and_each_set_once() -> None:
    """With 57,000 sets the walk took longer than followers wait for their leader."""
    sets = {f"broker-{number}": vacant(number) for number in range(SETS)}
    live = Liveness(strangers_per_connection=SETS)
    for name in sets:
        beat(live, 100, name)
    scan, found = Scan(), []
    for _ in range(2):
        part = scan.part(100, sets, live, SETTINGS, 0)
        assert len(part) == SETS_A_PART
        assert scan.next_ms == 100, "the next part is due at once"
        found += part
    del sets[f"broker-{SETS - 1}"]  # cleaned meanwhile
    found += scan.part(101, sets, live, SETTINGS, 0)
    assert found == list(sets)
    assert scan.next_ms == 5_100, "a walk begins so long after the one before it began"
    assert scan.part(5_100, sets, live, SETTINGS, 0) == found[:SETS_A_PART]
    scan.begin()
    assert scan.part(5_101, sets, live, SETTINGS, 0) == found[:SETS_A_PART]


def test_walk_when_it_takes_long_then_it_rests_nine_times_as_long() -> None:
    """Where sets are very many it would else go on for ever, and nothing else have its turn."""
    sets, scan = {f"broker-{number}": vacant(number) for number in range(SETS)}, Scan()
    for now_ms in (100, 600, 1_100):
        assert scan.next_ms <= now_ms
        scan.part(now_ms, sets, Liveness(), SETTINGS, 0)
    assert scan.next_ms == 1_100 + 9 * 1_000


def test_walk_when_masters_may_be_unheard_then_again_when_that_is_over() -> None:
    """A new leader looks again at the end of the time in which it takes nobody for dead."""
    scan = Scan()
    assert scan.part(100, {}, Liveness(), SETTINGS, 700) == []
    assert scan.next_ms == 700


def test_deaths_when_many_come_at_once_then_told_in_parts_and_each_once() -> None:
    """A rack without power: heartbeats of the living are heard between two parts."""
    live, count = Liveness(strangers_per_connection=SETS), 2 * DEATHS_A_PART + 50
    for number in range(count):
        beat(live, number, f"broker-{number}")
    told = []
    for expected in (DEATHS_A_PART, DEATHS_A_PART, 50):
        due_ms = live.next_deadline_ms()
        assert due_ms is not None
        assert due_ms < 1_000_000
        part = live.expire(1_000_000)
        assert len(part) == expected
        told += part
    assert [name for _, name, _ in told] == [f"broker-{number}" for number in range(count)]
    assert live.next_deadline_ms() is None


@pytest.mark.costly
def test_machine_when_sets_are_many_then_every_vacancy_is_filled() -> None:
    """The parts together do what one walk did, and the machine asks to be ticked for each."""
    driver = Driver(SETTINGS)
    driver.hold = True
    machine = driver.machine
    for number in range(SETS):
        machine.state.sets[f"broker-{number}"] = vacant(number)
        beat(machine.liveness, driver.now_ms, f"broker-{number}", connection=number)
    driver.step(LeadershipChanged(True, 2))
    ticks = 0
    while (machine.next_deadline_ms() or 0) <= driver.now_ms:
        driver.step(Ticked())
        ticks += 1
    assert ticks == 2
    assert len(driver.held) == SETS


def test_status_when_there_are_many_sets_then_in_parts_and_sets_may_go_meanwhile() -> None:
    """A scrape of 10,000 sets stood in a leader's way for 0.1 s, which its followers notice."""
    driver = Driver()
    names = [f"broker-{number:04}" for number in range(3 * SETS_A_TURN + 1)]
    driver.machine.state.sets |= {name: BrokerSet(CLUSTER, name) for name in names}
    counts = driver.machine._elections.counts
    counts |= {(CLUSTER, f"b{number}", "unknown"): 1 for number in range(COUNTS_A_TURN + 1)}
    work = driver.machine.status(driver.now_ms)
    next(work)
    del driver.machine.state.sets[names[-1]]
    late = driver.machine.state.sets[names[-2]]
    late.replicas[TWO] = Replica("h:2", "c;1")
    beat(driver.machine.liveness, driver.now_ms + 5, names[-2])
    found, parts = in_parts(work)
    assert [one["broker_name"] for one in found["broker_sets"]] == names[:-1]
    assert len(found["elections"]) == COUNTS_A_TURN + 1
    assert parts == 2 + 1, "one of the sets was made before"
    (heard,) = [one["heard_ms_ago"] for one in found["broker_sets"][-1]["replicas"]]
    assert heard == 0, "who is heard while it is made is not heard in the future"


def test_document_when_there_are_many_sets_then_in_parts() -> None:
    """A status page makes one every five seconds, whether anybody watches or not."""
    driver = Driver()
    driver.machine.state.sets |= {
        name: BrokerSet(CLUSTER, name) for name in map("b{}".format, range(2 * SETS_A_TURN))
    }
    peers = "n0-127.0.0.1:1"
    keys = ("controllerDLegerGroup", "controllerDLegerPeers", "controllerDLegerSelfId")
    config = load_config(dict(zip(keys, ("g", peers, "n0"), strict=True)), home="", user_home="/h")
    facts = NodeFacts("leader", 1, "n0", 9, "v", 10, 1, config.peers)
    work = document(config, facts, driver.status(), (), {}, {})
    made, parts = in_parts(work)
    assert (len(made.broker_sets), parts) == (2 * SETS_A_TURN, 2)
