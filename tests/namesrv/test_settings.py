"""The configuration file: Java's keys and defaults; what cannot be used is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqha.auth.settings import SERVER_DEFAULTS as AUTH_DEFAULTS
from rmqha.base.errors import ConfigInvalid
from rmqha.cli.mqnamesrv import read_configs
from rmqha.namesrv.settings import DEFAULTS, MUTABLE, POSITIVE, RouteSettings, load_config
from rmqha.runtime.tls_settings import TLS_DEFAULTS

OWN = {
    "brokersMax", "connectionsMax", "kvBytesMax", "logLevel", "logStyle", "metricsExporterType",
    "metricsLabel", "metricsPromExporterHost", "metricsPromExporterPort", "nameLengthMax",
    "registrationBytesMax", "routesMax", "statusPageHost", "statusPagePort", "fileUmask",
    "heldBytesMax", "httpAllowedHosts", *AUTH_DEFAULTS, *TLS_DEFAULTS,
}  # fmt: skip
# What mqadmin getNamesrvConfig shows of a Java 5.3.3 name server, but for paths.
JAVA = """
bindAddress=0.0.0.0 clientRequestThreadPoolNums=8 clientRequestThreadPoolQueueCapacity=50000
clusterTest=false configBlackList=configBlackList;configStorePath;kvConfigPath configStorePath=
defaultThreadPoolNums=16 defaultThreadPoolQueueCapacity=10000
deleteTopicWithBrokerRegistration=false enableAllTopicList=true enableControllerInNamesrv=false
enableShutdownGracefully=false enableTopicList=true kvConfigPath= listenPort=9876
needWaitForService=false notifyMinBrokerIdChanged=false orderMessageEnable=false
productEnvName=center returnOrderTopicConfigToBroker=true rocketmqHome=
scanNotActiveBrokerInterval=5000 serverAsyncSemaphoreValue=64 serverCallbackExecutorThreads=0
serverChannelMaxIdleTimeSeconds=120 serverNettyWorkerGroupEnable=true
serverOnewaySemaphoreValue=256 serverPooledByteBufAllocatorEnable=true serverSelectorThreads=3
serverSocketBacklog=1024 serverSocketRcvBufSize=0 serverSocketSndBufSize=0 serverWorkerThreads=8
shutdownWaitTimeSeconds=30 supportActingMaster=false unRegisterBrokerQueueCapacity=3000
useEpollNativeSelector=false waitSecondsForService=45 writeBufferHighWaterMark=0
writeBufferLowWaterMark=0
"""


def test_defaults_equal_what_the_java_name_server_shows() -> None:
    """Operators compare both by 319."""
    java = dict(pair.split("=", 1) for pair in JAVA.split())
    assert java == {key: value for key, value in DEFAULTS.items() if key not in OWN}


def test_settings_when_nothing_is_configured_then_the_cores_defaults() -> None:
    """The table and the dataclass must not drift apart."""
    config = load_config({}, user_home="/home/u", home="/opt/rmq")
    assert RouteSettings() == config.route_settings()
    assert "/home/u/namesrv/kvConfig.json" == config.kv_path
    assert "/home/u/namesrv/namesrv.properties" == config.config_path
    assert "/opt/rmq" == config.values["rocketmqHome"]


def test_settings_when_a_file_was_read_then_changes_are_kept_in_it() -> None:
    """As in Java, whatever configStorePath says."""
    config = load_config({"configStorePath": "/x"}, user_home="/home/u", store_path="/etc/ns.conf")
    assert "/etc/ns.conf" == config.config_path


USER = '{"username":"root","password":"a secret"}'


def test_settings_when_the_environment_has_said_some_then_the_file_keeps_its_own() -> None:
    """A variable may be a secret that was kept out of files on purpose."""
    config = load_config(
        {"initAuthenticationUser": USER, "listenPort": "1", "brokersMax": "7"}, user_home="/h",
        outside={"initAuthenticationUser": None, "listenPort": "9876"},
    )  # fmt: skip
    assert config.to_store["listenPort"] == "9876"
    assert config.to_store["brokersMax"] == "7"
    assert "initAuthenticationUser" not in config.to_store
    assert config.integer("listenPort") == 1


def test_settings_when_the_process_reads_them_then_it_tells_which_the_environment_has_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a 318 writes into the file comes from there."""
    path = tmp_path / "ns.conf"
    path.write_text("listenPort=9876\nenableTopicList=false\n")
    monkeypatch.setenv("enableTopicList", "true")
    monkeypatch.setenv("initAuthenticationUser", USER)
    found = read_configs(str(path)).namesrv
    assert found.boolean("enableTopicList")
    assert found.to_store["enableTopicList"] == "false"
    assert "initAuthenticationUser" not in found.to_store


@pytest.mark.parametrize("said", [{}, {"configStorePath": "/x"}], ids=["nothing", "another"])
def test_settings_when_a_file_was_read_then_where_changes_are_kept_is_not_written(
    said: dict[str, str],
) -> None:
    """A controller in the same process has the key, too: at the next start it took the file for its
    own, and wrote all of its values over those of the name server."""
    config = load_config(said, user_home="/home/u", store_path="/etc/ns.conf")
    stored = {key: text for key, text in config.to_store.items() if key == "configStorePath"}
    assert stored == said


def test_settings_when_keys_are_unknown_then_they_are_kept_and_named() -> None:
    """One file may serve a controller as well."""
    config = load_config({"controllerDLegerGroup": "g", "b": " x "}, user_home="/")
    assert ("b", "controllerDLegerGroup") == config.unknown
    assert "x" == config.values["b"]


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("listenPort", "x", "is not a number"),
        ("listenPort", "65536", "is too large"),
        ("listenPort", "-1", "must not be negative"),
        ("listenPort", "1_0", "is not a number"),
        ("serverWorkerThreads", str(2**31), "is too large"),
        ("clusterTest", "yes", "is neither true nor false"),
        ("heldBytesMax", "67108863", "must be at least 67108864"),
        ("logLevel", "loud", "is not a level"),
        ("statusPagePort", "65536", "is not a port"),
        ("logStyle", "pretty", "is not a style"),
        *((key, "0", "must be at least 1") for key in POSITIVE),
    ],
)
def test_settings_when_a_value_cannot_be_used_then_it_is_named(
    key: str, value: str, reason: str
) -> None:
    """Java logs it, and goes on with its default."""
    with pytest.raises(ConfigInvalid, match=f"{key}={value} {reason}"):
        load_config({key: value}, user_home="/")


def test_mutable_keys_are_known() -> None:
    """A key that is no default could never be changed."""
    assert DEFAULTS.keys() >= MUTABLE
