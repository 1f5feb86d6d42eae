"""Java's broker.conf, checked: what is taken, what is refused and in which words."""

from __future__ import annotations

import pytest

from rmqha.base.errors import ConfigInvalid
from rmqha.broker.common.settings import BrokerConfig, load_config

BASE = {"enableControllerMode": "true", "controllerAddr": "10.0.0.9:9878"}


def load(**keys: str) -> BrokerConfig:
    """A configuration with these keys beside the necessary ones."""
    return load_config(
        {**BASE, **keys}, host_name="box", local_address="10.0.0.5", user_home="/home/rmq"
    )


def test_defaults_when_nothing_else_is_given_then_they_are_javas() -> None:
    """A file of two lines must do what Java does with it."""
    config = load()
    assert (config.cluster_name, config.broker_name) == ("DefaultCluster", "box")
    assert (config.address, config.ha_address) == ("10.0.0.5:10911", "10.0.0.5:10912")
    assert config.fast_port == 10909
    assert config.identity_path == "/home/rmq/store/brokerIdentity"
    assert config.epoch_path == "/home/rmq/store/epochFileCheckpoint"
    assert config.replicas.broker_heartbeat_interval_ms == 1000
    assert config.store.enable_controller_mode
    assert config.unknown == ()


def test_ports_and_addresses_when_given_then_they_are_used() -> None:
    """haListenPort follows listenPort unless it is set; brokerIP2 follows brokerIP1."""
    assert load(listenPort="30911").ha_address == "10.0.0.5:30912"
    config = load(brokerIP1="10.1.1.1", haListenPort="40000", controllerAddr="a:1;b:2;a:1")
    assert (config.address, config.ha_address) == ("10.1.1.1:10911", "10.1.1.1:40000")
    assert config.controllers == ("a:1", "b:2")
    assert load(brokerIP2="10.2.2.2").ha_address == "10.2.2.2:10912"


def test_replication_and_store_keys_when_given_then_they_reach_their_rooms() -> None:
    """One file for everything, as in Java."""
    config = load(
        allAckInSyncStateSet="true", inSyncReplicas="2", flushDiskType="SYNC_FLUSH",
        mappedFileSizeCommitLog="65536", slaveTimeout="1234", syncFromLastFile="true",
        brokerElectionPriority="7", asyncLearner="true", heldBytesMax="70000000",
    )  # fmt: skip
    assert config.remoting.held_bytes_max == 70_000_000
    assert config.ha.all_ack_in_sync_state_set
    assert config.ha.sync_from_last_file
    assert (config.ha.in_sync_replicas, config.ha.slave_timeout_ms) == (2, 1234)
    assert config.store.sync_flush
    assert config.store.mapped_file_size_commit_log == 65536
    assert config.replicas.broker_election_priority == 7
    assert config.replicas.async_learner
    assert config.ha.async_learner


def test_unknown_keys_when_given_then_they_are_kept_and_named() -> None:
    """Files for Java hold dozens of them; they must not stop a broker."""
    config = load(sendMessageThreadPoolNums="16", slaveTimeout="3000")
    assert config.unknown == ("sendMessageThreadPoolNums",)
    assert config.values["sendMessageThreadPoolNums"] == "16"


@pytest.mark.parametrize(
    ("period", "used"), [("1000", 10_000), ("30000", 30_000), ("999999", 60_000)]
)
def test_register_period_when_set_then_it_stays_between_ten_seconds_and_a_minute(
    period: str, used: int
) -> None:
    """As Java clamps it."""
    assert load(registerNameServerPeriod=period).register_name_server_period_ms == used


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("enableControllerMode", "maybe", "enableControllerMode=maybe is neither true nor false"),
        ("controllerAddr", "", "controllerAddr is missing"),
        ("controllerAddr", "nowhere", "controllerAddr: address 'nowhere'"),
        ("controllerAddr", "a:1,b:2", "controllerAddr: address 'a:1,b:2'"),
        ("namesrvAddr", "http://a:1", "namesrvAddr: address 'http://a:1'"),
        ("namesrvAddr", "1.2.3.4", "namesrvAddr: address '1.2.3.4'"),
        ("listenPort", "many", "listenPort=many is not a number"),
        ("listenPort", "70000", "listenPort=70000 is not a port"),
        ("listenPort", "2", "leaves no room"),
        ("haListenPort", "10911", "haListenPort=10911 is listenPort"),
        ("haListenPort", "10909", "haListenPort=10909 is listenPort"),
        ("brokerIP1", "localhost", "brokerIP1='localhost' is not an IP address"),
        ("brokerName", "a#b", "brokerName='a#b' holds other than"),
        ("brokerHeartbeatInterval", "0", "brokerHeartbeatInterval=0 must be positive"),
        ("heldBytesMax", "1000", "heldBytesMax=1000 must be at least 67108864"),
        ("minInSyncReplicas", "0", "minInSyncReplicas=0 must be positive"),
        ("syncBrokerMetadataPeriod", "-1", "must not be negative"),
        ("asyncLearner", "yes", "asyncLearner=yes is neither true nor false"),
        ("flushDiskType", "NEVER", "flushDiskType=NEVER"),
        ("logLevel", "loud", "logLevel=loud is not a level"),
        ("msgTraceTopicName", "../traces", "msgTraceTopicName: topic"),
        ("brokerPermission", "8", "brokerPermission=8 is not from 0 to 7"),
        ("brokerPermission", "99", "brokerPermission=99 is not from 0 to 7"),
        ("haSecret", "too short", "haSecret must have 16 characters"),
        ("haSecretAccepted", "too short", "haSecretAccepted must have 16 characters"),
        ("haSecretAccepted", "another secret of 20", "haSecretAccepted needs haSecret"),
        ("haProofOptional", "true", "haProofOptional=true needs haSecret"),
        ("haProofOptional", "perhaps", "haProofOptional=perhaps is neither true nor false"),
    ],
)
def test_bad_value_when_read_then_the_error_names_key_and_reason(
    key: str, value: str, says: str
) -> None:
    """Somebody has to mend it at three in the morning."""
    properties = {**BASE, key: value}
    if not value:
        del properties[key]
    with pytest.raises(ConfigInvalid, match="(?s)" + says.replace("'", ".")):
        load_config(properties, host_name="box", local_address="10.0.0.5", user_home="/h")


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({}, None),
        ({"brokerRole": "SYNC_MASTER", "brokerId": "0"}, None),
        ({"brokerRole": "SLAVE"}, "brokerRole=SLAVE"),
        ({"brokerId": "1"}, "brokerId=1"),
    ],
)
def test_config_without_controllers_then_one_master_alone_is_served(
    keys: dict[str, str], problem: str | None
) -> None:
    """A classic slave would find nobody that speaks its replication protocol."""
    properties = {"enableControllerMode": "false", **keys}
    if problem is not None:
        with pytest.raises(ConfigInvalid, match=problem):
            load_config(properties, host_name="h", local_address="10.0.0.1", user_home="/home")
        return
    config = load_config(properties, host_name="h", local_address="10.0.0.1", user_home="/home")
    assert config.controllers == ()
    assert config.integer("brokerId") == 0
