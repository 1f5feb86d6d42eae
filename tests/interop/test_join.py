"""Brokers of 5.3.3 join: ids, first election, SyncStateSet, and what the real mqadmin shows."""

from __future__ import annotations

import pytest

from rmqha.testing.real.cluster import Cluster
from rmqha.testing.real.mqadmin import fields, mqadmin
from rmqha.testing.real.processes import wait_until
from rmqha.testing.real.producer import Producer, assert_nothing_lost
from tests.interop.our_mqadmin import our_mqadmin

NAME = "broker-a"
# ControllerConfig fields that are never null in a three-node group.
CONFIG_KEYS = {
    "rocketmqHome", "configStorePath", "controllerType", "scanNotActiveBrokerInterval",
    "controllerThreadPoolNums", "controllerRequestThreadPoolQueueCapacity", "mappedFileSize",
    "controllerStorePath", "electMasterMaxRetryCount", "enableElectUncleanMaster",
    "isProcessReadEvent", "notifyBrokerRoleChanged", "scanInactiveMasterInterval",
    "metricsExporterType", "metricsPromExporterPort", "metricsInDelta", "configBlackList",
    "listenPort", "serverWorkerThreads", "serverChannelMaxIdleTimeSeconds",
}  # fmt: skip


def test_brokers_that_join_in_order_get_ids_and_all_are_in_sync(cluster: Cluster) -> None:
    """Ids start at 1 and never repeat; each join adds one to the SyncStateSet and its epoch."""
    info = cluster.controllers.replica_info(NAME)
    assert info is not None
    assert [1, 2, 3] == [broker.controller_id for broker in cluster.brokers]
    assert frozenset({1, 2, 3}) == info.sync_state_set
    assert (1, cluster.brokers[0].address) == (info.master_id, info.master_address)
    assert 1 == info.master_epoch
    assert info.sync_state_set_epoch >= 3


def test_sync_state_data_lists_every_replica_as_alive(cluster: Cluster) -> None:
    """1006 is what mqadmin and dashboards show."""
    data = cluster.controllers.sync_state_set(NAME)
    assert data is not None
    assert [] == data["notInSyncReplicas"]
    expected = [
        {"alive": True, "brokerAddress": b.address, "brokerId": b.controller_id, "brokerName": NAME}
        for b in cluster.brokers
    ]
    assert expected == sorted(data["inSyncReplicas"], key=lambda replica: replica["brokerId"])
    assert cluster.brokers[0].address == data["masterAddress"]


def test_messages_acked_by_the_whole_set_are_on_every_replica(cluster: Cluster, topic: str) -> None:
    """With allAckInSyncStateSet an acknowledgement means every log has the message."""
    with Producer(cluster.name_server.address, topic) as producer:
        producer.wait_for_acks(300)
        assert_nothing_lost(cluster, producer, replicas=cluster.brokers)


def test_get_controller_metadata_names_group_leader_and_peers(cluster: Cluster) -> None:
    """Operators look here first; any node must answer."""

    def shows(leader: int) -> None:
        for address in cluster.controllers.addresses:
            shown = fields(mqadmin("getControllerMetaData", "-a", address))
            assert [cluster.controllers.addresses[leader]] == shown["ControllerLeaderAddress"]
            if cluster.kind == "jraft":
                assert cluster.controllers.addresses == shown["Peer"]
            else:
                named = [f"n{i}:{a}" for i, a in enumerate(cluster.controllers.addresses)]
                assert ["group1"] == shown["ControllerGroup"]
                assert [f"n{leader}"] == shown["ControllerLeaderId"]
                assert named == shown["Peer"]

    cluster.controllers.while_one_leads(shows)


def test_get_sync_state_set_prints_every_replica(cluster: Cluster) -> None:
    """The tool parses ReplicaIdentity by constructor: field names must be exact."""
    output = mqadmin("getSyncStateSet", "-a", cluster.controllers.addresses[0], "-b", NAME)
    info = cluster.controllers.replica_info(NAME)
    assert info is not None
    shown = fields(output)
    assert [NAME] == shown["brokerName"]
    assert [str(info.master_id)] == shown["MasterBrokerId"]
    assert [info.master_address] == shown["MasterAddr"]
    assert [str(info.master_epoch)] == shown["MasterEpoch"]
    assert [str(info.sync_state_set_epoch)] == shown["SyncStateSetEpoch"]
    assert ["3"] == shown["SyncStateSetNums"]
    for broker in cluster.brokers:
        identity = (
            f"ReplicaIdentity{{brokerName='{NAME}', brokerId={broker.controller_id}, "
            f"brokerAddress='{broker.address}', alive=true}}"
        )
        assert identity in shown["InSyncReplica"]


def test_get_sync_state_set_by_cluster_asks_the_name_server_for_the_sets(cluster: Cluster) -> None:
    """``-c`` resolves the broker sets through the name server."""
    output = mqadmin(
        "getSyncStateSet", "-a", cluster.controllers.addresses[1],
        "-n", cluster.name_server.address, "-c", "DefaultCluster",
    )  # fmt: skip
    assert [NAME] == fields(output)["brokerName"]


def test_get_broker_epoch_shows_one_history_on_all_brokers(cluster: Cluster) -> None:
    """The epoch files are what truncation goes by: they must agree."""
    output = mqadmin("getBrokerEpoch", "-n", cluster.name_server.address, "-b", NAME)
    addresses = [broker.address for broker in cluster.brokers]
    assert sorted(addresses) == sorted(fields(output)["brokerAddr"])
    histories = [part for part in output.split("#clusterName") if "EpochEntry" in part]
    starts = [
        [word for word in part.split() if word.startswith(("EpochEntry", "startOffset"))]
        for part in histories
    ]
    assert 3 == len(starts)
    assert starts[0] == starts[1] == starts[2]


def test_get_controller_config_prints_every_node_and_key(cluster: Cluster) -> None:
    """The configuration text is parsed as properties and printed per node."""
    output = mqadmin("getControllerConfig", "-a", cluster.controllers.address_list)
    nodes = [part for part in output.split("============") if "=  " in part]
    assert len(cluster.controllers.addresses) == len(nodes)
    for address in cluster.controllers.addresses:
        assert f"============{address}============" in output
    for text in nodes:
        shown = _config(text)
        assert not CONFIG_KEYS - shown.keys()
        assert "false" == shown["enableElectUncleanMaster"]
        assert "configBlackList;configStorePath" == shown["configBlackList"]


def test_update_controller_config_changes_the_addressed_nodes(cluster: Cluster) -> None:
    """A live key takes effect on the node that was asked and is shown there."""
    address = cluster.controllers.addresses[0]
    key = "electMasterMaxRetryCount"
    for value in ("4", "3"):
        output = mqadmin("updateControllerConfig", "-a", address, "-k", key, "-v", value)
        assert f"update controller config success![{address}]\n{key} : {value}" in output

        def shown(expected: str = value) -> bool:
            return expected == _config(mqadmin("getControllerConfig", "-a", address)).get(key)

        wait_until(shown, 10.0, f"{key} to be {value}")


@pytest.mark.parametrize("key", ["configStorePath", "configBlackList", "rocketmqHome"])
def test_update_controller_config_of_a_black_listed_key_is_refused(
    cluster: Cluster, key: str
) -> None:
    """Where the configuration lies must not be changed from outside."""
    address = cluster.controllers.addresses[0]
    output = mqadmin("updateControllerConfig", "-a", address, "-k", key, "-v", "elsewhere")
    assert "CODE: 16" in output
    assert "Can not update config in black list." in output


def _config(text: str) -> dict[str, str]:
    pairs = (line.partition("=  ") for line in text.splitlines() if "=  " in line)
    return {key.strip(): value.strip() for key, _, value in pairs}


def _lines(text: str) -> list[str]:
    return sorted(line.strip() for line in text.splitlines() if line.strip())


@pytest.mark.parametrize("command", ["getControllerMetaData", "getSyncStateSet", "getBrokerEpoch"])
def test_our_mqadmin_prints_what_javas_prints(cluster: Cluster, command: str) -> None:
    """Scripts that parse the Java tool's text must be able to change tools, on any controllers."""
    controller = cluster.controllers.addresses[0]
    arguments = {
        "getControllerMetaData": ["-a", controller],
        "getSyncStateSet": ["-a", controller, "-b", NAME],
        "getBrokerEpoch": ["-n", cluster.name_server.address, "-b", NAME],
    }[command]

    def prints_the_same(_: int) -> None:
        ours = our_mqadmin(command, *arguments, "--plain")
        assert _lines(mqadmin(command, *arguments)) == _lines(ours)

    cluster.controllers.while_one_leads(prints_the_same)
