"""Known bugs of Java's controller that no other test shows to be absent (docs/known-java-bugs.md)."""

from __future__ import annotations

import asyncio
from typing import cast

from rmqha.auth.registered import ProvenAddresses
from rmqha.controller.aio.notifier import Notifier
from rmqha.controller.machine import LeadershipChanged, SnapshotLoaded
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.command import RemotingCommand
from rmqha.runtime.logs import Logger
from tests.controller.metadata.driving import CLUSTER, NAME, Driver
from tests.controller.raft.cluster import Cluster
from tests.controller.raft.conftest import close_clusters

__all__ = ["close_clusters"]

SET = {"clusterName": CLUSTER, "brokerName": NAME}


def new_leader(driver: Driver) -> Driver:
    """Another node with the same state that has heard nobody, and leads from now on."""
    other = Driver()
    other.step(LeadershipChanged(False, 1))
    index = len(driver.log)
    other.step(SnapshotLoaded(index, driver.machine.snapshot()))
    other.log = [b""] * index
    other.step(LeadershipChanged(True, 2))
    return other


def elections(driver: Driver) -> dict[str, int]:
    """How often each result came."""
    return {str(one["election_result"]): one["count"] for one in driver.status()["elections"]}


def test_close_when_the_broker_is_back_at_once_then_it_stays_master() -> None:
    """A broker closes its connection whenever a call took 3 s; Java elects another at once."""
    driver = Driver()
    driver.pair()
    driver.close(1)
    driver.pass_time(3)
    driver.beat(1, connection=11, epoch=1)
    driver.pass_time(1_000)
    assert driver.master() == (1, 1)


def test_epoch_when_the_controllers_lost_their_data_then_above_what_brokers_know() -> None:
    """#6586: Java begins with 1 again, which brokers with a higher one in their files refuse."""
    driver = Driver()
    driver.register(1)
    driver.beat(1, epoch=7, maxOffset=1_000)
    assert driver.elect(1).code == 0
    assert driver.master() == (1, 8)


def test_clean_when_one_living_id_is_named_then_the_others_stay() -> None:
    """Java's ``cleanBrokerMetadata -l`` with ids drops the whole set."""
    driver = Driver()
    driver.pair()
    ids = {"brokerControllerIdsToClean": "2", "isCleanLivingBroker": "true"}
    assert driver.ask(1011, 9, **SET, **ids).code == 0
    assert [sorted(one.replicas) for one in driver.machine.state.sets.values()] == [[1]]
    assert driver.master() == (1, 1)


def test_clean_when_the_cluster_is_a_typo_then_a_living_broker_stays() -> None:
    """Java looks for its heartbeats under the cluster that the request names, and finds none."""
    driver = Driver()
    driver.pair()
    ids = {"brokerControllerIdsToClean": "2", "clusterName": "DefaultClutser"}
    assert driver.ask(1011, 9, brokerName=NAME, **ids).code == 2009
    assert sorted(driver.machine.state.sets[NAME].replicas) == [1, 2]


def test_slave_when_it_is_dead_then_no_election_is_tried() -> None:
    """#8380, #10875: JRaft's scan asks for one again and again, and gets 2011."""
    driver = Driver()
    driver.pair()
    driver.close(2)
    for _ in range(20):
        driver.pass_time(1_000)
        driver.beat(1, epoch=1)
    assert elections(driver) == {"new_master_elected": 1}


def test_register_when_the_broker_s_clock_is_wrong_then_ours_counts() -> None:
    """#8380: JRaft compares heartbeats with the broker's ``invokeTime``; old brokers send none."""
    driver = Driver()
    driver.pair()
    driver.pass_time(9_000)
    driver.beat(2)
    behind = new_leader(driver)
    behind.beat(1, epoch=1)
    address = {"brokerId": 2, "brokerAddress": "h:2"}
    fast = behind.now_ms + 3_600_000
    told = behind.ask(1003, 2, **SET, **address, invokeTime=fast).ext_fields
    assert told.get("masterBrokerId") == "1"
    silent = new_leader(driver)
    assert "masterBrokerId" not in silent.ask(1003, 2, **SET, **address, invokeTime=0).ext_fields


def test_master_when_nobody_can_follow_then_one_epoch_is_spent() -> None:
    """Java spends three: each try of its election loses the master once more."""
    driver = Driver()
    driver.pair()
    assert driver.alter(1, 1, [1], 2).code == 0
    driver.close(1)
    driver.pass_time(30_000)
    assert driver.master() == (None, 2)


def test_own_election_when_a_master_is_there_by_then_it_is_tried_once() -> None:
    """Java takes 2011 for a failure, and tries three times."""
    driver = Driver()
    driver.pair()
    driver.hold = True
    driver.send(1002, 99, **SET, brokerId=2, designateElect="true")
    # The old master dies while the switch is on its way to the disks.
    driver.close(1)
    driver.pass_time(100)
    driver.hold = False
    driver.commit_one()
    driver.pass_time(2_000)
    assert driver.master() == (2, 2)
    assert elections(driver) == {"new_master_elected": 2, "keep_current_master": 1}


def test_register_when_the_master_is_dead_then_it_is_not_named() -> None:
    """#5631: a slave that is told a dead master waits for it."""
    driver = Driver()
    driver.pair()
    other = new_leader(driver)
    answer = other.ask(1003, 2, **SET, brokerId=2, brokerAddress="h:2")
    assert answer.ext_fields == SET
    other.beat(1, epoch=1)
    answer = other.ask(1003, 2, **SET, brokerId=2, brokerAddress="h:2")
    assert answer.ext_fields["masterAddress"] == "h:1"


def test_master_when_it_returns_at_another_address_then_its_slaves_hear_of_it() -> None:
    """1003 tells nobody else; but it ended first, so it is elected again, in a new epoch."""
    driver = Driver()
    driver.pair()
    assert driver.alter(1, 1, [1], 2).code == 0
    driver.close(1)
    driver.pass_time(100)
    assert driver.master() == (None, 2)
    driver.told()
    driver.ask(1003, 11, **SET, brokerId=1, brokerAddress="moved:1")
    driver.beat(1, connection=11, epoch=1)
    driver.elect(1, connection=11)
    driver.beat(1, connection=11, epoch=3)
    driver.pass_time(1_000)
    slaves = [one for one in driver.notified if one.address == "h:2"]
    assert [one.ext_fields["masterAddress"] for one in slaves] == ["moved:1"]


def test_first_heartbeat_when_it_has_a_confirm_offset_then_it_is_taken() -> None:
    """Java forgets it until the broker has written more."""
    driver = Driver()
    driver.beat(1, epoch=1, maxOffset=500, confirmOffset=400)
    said = {
        one: live.confirm_offset for one, live in driver.machine.liveness.heard_in(CLUSTER, NAME)
    }
    assert said == {1: 400}


def test_controller_when_it_is_behind_then_it_is_not_elected() -> None:
    """dledger #52, #2178: it would lead without what the others have committed."""
    cluster = Cluster(3)
    leader = cluster.wait_leader()
    behind, other = (node for node in cluster.members if node != leader)
    cluster.run(100)
    cluster.isolate(behind)
    cluster.propose(b"committed")
    cluster.run(100)
    cluster.crash(leader)
    cluster.run(100)
    cluster.heal()
    # What it asks arrives, what it is asked does not.
    cluster.cut(other, behind)
    cluster.run(1_000)
    cluster.heal()
    assert cluster.wait_leader() == other


class Hanging:
    """A client and its log in one: one broker never takes anything, the others do."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.all_told = asyncio.Event()

    async def invoke_oneway(self, address: str, command: RemotingCommand, timeout_ms: int) -> None:
        """Hang, or take it."""
        if address == "hung:1":
            await asyncio.Event().wait()
        self.told.append(address)
        if len(self.told) == 2:
            self.all_told.set()

    def log(self, level: str, event: str, **facts: object) -> None:
        """Nobody reads it."""


async def test_notifier_when_a_broker_hangs_then_the_others_are_told() -> None:
    """#6346: up to 5.1.0 each dead broker cost an election seconds."""
    far = Hanging()
    notifier = Notifier(cast(RemotingClient, far), ProvenAddresses(None), cast(Logger, far))
    for address in ("hung:1", "h:2", "h:3"):
        notifier.notify(address, {}, b"")
    try:
        async with asyncio.timeout(1):
            await far.all_told.wait()
    except TimeoutError:
        pass
    assert far.told == ["h:2", "h:3"]
    await notifier.close()
