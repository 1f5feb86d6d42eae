"""A broker's configuration: the keys of Java's ``broker.conf`` that this broker acts on.

Keys of the store and of replication are read by those rooms from the same properties. Unknown
keys are kept and named once in the log: files written for Java brokers hold many that size its
threads and buffers.

Source: BrokerConfig, MessageStoreConfig and NettyServerConfig of RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from ipaddress import ip_address

from msgspec import Struct
from msgspec.structs import replace

from rmqha.auth.settings import BROKER_DEFAULTS as AUTH_DEFAULTS
from rmqha.auth.settings import AuthSettings
from rmqha.auth.settings import load_settings as load_auth_settings
from rmqha.base.errors import ConfigInvalid
from rmqha.base.proofs import check_secrets
from rmqha.broker.common.lookup_settings import DEFAULTS as LOOKUP_DEFAULTS
from rmqha.broker.common.lookup_settings import LookupSettings, load_lookup_settings
from rmqha.broker.common.replicas_settings import ReplicasSettings
from rmqha.ha.settings import HaSettings, load_ha_settings
from rmqha.remoting.address import PORT_MAX, format_address, parse_address, split_addresses
from rmqha.remoting.settings import (
    CONNECTIONS_MAX,
    HELD_BYTES_MAX,
    RemotingSettings,
    too_little_held,
)
from rmqha.remoting.topic_names import PERM_ALL, topic_error
from rmqha.runtime.tls_settings import TLS_DEFAULTS
from rmqha.store.settings import StoreSettings
from rmqha.store.settings import load_settings as load_store_settings
from rmqha.web.settings import DEFAULTS as STATUS_PAGE_DEFAULTS
from rmqha.web.settings import status_address

DEFAULTS: dict[str, str] = {
    "accessMessageInMemoryMaxRatio": "40",
    "allAckInSyncStateSet": "false",
    "asyncLearner": "false",
    "autoCreateSubscriptionGroup": "true",
    "autoCreateTopicEnable": "true",
    "bindAddress": "0.0.0.0",
    "brokerClusterName": "DefaultCluster",
    "brokerElectionPriority": "2147483647",
    "brokerHeartbeatInterval": "1000",
    "brokerIP1": "",
    "brokerIP2": "",
    "brokerId": "-1",
    "brokerName": "",
    "brokerPermission": "6",
    "brokerRole": "SLAVE",
    "checkSyncStateSetPeriod": "5000",
    "controllerAddr": "",
    "controllerHeartBeatTimeoutMills": "10000",
    "defaultMessageRequestMode": "PULL",
    "defaultPopShareQueueNum": "-1",
    "defaultQueryMaxNum": "32",
    "defaultTopicQueueNums": "8",
    "enableControllerMode": "false",
    "enablePropertyFilter": "false",
    "flushConsumerOffsetInterval": "5000",
    "flushDelayOffsetInterval": "10000",
    "flushDiskType": "ASYNC_FLUSH",
    "haListenPort": "0",
    "haMaxTimeSlaveNotCatchup": "15000",
    "haSendHeartbeatInterval": "5000",
    "inSyncReplicas": "1",
    "listenPort": "10911",
    "logLevel": "info",
    "logStyle": "auto",
    "longPollingEnable": "true",
    "mappedFileSizeCommitLog": "1073741824",
    "mappedFileSizeConsumeQueue": "6000000",
    "maxMessageSize": "4194304",
    "maxTransferBytesOnMessageInDisk": "65536",
    "maxTransferBytesOnMessageInMemory": "262144",
    "maxTransferCountOnMessageInDisk": "8",
    "maxTransferCountOnMessageInMemory": "32",
    "metricsExporterType": "DISABLE",
    "metricsLabel": "",
    "metricsPromExporterHost": "",
    "metricsPromExporterPort": "5557",
    "minInSyncReplicas": "1",
    "msgTraceTopicName": "RMQ_SYS_TRACE_TOPIC",
    "namesrvAddr": "",
    "popPollingMapSize": "100000",
    "popPollingSize": "1024",
    "recallMessageEnable": "false",
    "regionId": "DefaultRegion",
    "registerBrokerTimeoutMills": "24000",
    "registerNameServerPeriod": "30000",
    "rejectTransactionMessage": "false",
    "reviveQueueNum": "8",
    "shortPollingTimeMills": "1000",
    "slaveReadEnable": "false",
    "storePathBrokerIdentity": "",
    "storePathCommitLog": "",
    "storePathEpochFile": "",
    "storePathRootDir": "",
    "storeReplyMessageEnable": "true",
    "syncBrokerMetadataPeriod": "5000",
    "syncControllerMetadataPeriod": "10000",
    "syncFromLastFile": "false",
    "timerFlushIntervalMs": "1000",
    "timerMaxDelaySec": "259200",
    "timerPrecisionMs": "1000",
    "timerWheelEnable": "true",
    "traceOn": "true",
    "traceTopicEnable": "false",
    "useServerSideResetOffset": "true",
    "transactionCheckInterval": "30000",
    "transactionCheckMax": "15",
    "transactionTimeOut": "6000",
    "validateSystemTopicWhenUpdateTopic": "true",
    # our own
    "clientMembershipsMax": "100000",
    "clientRequestsPendingMax": "1000",
    "consumerOffsetsMax": "2000000",
    "diskStallMs": "2000",
    "fileUmask": "077",
    "heldBytesMax": str(HELD_BYTES_MAX),
    "haBusyWaitMicros": "0",
    "haProofOptional": "false",
    "haSecret": "",
    "haSecretAccepted": "",
    "haTlsEnable": "true",
    "heldPullTimeMax": "60000",
    "httpAllowedHosts": "",
    "heldPullsMax": "100000",
    "popCheckPointsMax": "500000",
    "popOrderQueuesMax": "200000",
    "queueLocksMax": "1000000",
    "requestModesMax": "100000",
    "scrubBytesPerSecond": "524288",
    "scrubPassIntervalMs": "3600000",
    "uncheckedTailBytes": "67108864",
    "statisticsNamesMax": "100000",
    "sendsInFlightMax": "100000",
    "slaveStartOverEnable": "false",
    "syncSlaveMetadataPeriod": "3000",
    "timersInMemoryMax": "500000",
    "traceBytesMax": "268435456",
    "traceFile": "",
    "transactionsOpenMax": "100000",
    "writeLeaseEnable": "true",
    "writeLeaseMarginPercent": "20",
    **LOOKUP_DEFAULTS,
    **STATUS_PAGE_DEFAULTS,
    **TLS_DEFAULTS,
    **AUTH_DEFAULTS,
}
IMPORTANT = (
    "brokerClusterName", "brokerIP1", "brokerIP2", "brokerName", "controllerAddr",
    "enableControllerMode", "haListenPort", "listenPort", "namesrvAddr", "storePathRootDir",
)  # fmt: skip
"""What ``-m`` prints."""

READ_ELSEWHERE = frozenset(
    {
        "checkCRCOnRecover", "cleanFileForciblyEnable", "deleteFileBatchMax", "deleteWhen",
        "diskMaxUsedSpaceRatio", "diskSpaceCleanForciblyRatio", "diskSpaceWarningLevelRatio",
        "duplicationEnable", "enabledAppendPropCRC", "fileReservedTime", "flushIntervalCommitLog",
        "flushIntervalConsumeQueue", "forceVerifyPropCRC", "haFlowControlEnable",
        "haHousekeepingInterval", "haTransferBatchSize", "mapperFileSizeBatchConsumeQueue",
        "maxHaTransferByteInSecond", "maxHashSlotNum", "maxIndexNum", "messageDelayLevel",
        "messageIndexEnable", "slaveTimeout",
    }
)  # fmt: skip
"""Keys of the store and of replication without a default here."""
SETTINGS = READ_ELSEWHERE.union(DEFAULTS)
"""Every key that has an effect."""

MARGIN_PERCENT_MAX = 90
REGISTER_PERIOD_MS_MIN, REGISTER_PERIOD_MS_MAX = 10_000, 60_000
FAST_PORT_DISTANCE = 2
MASTER_ROLES = ("ASYNC_MASTER", "SYNC_MASTER")
TEXT_MAX = 255
_INTEGER = re.compile(r"-?[0-9]{1,18}")
_NAME = re.compile(r"[|%a-zA-Z0-9_.:-]+")


class BrokerConfig(Struct, frozen=True):
    """A checked configuration.

    Attributes:
        values: every known key and its text, then the unknown ones.
        unknown: keys that nobody here reads.
        host, ha_host: brokerIP1 and brokerIP2: what others are told to connect to.
        port, fast_port, ha_port: listenPort, two below it (Java's VIP channel), haListenPort.
        broker_path_identity, epoch_path: where the identity and epoch files are.
        name_servers: of ``namesrvAddr``; with ``lookups`` those that there are may be others.
        connections_max: of each of the two ports.
        auth: users and permissions.
    """

    values: dict[str, str]
    unknown: tuple[str, ...]
    cluster_name: str
    broker_name: str
    host: str
    ha_host: str
    port: int
    ha_port: int
    name_servers: tuple[str, ...]
    identity_path: str
    epoch_path: str
    store: StoreSettings
    ha: HaSettings
    replicas: ReplicasSettings
    auth: AuthSettings
    lookups: LookupSettings
    connections_max: int = CONNECTIONS_MAX

    @property
    def controllers(self) -> tuple[str, ...]:
        """The addresses of ``controllerAddr``, which may change; none for a broker alone."""
        return _addresses("controllerAddr", self.values)

    @property
    def remoting(self) -> RemotingSettings:
        """Limits of the ports and of the broker's own connections."""
        return RemotingSettings(
            connections_max=self.connections_max,
            held_bytes_max=self.integer("heldBytesMax"),
            invoke_timeout_ms=self.replicas.invoke_timeout_ms,
        )

    @property
    def fast_port(self) -> int:
        """The second port, of which slaves ask topics and timers."""
        return self.port - FAST_PORT_DISTANCE

    @property
    def address(self) -> str:
        """What controllers, name servers and clients know this broker by."""
        return format_address(self.host, self.port)

    @property
    def ha_address(self) -> str:
        """Where slaves connect while this broker is master."""
        return format_address(self.ha_host, self.ha_port)

    @property
    def register_name_server_period_ms(self) -> int:
        """Java keeps it between 10 and 60 seconds."""
        period_ms = self.integer("registerNameServerPeriod")
        return min(max(period_ms, REGISTER_PERIOD_MS_MIN), REGISTER_PERIOD_MS_MAX)

    @property
    def stall_ms(self) -> int:
        """So long the event loop or a write may take, well within the write lease; 0 for ever."""
        return min(self.integer("diskStallMs"), self.replicas.write_lease_ms // 2)

    def change(self, values: Mapping[str, str]) -> None:
        """Take other values, checked, of keys that may change (``live_config.LIVE``)."""
        self.values.update(values)

    def integer(self, key: str) -> int:
        """A key's number, checked when the file was read."""
        return int(self.values[key])

    def boolean(self, key: str) -> bool:
        """A key's truth: "true" in any case."""
        return self.values[key].strip().lower() == "true"


def load_config(
    properties: Mapping[str, str], *, host_name: str, local_address: str, user_home: str
) -> BrokerConfig:
    """Check a broker's properties.

    Args:
        properties: of the file, flags applied.
        host_name: default of brokerName.
        local_address: default of brokerIP1 and brokerIP2.
        user_home: for Java's default store path.

    Raises:
        ConfigInvalid: the first key that cannot be used, and why.
    """
    values = dict(DEFAULTS)
    values |= {key: text.strip() for key, text in properties.items() if text.strip()}
    unknown = tuple(sorted(k for k in values if k not in DEFAULTS and k not in READ_ELSEWHERE))
    _check_mode(values, properties)
    for key, default in (
        ("brokerName", host_name),
        ("brokerIP1", local_address),
        ("storePathRootDir", os.path.join(user_home, "store")),
    ):
        values[key] = values[key] or default
    values["brokerIP2"] = values["brokerIP2"] or values["brokerIP1"]
    check_values(values)
    port = int(values["listenPort"])
    if int(values["haListenPort"]) <= 0:
        values["haListenPort"] = str(port + 1)
    ha_port = _port("haListenPort", values["haListenPort"])
    if ha_port in (port, port - FAST_PORT_DISTANCE):
        raise ConfigInvalid(f"haListenPort={ha_port} is listenPort or the port two below it")
    root = values["storePathRootDir"]
    store = load_store_settings(values, user_home=user_home)
    values["storePathCommitLog"] = store.store_path_commit_log
    config = BrokerConfig(
        values=values,
        unknown=unknown,
        cluster_name=_name("brokerClusterName", values),
        broker_name=_name("brokerName", values),
        host=_host("brokerIP1", values),
        ha_host=_host("brokerIP2", values),
        port=port,
        ha_port=ha_port,
        name_servers=_addresses("namesrvAddr", values),
        identity_path=values["storePathBrokerIdentity"] or os.path.join(root, "brokerIdentity"),
        epoch_path=values["storePathEpochFile"] or os.path.join(root, "epochFileCheckpoint"),
        store=store,
        # With SYNC_FLUSH an acknowledgement means a disk, on slaves too; Java's slaves do not wait.
        ha=replace(load_ha_settings(values), ack_flushed_data=store.sync_flush),
        replicas=ReplicasSettings("", "", "", ()),
        auth=load_auth_settings(values),
        lookups=load_lookup_settings(values),
    )
    if config.boolean("enableControllerMode") != bool(config.controllers):
        raise ConfigInvalid("controllerAddr is missing")
    if config.boolean("migrateAuthFromV1Enabled") and not values["plainAclPath"]:
        raise ConfigInvalid("migrateAuthFromV1Enabled=true needs plainAclPath, the plain_acl.yml")
    return replace(config, replicas=_replicas(config))


def _check_mode(values: dict[str, str], properties: Mapping[str, str]) -> None:
    """Without controllers there is one broker alone: the role and id are what the file says."""
    mode = values["enableControllerMode"].strip().lower()
    if mode not in ("true", "false"):
        raise ConfigInvalid(f"enableControllerMode={mode} is neither true nor false")
    if mode == "true":
        return
    values["controllerAddr"] = ""
    if not properties.get("brokerRole", "").strip():
        values["brokerRole"] = "ASYNC_MASTER"
    if values["brokerRole"] not in MASTER_ROLES:
        raise ConfigInvalid(
            f"brokerRole={values['brokerRole']}: without controllers only "
            f"{' and '.join(MASTER_ROLES)} are served"
        )
    if values["brokerId"] not in ("-1", "0"):
        raise ConfigInvalid(f"brokerId={values['brokerId']}: a master without controllers is 0")
    values["brokerId"] = "0"


_MAY_BE_NEGATIVE = ("brokerId", "defaultPopShareQueueNum", "haListenPort")
_POSITIVE = (
    "brokerHeartbeatInterval", "clientMembershipsMax", "clientRequestsPendingMax",
    "consumerOffsetsMax", "controllerHeartBeatTimeoutMills", "defaultTopicQueueNums",
    "heldPullTimeMax", "heldPullsMax", "inSyncReplicas", "maxTransferBytesOnMessageInDisk",
    "maxTransferBytesOnMessageInMemory", "maxTransferCountOnMessageInDisk",
    "maxTransferCountOnMessageInMemory", "minInSyncReplicas", "popCheckPointsMax",
    "popOrderQueuesMax", "popPollingMapSize", "popPollingSize", "queueLocksMax", "requestModesMax",
    "reviveQueueNum", "shortPollingTimeMills",
    "sendsInFlightMax", "statisticsNamesMax", "syncBrokerMetadataPeriod",
    "syncControllerMetadataPeriod", "syncSlaveMetadataPeriod", "defaultQueryMaxNum",
    "flushDelayOffsetInterval", "timerFlushIntervalMs", "timerMaxDelaySec", "timerPrecisionMs",
    "timersInMemoryMax", "transactionCheckInterval", "transactionCheckMax", "transactionTimeOut",
    "transactionsOpenMax",
)  # fmt: skip


def check_values(values: Mapping[str, str]) -> None:
    """Look at each value by itself; raises ConfigInvalid with the first that cannot be used."""
    _check_kinds(values)
    for key in _POSITIVE:
        if int(values[key]) < 1:
            raise ConfigInvalid(f"{key}={values[key]} must be positive")
    _port("metricsPromExporterPort", values["metricsPromExporterPort"])
    port = _port("listenPort", values["listenPort"])
    if port <= FAST_PORT_DISTANCE:
        raise ConfigInvalid(f"listenPort={port} leaves no room for the port two below it")
    status_address(values)
    if (reason := too_little_held(values["heldBytesMax"])) is not None:
        raise ConfigInvalid(reason)
    check_secrets(values, "ha")
    if int(values["brokerPermission"]) > PERM_ALL:
        raise ConfigInvalid(
            f"brokerPermission={values['brokerPermission']} is not from 0 to {PERM_ALL}:"
            " 4 to read, 2 to write, 6 for both, 0 for neither"
        )
    if values["defaultMessageRequestMode"] not in ("PULL", "POP"):
        raise ConfigInvalid(
            f"defaultMessageRequestMode={values['defaultMessageRequestMode']} is neither PULL nor POP"
        )
    if (reason := topic_error(values["msgTraceTopicName"])) is not None:
        raise ConfigInvalid(f"msgTraceTopicName: {reason}")
    if values["logLevel"] not in ("debug", "info", "warning", "error"):
        raise ConfigInvalid(f"logLevel={values['logLevel']} is not a level")
    if values["logStyle"] not in ("auto", "json", "console"):
        raise ConfigInvalid(f"logStyle={values['logStyle']} is not a style")


def _check_kinds(values: Mapping[str, str]) -> None:
    for key, default in DEFAULTS.items():
        text = values[key]
        if _INTEGER.fullmatch(default):
            if not _INTEGER.fullmatch(text):
                raise ConfigInvalid(f"{key}={text} is not a number")
            if int(text) < 0 and key not in _MAY_BE_NEGATIVE:
                raise ConfigInvalid(f"{key}={text} must not be negative")
        elif default in ("true", "false") and text.lower() not in ("true", "false"):
            raise ConfigInvalid(f"{key}={text} is neither true nor false")


def _port(key: str, text: str) -> int:
    if not _INTEGER.fullmatch(text) or not 0 < int(text) <= PORT_MAX:
        raise ConfigInvalid(f"{key}={text} is not a port from 1 to {PORT_MAX}")
    return int(text)


def _name(key: str, values: Mapping[str, str]) -> str:
    # The identity file parts its fields by '#', and Java cannot escape one.
    text = values[key]
    if not _NAME.fullmatch(text) or len(text) > TEXT_MAX:
        raise ConfigInvalid(f"{key}={text!r} holds other than letters, digits and |%_-.:")
    return text


def _host(key: str, values: Mapping[str, str]) -> str:
    """Records carry the address as bytes, so it must be one; names are for the resolver."""
    text = values[key].strip("[]")
    try:
        ip_address(text)
    except ValueError as error:
        raise ConfigInvalid(f"{key}={text!r} is not an IP address") from error
    return text


def _addresses(key: str, values: Mapping[str, str]) -> tuple[str, ...]:
    found = split_addresses(values[key])
    for address in found:
        try:
            parse_address(address)
        except ConfigInvalid as error:
            raise ConfigInvalid(f"{key}: {error}") from error
    return tuple(dict.fromkeys(found))


def _replicas(config: BrokerConfig) -> ReplicasSettings:
    return ReplicasSettings(
        cluster_name=config.cluster_name,
        broker_name=config.broker_name,
        broker_address=config.address,
        controllers=() if config.lookups.controllers_by_dns else config.controllers,
        broker_heartbeat_interval_ms=config.integer("brokerHeartbeatInterval"),
        controller_heart_beat_timeout_ms=config.integer("controllerHeartBeatTimeoutMills"),
        broker_election_priority=config.integer("brokerElectionPriority"),
        sync_broker_metadata_period_ms=config.integer("syncBrokerMetadataPeriod"),
        sync_controller_metadata_period_ms=config.integer("syncControllerMetadataPeriod"),
        write_lease_ms=_write_lease_ms(config),
        async_learner=config.boolean("asyncLearner"),
        slave_start_over_enable=config.boolean("slaveStartOverEnable"),
        slaves_must_acknowledge=config.ha.all_ack_in_sync_state_set
        or config.ha.in_sync_replicas > 1,
    )


def _write_lease_ms(config: BrokerConfig) -> int:
    """The controllers' timeout less the margin for clocks of different rates; see ADR 0016."""
    if not config.boolean("writeLeaseEnable") or not config.controllers:
        return 0
    margin = config.integer("writeLeaseMarginPercent")
    if not 1 <= margin <= MARGIN_PERCENT_MAX:
        raise ConfigInvalid(
            f"writeLeaseMarginPercent={margin} is not from 1 to {MARGIN_PERCENT_MAX}"
        )
    timeout_ms = config.integer("controllerHeartBeatTimeoutMills")
    lease_ms = timeout_ms * (100 - margin) // 100
    interval_ms = config.integer("brokerHeartbeatInterval")
    if lease_ms < 2 * interval_ms:
        raise ConfigInvalid(
            f"the write lease of {lease_ms} ms ({100 - margin} % of controllerHeartBeatTimeoutMills"
            f"={timeout_ms}) is shorter than two heartbeats (brokerHeartbeatInterval={interval_ms})"
            ": one lost heartbeat would stop the writes; set writeLeaseEnable=false to do without"
        )
    return lease_ms
