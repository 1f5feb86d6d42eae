"""Controllers that know nothing import a set below running brokers, in virtual time."""

from __future__ import annotations

import pytest

from rmqha.controller.metadata.state import BrokerSet
from rmqha.remoting.broker_set_state import BrokerSetState, RegisteredReplica
from rmqha.remoting.codes import RequestCode
from rmqha.sim.cluster import SimOptions
from rmqha.sim.witness import Witness
from rmqha.verify.raft import RaftWatch
from rmqha.verify.replicas import StateWatch
from tests.controller.test_service import SETTLED_MS_MAX, Cluster

NAME = "set-0"


def exported(one: BrokerSet) -> BrokerSetState:
    """What the controllers of before would tell."""
    return BrokerSetState(
        one.cluster_name, one.broker_name, one.last_issued_id + 1, one.master_broker_id,
        one.master_epoch, one.sync_state_set, one.sync_state_set_epoch,
        tuple(RegisteredReplica(who, one.replicas[who].address) for who in sorted(one.replicas)),
    )  # fmt: skip


def replace_controllers(cluster: Cluster) -> None:
    """Others stand at the addresses, with empty stores."""
    for host in cluster.controller_hosts:
        cluster.kill(host)
        cluster.disks[host].wipe()
    # Another log: what was agreed on in the old one is no measure of it.
    cluster.raft_watch = RaftWatch()
    cluster.states = StateWatch()
    cluster.witness = Witness(cluster.raft_watch, cluster.counts)
    for host in cluster.controller_hosts:
        cluster.boot(host)
    cluster.run_until(lambda: cluster.leader() is not None, SETTLED_MS_MAX)


@pytest.mark.costly
@pytest.mark.few
@pytest.mark.parametrize("seed", range(1, 6))
def test_set_when_imported_below_running_brokers_then_roles_stay_and_epochs_go_on(
    seed: int,
) -> None:
    """A master of an older epoch, or two in one, would be found by the cluster's own watch."""
    cluster = Cluster(seed, SimOptions(broker_sets=1))
    try:
        first = cluster.epoch()
        host = cluster.master().host
        cluster.kill(host)
        cluster.run_until(lambda: cluster.has_master_after(first), SETTLED_MS_MAX)
        cluster.boot(host)
        cluster.run_until(cluster.is_settled, SETTLED_MS_MAX, step_ms=50)
        said = exported(cluster.controllers[cluster.the_leader()].machine.state.sets[NAME])
        roles = {host: (one.role, one.master_epoch) for host, one in cluster.brokers.items()}
        replace_controllers(cluster)
        cluster.run_for(2_000)
        task = cluster.send(
            cluster.the_leader(), RequestCode.IMPORT_BROKER_SET, {"brokerName": NAME}, said.encode()
        )
        cluster.run_until(task.done, SETTLED_MS_MAX)
        assert task.result().code == 0, task.result().remark
        cluster.run_for(15_000)
        assert roles == {
            host: (one.role, one.master_epoch) for host, one in cluster.brokers.items()
        }
        assert cluster.epoch() == said.master_epoch > first
        master = cluster.master()
        cluster.kill(master.host)
        cluster.run_until(lambda: cluster.has_master_after(said.master_epoch), SETTLED_MS_MAX)
        assert cluster.master().master_epoch == said.master_epoch + 1
        cluster.boot(master.host)
        cluster.run_until(cluster.is_settled, SETTLED_MS_MAX, step_ms=50)
    finally:
        cluster.close()
