"""The controller's configuration: Java's property keys, and our own beside them.

Source: ControllerConfig, JraftConfig and NettyServerConfig of RocketMQ 5.1.1 to 5.5. Keys that
size Java's thread pools and buffers are known, shown and without effect here.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct

from rmqha.auth.settings import SERVER_DEFAULTS as AUTH_DEFAULTS
from rmqha.auth.settings import AuthSettings
from rmqha.auth.settings import load_settings as load_auth_settings
from rmqha.base.errors import ConfigInvalid
from rmqha.base.proofs import check_secrets
from rmqha.controller.bounds import contradiction, out_of_bounds
from rmqha.controller.raft.settings import RaftSettings
from rmqha.remoting.address import format_address, parse_address, split_addresses
from rmqha.remoting.settings import SERVER_DEFAULTS, too_little_held
from rmqha.runtime.tls_settings import TLS_DEFAULTS
from rmqha.web.settings import DEFAULTS as STATUS_PAGE_DEFAULTS
from rmqha.web.settings import status_address

NOTHING: Mapping[str, str | None] = MappingProxyType({})
BLACK_LIST = ("configBlackList", "configStorePath", "rocketmqHome")

# Defaults as Java prints them. Every key of this table is shown by 1010.
DEFAULTS: dict[str, str] = {
    **SERVER_DEFAULTS,
    **AUTH_DEFAULTS,
    "configBlackList": "configBlackList;configStorePath",
    "controllerDLegerGroup": "",
    "controllerDLegerPeers": "",
    "controllerDLegerSelfId": "",
    "controllerRequestThreadPoolQueueCapacity": "50000",
    "controllerStorePath": "",
    "controllerThreadPoolNums": "16",
    "controllerType": "DLedger",
    "electMasterMaxRetryCount": "3",
    "enableElectUncleanMaster": "false",
    "isProcessReadEvent": "false",
    "jRaftControllerRPCAddr": "",
    "jRaftElectionTimeoutMs": "1000",
    "jRaftGroupId": "jRaft-Controller",
    "jRaftInitConf": "",
    "jRaftScanWaitTimeoutMs": "1000",
    "jRaftServerId": "",
    "jRaftSnapshotIntervalSecs": "3600",
    "listenPort": "19876",
    "mappedFileSize": "1073741824",
    "metricGrpcExporterIntervalInMills": "60000",
    "metricGrpcExporterTimeOutInMills": "3000",
    "metricLoggingExporterIntervalInMills": "10000",
    "metricsGrpcExporterHeader": "",
    "metricsGrpcExporterTarget": "",
    "metricsInDelta": "false",
    "notifyBrokerRoleChanged": "true",
    "scanInactiveMasterInterval": "5000",
    # our own
    "activeProbeMasters": "leased",
    "activeProbeTimeoutMillis": "700",
    "adoptUnknownBrokers": "false",
    "brokerCloseGraceMs": "5",
    "coldStartGraceMs": "10000",
    "electionHistoryMax": "10000",
    "electionHistoryPerSet": "16",
    "heartbeatTimeoutMaxMs": "300000",
    "raftBytesPerRequestMax": "262144",
    "raftDigestEveryEntries": "1000",
    "raftElectionMaxMs": "300",
    "raftElectionMinMs": "150",
    "raftEntriesPerRequestMax": "512",
    "raftForgiveDamage": "false",
    "raftHeartbeatMs": "50",
    "raftLeaseMs": "90",
    "raftProofOptional": "false",
    "raftRequestsInFlightMax": "64",
    "raftSecret": "",
    "raftSecretAccepted": "",
    "raftSnapshotChunkBytes": "262144",
    "raftTrailingEntries": "2000",
    "raftVoteGuardMs": "100",
    "slaveNotifyDelayMs": "300",
    "slaveNotifyOpenDelayMs": "8000",
    "slaveNotifyOpenMarginMs": "1000",
    "snapshotEveryEntries": "20000",
    **STATUS_PAGE_DEFAULTS,
    **TLS_DEFAULTS,
    "traceBytesMax": "268435456",
    "traceFile": "",
    "walSegmentBytes": "16777216",
    "watchNameServerRoute": "true",
}

# What a running controller can change; everything else is read at the start only.
MUTABLE = frozenset(
    {
        "electMasterMaxRetryCount",
        "electionHistoryMax",
        "electionHistoryPerSet",
        "enableElectUncleanMaster",
        "isProcessReadEvent",
        "notifyBrokerRoleChanged",
        "scanInactiveMasterInterval",
        "slaveNotifyDelayMs",
        "slaveNotifyOpenDelayMs",
        "slaveNotifyOpenMarginMs",
        "watchNameServerRoute",
    }
)
ALIASES = {"processReadEvent": "isProcessReadEvent"}
PROBE_LEASED, PROBE_ALL = "leased", "all"
"""Which masters are asked when they are silent: those that hold a write lease, or Java's as well."""
SNAPSHOT_SPREAD = 4
"""A node's snapshots come up to a quarter of the set number of entries later than the others'."""
_PEERS_FORM = "; the form is n0-10.0.0.1:9878;n1-10.0.0.2:9878"
_JRAFT_FORM = "; the form is 10.0.0.1:9880,10.0.0.2:9880"
_NODE_ID = re.compile(r"[a-zA-Z0-9_.]+")
# A JRaft id may end with an index and a priority.
_JRAFT_INDEX = re.compile(r"(?<=:)([0-9]+)(:[0-9]+){1,2}$")
# Java's long; int() alone would also take 1_000 and digits of other scripts.
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")


class Peer(Struct, frozen=True):
    """A controller of the group: its id and where it listens."""

    id: str
    host: str
    port: int

    @property
    def address(self) -> str:
        """``host:port`` as written in the configuration."""
        return format_address(self.host, self.port)


class ControllerConfig(Struct):
    """A checked configuration.

    Attributes:
        values: every key with its text, the defaults included.
        group: the Raft group's name; a store remembers it.
        self_id, peers: the group's members, this node among them.
        store_path: directory of log and snapshots.
        auth: users and permissions.
        style: ``DLedger`` or ``jRaft``: whose spelling of 1005 operators' scripts expect.
        unknown: keys of the file that this process has no use for.
        outside: what the file says of keys that the environment has said, None for nothing. Those
            may be secrets, and are never written; nor is what this process worked out.
        own_path: of the file that was read, with links resolved; empty without one.
    """

    values: dict[str, str]
    group: str
    self_id: str
    peers: tuple[Peer, ...]
    store_path: str
    auth: AuthSettings
    style: str = "DLedger"
    unknown: tuple[str, ...] = ()
    outside: Mapping[str, str | None] = NOTHING
    own_path: str = ""

    @property
    def to_store(self) -> dict[str, str]:
        """What a file that is written whole holds after a change."""
        found = {**self.values, **self.outside}
        return {key: value for key, value in found.items() if value is not None}

    @property
    def config_path(self) -> str:
        """The file that a changed configuration is kept in."""
        return os.path.abspath(self.values["configStorePath"])

    @property
    def this(self) -> Peer:
        """The peer that is this node."""
        return next(peer for peer in self.peers if peer.id == self.self_id)

    def integer(self, key: str) -> int:
        """A key's value as a number."""
        return _integer(key, self.values[key])

    @property
    def snapshot_every(self) -> int:
        """Entries between two snapshots of this node: not all nodes make theirs at the same time,
        for they would be slow, or out of space, together."""
        every = self.integer("snapshotEveryEntries")
        return every + zlib.crc32(self.self_id.encode()) % (every // SNAPSHOT_SPREAD + 1)

    def boolean(self, key: str) -> bool:
        """Java's rule: ``true`` in any case is true, everything else false."""
        return self.values[key].strip().lower() == "true"

    def raft_settings(self) -> RaftSettings:
        """Timings of the Raft core.

        Raises:
            ConfigInvalid: timings that do not fit each other.
        """
        return RaftSettings(
            heartbeat_ms=self.integer("raftHeartbeatMs"),
            election_min_ms=self.integer("raftElectionMinMs"),
            election_max_ms=self.integer("raftElectionMaxMs"),
            vote_guard_ms=self.integer("raftVoteGuardMs"),
            lease_ms=self.integer("raftLeaseMs"),
            lease_reads=not self.boolean("isProcessReadEvent"),
            entries_per_request_max=self.integer("raftEntriesPerRequestMax"),
            bytes_per_request_max=self.integer("raftBytesPerRequestMax"),
            requests_in_flight_max=self.integer("raftRequestsInFlightMax"),
            snapshot_chunk_bytes=self.integer("raftSnapshotChunkBytes"),
            trailing_entries=self.integer("raftTrailingEntries"),
        )


def load_config(
    properties: dict[str, str], *, home: str, user_home: str, own_path: str = "",
    outside: Mapping[str, str | None] = NOTHING,
) -> ControllerConfig:  # fmt: skip
    """Check a properties file's content.

    Args:
        properties: as read.
        home: ROCKETMQ_HOME or empty; it only appears in 1010.
        user_home: for Java's default store path.
        own_path: of the file that was read, with links resolved; empty without one.
        outside: what the file says of the properties that are not from it.

    Raises:
        ConfigInvalid: the first key that cannot be used, and why.
    """
    values = dict(DEFAULTS)
    for key, value in properties.items():
        values[ALIASES.get(key, key)] = value.strip()
    unknown = tuple(sorted(key for key in values if key not in DEFAULTS))
    values["rocketmqHome"] = values["rocketmqHome"] or home
    style = values["controllerType"]
    if style.lower() == "jraft":
        group, self_id, peers = _jraft_peers(values)
    elif style.lower() == "dledger":
        group, self_id, peers = _dledger_peers(values)
    else:
        raise ConfigInvalid(f"controllerType={style} is neither DLedger nor jRaft")
    default_store = "jRaftController" if style.lower() == "jraft" else "DLedgerController"
    store = values["controllerStorePath"] or os.path.join(user_home, default_store)
    config_store = os.path.join(user_home, "controller", "controller.properties")
    values["controllerStorePath"] = store
    values["configStorePath"] = values["configStorePath"] or config_store
    config = ControllerConfig(
        values, group, self_id, peers, os.path.join(store, "rmqha"), load_auth_settings(values),
        style, unknown,
        # The own peer's port is shown for it; a name server's, of the same file, is another.
        {"listenPort": properties.get("listenPort"), **outside}, own_path,
    )  # fmt: skip
    values["listenPort"] = str(config.this.port)
    _check_numbers(config)
    return config


def _check_numbers(config: ControllerConfig) -> None:
    for key, default in DEFAULTS.items():
        if default.isdigit() and (reason := out_of_bounds(key, config.integer(key))) is not None:
            raise ConfigInvalid(reason)
    if (reason := contradiction(config.values, len(config.peers))) is not None:
        raise ConfigInvalid(reason)
    if (reason := too_little_held(config.values["heldBytesMax"])) is not None:
        raise ConfigInvalid(reason)
    status_address(config.values)
    _check_words(config)
    config.raft_settings()


def _check_words(config: ControllerConfig) -> None:
    for key, default in DEFAULTS.items():
        # Java takes any other word for false, and whoever wrote "yes" or "1" never hears of it.
        if default in ("true", "false"):
            text = config.values[key].strip()
            if text and text.lower() not in ("true", "false"):
                raise ConfigInvalid(f"{key}={text} is neither true nor false")
    if config.values["logLevel"] not in ("debug", "info", "warning", "error"):
        raise ConfigInvalid(f"logLevel={config.values['logLevel']} is not a level")
    if (masters := config.values["activeProbeMasters"]) not in (PROBE_LEASED, PROBE_ALL):
        raise ConfigInvalid(
            f"activeProbeMasters={masters} must be {PROBE_LEASED} (those with a write lease) "
            f"or {PROBE_ALL}"
        )
    check_secrets(config.values, "raft")
    if config.auth.authentication and len(config.peers) > 1 and not config.values["raftSecret"]:
        raise ConfigInvalid(
            "authenticationEnabled=true needs raftSecret: controllers prove by it who they are"
        )
    if config.values["logStyle"] not in ("auto", "json", "console"):
        raise ConfigInvalid(f"logStyle={config.values['logStyle']} is not a style")


def _integer(key: str, value: str) -> int:
    if not is_integer(value):
        raise ConfigInvalid(f"{key}={value} is not a number")
    return int(value)


def is_node_id(text: str) -> bool:
    """Whether a controller may be called so."""
    return _NODE_ID.fullmatch(text) is not None


def is_integer(value: str) -> bool:
    """Whether Java would read the text as a number."""
    return _INTEGER.fullmatch(value) is not None


def _split_address(key: str, text: str) -> tuple[str, int]:
    try:
        return parse_address(text)
    except ConfigInvalid as error:
        form = _PEERS_FORM if key == "controllerDLegerPeers" else _JRAFT_FORM
        raise ConfigInvalid(f"{key}: {error}{form}") from error


def _dledger_peers(values: dict[str, str]) -> tuple[str, str, tuple[Peer, ...]]:
    """``n0-host:port;n1-host:port``; the id ends at the first dash, hosts may have more."""
    for key in ("controllerDLegerGroup", "controllerDLegerPeers", "controllerDLegerSelfId"):
        if not values[key]:
            raise ConfigInvalid(f"{key} is missing")
    peers: list[Peer] = []
    for part in split_addresses(values["controllerDLegerPeers"]):
        node, dash, address = part.partition("-")
        if not dash or not node:
            raise ConfigInvalid(f"controllerDLegerPeers: {part!r} is not id-host:port{_PEERS_FORM}")
        if not _NODE_ID.fullmatch(node):
            raise ConfigInvalid(
                f"controllerDLegerPeers: {part!r} is not id-host:port: {node!r} is no id"
                f" of letters, digits, dots and underscores{_PEERS_FORM}"
            )
        peers.append(Peer(node, *_split_address("controllerDLegerPeers", address)))
    self_id = values["controllerDLegerSelfId"]
    return values["controllerDLegerGroup"], self_id, _checked_peers(self_id, peers)


def _jraft_peers(values: dict[str, str]) -> tuple[str, str, tuple[Peer, ...]]:
    """Lists of ``host:port`` matched by position; the RPC addresses are where brokers come to."""
    for key in ("jRaftServerId", "jRaftInitConf", "jRaftControllerRPCAddr"):
        if not values[key]:
            raise ConfigInvalid(f"{key} is missing")
    ids = [part.strip() for part in values["jRaftInitConf"].split(",") if part.strip()]
    for node in ids:
        _split_address("jRaftInitConf", _JRAFT_INDEX.sub(r"\1", node))
    rpc = [part.strip() for part in values["jRaftControllerRPCAddr"].split(",") if part.strip()]
    if len(ids) != len(rpc):
        raise ConfigInvalid(
            f"jRaftInitConf names {len(ids)} nodes, jRaftControllerRPCAddr {len(rpc)}"
        )
    peers = [
        Peer(node, *_split_address("jRaftControllerRPCAddr", address))
        for node, address in zip(ids, rpc, strict=True)
    ]
    self_id = values["jRaftServerId"]
    return values["jRaftGroupId"], self_id, _checked_peers(self_id, peers)


def _checked_peers(self_id: str, peers: list[Peer]) -> tuple[Peer, ...]:
    names = [peer.id for peer in peers]
    if len(set(names)) != len(names):
        raise ConfigInvalid(f"a controller id stands twice in {';'.join(names)}")
    if len({peer.address for peer in peers}) != len(peers):
        raise ConfigInvalid("two controllers have the same address")
    if self_id not in names:
        raise ConfigInvalid(f"this node is {self_id!r}, which is not among {';'.join(names)}")
    return tuple(peers)
