"""The properties of a test cluster's nodes: real keys, with periods and files made for tests.

A test that wants production's values gives them; everything here can be overridden.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path

from msgspec import Struct, field

from rmqha.testing.sockets import LOOPBACK

CLUSTER_NAME = "TestCluster"
BROKER_NAME = "broker-a"
GROUP = "rmqha-test"
ALIKE = 0.85
"""Of 1: two keys of which one is probably a slip of the pen for the other."""

NO_TLS_FILE: Mapping[str, str] = {"tls.config.file": ""}
"""What the machine has under /etc is nothing to a test."""
FAST_RAFT: Mapping[str, str] = {
    "raftHeartbeatMs": "20",
    "raftLeaseMs": "40",
    "raftVoteGuardMs": "45",
    "raftElectionMinMs": "50",
    "raftElectionMaxMs": "90",
}
FAST_CONTROLLER: Mapping[str, str] = {
    "scanInactiveMasterInterval": "200",
    "walSegmentBytes": "1048576",
    # One broker set in one place: nobody waits for Java slaves that still read from an old master.
    "slaveNotifyDelayMs": "20",
    "slaveNotifyOpenDelayMs": "1000",
    "slaveNotifyOpenMarginMs": "100",
    "coldStartGraceMs": "2000",
}
FAST_NAMESRV: Mapping[str, str] = {"scanNotActiveBrokerInterval": "1000"}
FAST_BROKER: Mapping[str, str] = {
    "allAckInSyncStateSet": "true",
    "brokerHeartbeatInterval": "200",
    "controllerHeartBeatTimeoutMills": "1500",
    "checkSyncStateSetPeriod": "300",
    "syncBrokerMetadataPeriod": "300",
    "syncControllerMetadataPeriod": "1000",
    "syncSlaveMetadataPeriod": "200",
    "haMaxTimeSlaveNotCatchup": "1500",
    "haSendHeartbeatInterval": "300",
    "haHousekeepingInterval": "2000",
    "slaveTimeout": "2000",
    "registerNameServerPeriod": "10000",
    "defaultTopicQueueNums": "4",
    "mappedFileSizeCommitLog": "8388608",
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "2000",
    "maxIndexNum": "8000",
    "flushConsumerOffsetInterval": "500",
    # A test's directory lies on whatever disk there is, however full.
    "diskMaxUsedSpaceRatio": "99",
    # A test that stops a process wants to see what the others do, and a process costs time.
    "diskStallMs": "0",
}


def refuse_misspelt(kind: str, settings: Mapping[str, object]) -> None:
    """Refuse a key that no server reads and that looks like one that it reads.

    Other unknown keys pass, as they do in RocketMQ's own files.

    Args:
        kind: ``controller``, ``namesrv`` or ``broker``.

    Raises:
        ValueError: names the key, and the one that is probably meant.
    """
    if not settings:
        return
    known = known_settings(kind)
    for key in settings:
        close = [] if key in known else get_close_matches(key, known, 1, ALIKE)
        if close:
            raise ValueError(f"no {kind} has a setting {key!r}; is {close[0]!r} meant?")


def refuse_pages(settings: Mapping[str, object]) -> None:
    """Refuse keys of HTTP ports, which nodes in the test's own process do not open.

    Raises:
        ValueError: names the key, and what serves it.
    """
    for key in ("statusPagePort", "metricsExporterType"):
        if str(settings.get(key, "")).strip().upper() not in ("", "DISABLE"):
            raise ValueError(f"{key} is served by nodes that are processes: give processes=True")


def refuse_strangers(
    settings: Mapping[str, Mapping[str, object]], counts: Mapping[str, int]
) -> None:
    """Refuse settings for a node that the cluster will not have, and misspelt keys of one.

    Args:
        settings: by the names of nodes.
        counts: how many nodes of each kind there are.

    Raises:
        ValueError: names the node, or the key.
    """
    names = {f"{kind}-{number}": kind for kind, count in counts.items() for number in range(count)}
    for name, given in settings.items():
        if name not in names:
            raise ValueError(f"settings for {name!r}; there are {', '.join(names)}")
        refuse_misspelt(names[name], given)


def known_settings(kind: str) -> frozenset[str]:
    """Every key that a kind of server reads."""
    # Imported where they are needed: a cluster of controllers alone loads no broker.
    match kind:
        case "controller":
            from rmqha.controller.settings import ALIASES, DEFAULTS

            return frozenset({*DEFAULTS, *ALIASES})
        case "namesrv":
            from rmqha.controller.settings import DEFAULTS as EMBEDDED
            from rmqha.namesrv.settings import DEFAULTS as OWN

            return frozenset({*OWN, *EMBEDDED})
        case _:
            from rmqha.broker.common.settings import SETTINGS

            return SETTINGS


class Place(Struct, frozen=True):
    """Where one node lives.

    Attributes:
        name: ``controller-0``, ``namesrv-0``, ``broker-0`` ...
        kind: ``controller``, ``namesrv`` or ``broker``.
        folder: for its files.
        port: where it is asked.
        ports: everything that it listens on.
        host: the address that it listens at.
    """

    name: str
    kind: str
    folder: Path
    port: int
    ports: tuple[int, ...]
    host: str = LOOPBACK

    @property
    def address(self) -> str:
        """What others know it by."""
        return f"{self.host}:{self.port}"


class Plan(Struct, frozen=True):
    """All places of a cluster, and what its author asked of them.

    Attributes:
        controller_settings, namesrv_settings, broker_settings: Java property keys.
        node_settings: the same for single nodes, by name; they win over those of their kind.
        tls: keys about TLS of all nodes; none for a cluster in plain text.
        steady: production's Raft periods, for processes that wait for each other's processor time.
    """

    controllers: tuple[Place, ...]
    name_servers: tuple[Place, ...]
    brokers: tuple[Place, ...]
    controller_settings: Mapping[str, object] = field(default_factory=dict)
    namesrv_settings: Mapping[str, object] = field(default_factory=dict)
    broker_settings: Mapping[str, object] = field(default_factory=dict)
    tls: Mapping[str, str] = field(default_factory=dict)
    steady: bool = False
    node_settings: Mapping[str, Mapping[str, object]] = field(default_factory=dict)

    @property
    def is_tls(self) -> bool:
        """Whether the nodes have certificates."""
        return bool(self.tls)

    @property
    def places(self) -> tuple[Place, ...]:
        """In the order of their start."""
        return (*self.controllers, *self.name_servers, *self.brokers)

    def properties(self, place: Place) -> dict[str, str]:
        """The whole configuration file of a node."""
        match place.kind:
            case "controller":
                return self._controller(place)
            case "namesrv":
                return self._namesrv(place)
            case _:
                return self._broker(place)

    def _controller(self, place: Place) -> dict[str, str]:
        peers = (f"n{i}-{one.address}" for i, one in enumerate(self.controllers))
        return {
            "controllerDLegerGroup": GROUP,
            "controllerDLegerPeers": ";".join(peers),
            "controllerDLegerSelfId": f"n{self.controllers.index(place)}",
            "controllerStorePath": str(place.folder / "store"),
            "configStorePath": str(place.folder / "saved.properties"),
            "bindAddress": place.host,
            **({} if self.steady else FAST_RAFT),
            **FAST_CONTROLLER,
            **NO_TLS_FILE,
            **self.tls,
            **_texts(self.controller_settings),
            **_texts(self.node_settings.get(place.name, {})),
        }

    def _namesrv(self, place: Place) -> dict[str, str]:
        return {
            "listenPort": str(place.port),
            "bindAddress": place.host,
            "kvConfigPath": str(place.folder / "kvConfig.json"),
            **FAST_NAMESRV,
            **NO_TLS_FILE,
            **self.tls,
            **_texts(self.namesrv_settings),
            **_texts(self.node_settings.get(place.name, {})),
        }

    def _broker(self, place: Place) -> dict[str, str]:
        return {
            "enableControllerMode": "true",
            "brokerClusterName": CLUSTER_NAME,
            "brokerName": BROKER_NAME,
            "brokerIP1": place.host,
            "bindAddress": place.host,
            "listenPort": str(place.port),
            "haListenPort": str(place.ports[-1]),
            "namesrvAddr": ";".join(one.address for one in self.name_servers),
            "controllerAddr": ";".join(one.address for one in self.controllers),
            "storePathRootDir": str(place.folder / "store"),
            **FAST_BROKER,
            **NO_TLS_FILE,
            **self.tls,
            **_texts(self.broker_settings),
            **_texts(self.node_settings.get(place.name, {})),
        }


def _texts(settings: Mapping[str, object]) -> dict[str, str]:
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in settings.items()
    }
