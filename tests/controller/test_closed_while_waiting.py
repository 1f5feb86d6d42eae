"""A master ends while a request of its own waits to be decided."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmqha.controller.aio.group_requests import CHANGES_MAX
from rmqha.controller.aio.service import ControllerService
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.command import RemotingCommand
from rmqha.sim.cluster import SimOptions
from tests.controller.test_service import Cluster

SECOND_MS = 1_000


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Three controllers, one set of three brokers, all well."""
    one = Cluster(1, SimOptions(broker_sets=1))
    yield one
    one.finish()


@pytest.mark.parametrize(
    "code", [RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, RequestCode.CONTROLLER_GET_REPLICA_INFO]
)
def test_master_when_it_ends_while_its_request_waits_for_a_round_then_it_is_replaced_at_once(
    cluster: Cluster, code: RequestCode
) -> None:
    """The request was decided after the close, and brought a dead master back for 10 s."""
    master, leader = cluster.master(), cluster.the_leader()
    service = cluster.controllers[leader]
    assert service.raft.core is not None
    service.raft.core.use_lease(False)
    one = service.machine.state.sets["set-0"]
    assert one.master_broker_id is not None
    known = service.machine.liveness.info(one.cluster_name, "set-0", one.master_broker_id)
    assert known is not None
    assert known.connection is not None
    connection = service.server.connection(known.connection)
    assert connection is not None
    asked = RemotingCommand(
        code,
        ext_fields={
            "brokerName": "set-0",
            "masterBrokerId": str(one.master_broker_id),
            "masterEpoch": str(one.master_epoch),
        },
        body=b'{"syncStateSet":[1,2,3],"syncStateSetEpoch":999}',
    )
    epoch = one.master_epoch
    cluster.net.contexts[leader].copy().run(service.on_commands, connection, [asked])
    waiting = dict(service._reads)
    assert waiting
    cluster.kill(master.host)
    assert cluster.run_until(lambda: cluster.has_master_after(epoch), 15_000) < SECOND_MS
    assert not waiting.keys() & service._reads.keys()


def ask_for_changes(cluster: Cluster) -> ControllerService:
    """The leader, of which a broker asks as many changes of the group as may wait."""
    leader = cluster.the_leader()
    service = cluster.controllers[leader]
    one = service.machine.state.sets["set-0"]
    assert one.master_broker_id is not None
    known = service.machine.liveness.info(one.cluster_name, "set-0", one.master_broker_id)
    assert known is not None
    assert known.connection is not None
    connection = service.server.connection(known.connection)
    assert connection is not None
    fields = {"action": "add", "nodeId": "n9", "address": "nowhere:1", "waitMs": "600000"}
    code = int(RequestCode.CHANGE_CONTROLLER_MEMBERS)
    asked = [RemotingCommand(code, ext_fields=fields) for _ in range(CHANGES_MAX)]
    context = cluster.net.contexts[leader].copy()
    cluster.loop.call_soon(service.on_commands, connection, asked, context=context)
    cluster.run_for(1_000)
    assert len(service._group._waiting) == CHANGES_MAX
    return service


def test_asker_when_it_ends_while_its_change_of_the_group_waits_then_others_may_ask(
    cluster: Cluster,
) -> None:
    """Eight interrupted ``addController`` kept out every change and handover for ten minutes."""
    master, service = cluster.master(), ask_for_changes(cluster)
    cluster.kill(master.host)
    cluster.run_for(100)
    assert len(service._group._waiting) == 0
    assert service.raft.members().find("n9") is not None


def test_node_when_it_stops_while_changes_of_the_group_wait_then_the_log_does_not_blame_the_asker(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That nobody waited for it any more was read at every stop, and was not so."""
    service, said = ask_for_changes(cluster), list[object]()
    monkeypatch.setattr(service._group, "_say", lambda *facts: said.append(facts[-1]))
    context = cluster.net.contexts[cluster.the_leader()].copy()
    task = context.run(cluster.loop.create_task, service.close())
    cluster.run_until(task.done, 10_000)
    assert said == ["this node stops"] * CHANGES_MAX
