"""A name server with a controller in it tells slaves their master before that one registers."""

from __future__ import annotations

import pytest

from tests.namesrv.node import MASTER, MASTER_HA, NAME, SLAVE, SLAVE_HA, Node

THIRD, THIRD_HA = "10.0.0.3:10911", "10.0.0.3:20912"
FOURTH = "10.0.0.4:10911"


class Controllers:
    """What an embedded controller would say."""

    def __init__(self) -> None:
        self.masters: dict[str, tuple[str, int]] = {}

    def elected_master(self, broker_name: str) -> tuple[str, int, frozenset[str]] | None:
        """The master of a set, and its replicas."""
        found = self.masters.get(broker_name)
        return None if found is None else (*found, frozenset({MASTER, SLAVE, THIRD, FOURTH}))


def trio() -> tuple[Node, Controllers]:
    """Master 1 in epoch 1, slaves 2 and 3; each over a connection of its own."""
    controllers = Controllers()
    controllers.masters[NAME] = (MASTER, 1)
    node = Node(masters=controllers)
    node.register(connection=1)
    node.register(brokerId=2, brokerAddr=SLAVE, haServerAddr=SLAVE_HA, connection=2)
    node.register(brokerId=3, brokerAddr=THIRD, haServerAddr=THIRD_HA, connection=3)
    return node, controllers


def asks(node: Node, epoch: int = 1) -> dict[str, str] | None:
    """What slave 2 is answered when it registers in an epoch."""
    answer = node.register(
        brokerId=2, brokerAddr=SLAVE, haServerAddr=SLAVE_HA, connection=2, epoch=epoch
    )
    assert 0 == answer.code
    return answer.ext_fields


NEW = {"masterAddr": THIRD, "haServerAddr": THIRD_HA}
OLD = {"masterAddr": MASTER, "haServerAddr": MASTER_HA}


@pytest.mark.parametrize("old_is_gone", [True, False])
def test_slave_when_the_new_master_has_not_registered_then_it_is_told_all_the_same(
    *, old_is_gone: bool
) -> None:
    """Java answers null or the dead one, and the slave looks again up to 30 s later. The HA address
    is what the elected broker registered as a slave: a port of its own choice."""
    node, controllers = trio()
    controllers.masters[NAME] = (THIRD, 2)
    if old_is_gone:
        node.close(1)
    assert NEW == asks(node)
    assert NEW == asks(node, epoch=2)


def test_slave_when_the_new_master_lost_its_connection_then_its_ha_address_is_remembered() -> None:
    """It connects anew within a second; its slaves need not wait for that."""
    node, controllers = trio()
    controllers.masters[NAME] = (THIRD, 2)
    node.close(1)
    node.close(3)
    assert NEW == asks(node)


def test_slave_when_the_elected_master_was_never_heard_then_java_s_answer() -> None:
    """The controllers know no HA address, and a guessed one may be another broker's."""
    node, controllers = trio()
    controllers.masters[NAME] = (FOURTH, 2)
    assert OLD == asks(node)
    node.close(1)
    assert {} == asks(node)


def test_slave_when_a_larger_epoch_has_registered_then_that_one_is_its_master() -> None:
    """This node's controller may be behind the others of its group."""
    node, _ = trio()
    node.close(1)
    node.register(brokerId=0, brokerAddr=THIRD, haServerAddr=THIRD_HA, epoch=2, connection=3)
    assert NEW == asks(node)


def test_slave_when_it_knows_a_larger_epoch_then_an_old_election_is_not_told() -> None:
    """It would replicate from a master that has been replaced."""
    node, controllers = trio()
    node.close(1)
    controllers.masters[NAME] = (THIRD, 2)
    assert {} == asks(node, epoch=3)


def test_slave_when_it_is_elected_itself_then_it_is_not_sent_to_the_old_master() -> None:
    """It has not heard of its election yet."""
    node, controllers = trio()
    controllers.masters[NAME] = (SLAVE, 2)
    assert {} == asks(node)


def test_slave_when_nobody_is_elected_then_java_s_answer() -> None:
    """Classic sets beside controlled ones; a set between two masters."""
    node, controllers = trio()
    controllers.masters.clear()
    assert OLD == asks(node)


def test_master_when_it_registers_then_it_is_told_nothing() -> None:
    """As ever."""
    node, controllers = trio()
    controllers.masters[NAME] = (THIRD, 2)
    assert {} == node.register(counter=2).ext_fields


@pytest.mark.parametrize("epoch", [1, 2, 1 << 62])
def test_master_when_it_is_no_replica_of_the_set_then_it_gets_no_route(epoch: int) -> None:
    """Whatever epoch it brings: anybody could take a set's producers over (X9)."""
    node, controllers = trio()
    forged = node.register(
        brokerId=0, brokerAddr="10.9.9.9:1", haServerAddr="10.9.9.9:2", epoch=epoch, connection=9
    )
    assert forged.code != 0
    assert "no replica" in (forged.remark or "")
    assert node.machine.table.sets[NAME].addrs[0] == MASTER
    assert OLD == asks(node)
    # A set that the controllers do not know, or that has no master yet, is as in Java.
    controllers.masters.clear()
    assert node.register(brokerAddr="10.9.9.9:1", epoch=9, connection=9).code == 0


def test_ha_addresses_when_many_brokers_come_and_go_then_the_oldest_are_forgotten() -> None:
    """Memory is bounded by brokersMax."""
    node = Node({"brokersMax": "3"})
    for number in range(10):
        node.register(brokerAddr=f"10.0.0.{number}:1", brokerName=f"b{number}", connection=number)
        node.close(number)
    known = [key.address for key in node.machine.table.ha_addresses]
    assert ["10.0.0.7:1", "10.0.0.8:1", "10.0.0.9:1"] == known
