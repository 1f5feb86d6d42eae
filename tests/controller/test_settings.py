"""A controller's configuration: what is read, what is refused, and in which words."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rmqha.base.errors import ConfigInvalid
from rmqha.controller.raft.settings import RaftSettings
from rmqha.controller.settings import DEFAULTS, MUTABLE, ControllerConfig, Peer, load_config
from rmqha.remoting.frame import FrameDecoder
from rmqha.runtime.properties import format_properties, parse_properties

DLEDGER = {
    "controllerDLegerGroup": "group1",
    "controllerDLegerPeers": "n0-127.0.0.1:9878;n1-127.0.0.1:9868;n2-127.0.0.1:9858",
    "controllerDLegerSelfId": "n1",
}
JRAFT = {
    "controllerType": "jRaft",
    "jRaftGroupId": "jRaft-Controller",
    "jRaftServerId": "localhost:9881",
    "jRaftInitConf": "localhost:9880,localhost:9881,localhost:9882",
    "jRaftControllerRPCAddr": "localhost:9770,localhost:9771,localhost:9772",
}
GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "5.3.3" / "remoting.jsonl"
# Java shows the object's address here, which nobody can use.
JAVA_JUNK = {"jraftConfig"}


def load(properties: dict[str, str], **more: str) -> ControllerConfig:
    """Load with a home that no machine has."""
    return load_config({**properties, **more}, home="/opt/rocketmq", user_home="/home/rocketmq")


def java_config() -> dict[str, str]:
    """What the captured Java controller answered to 1010."""
    for line in GOLDEN.read_text().splitlines():
        frame = json.loads(line)
        if frame["request_code"] == 1010 and frame["response"]:
            (answer,) = FrameDecoder().feed(bytes.fromhex(frame["hex"]))
            return parse_properties(answer.body.decode())
    raise AssertionError("no 1010 was captured")


def test_dledger_peers_are_read_in_order_with_ids_and_addresses() -> None:
    """Brokers are sent to the addresses written here; a wrong split isolates the node."""
    config = load(DLEDGER)
    expected = tuple(Peer(f"n{i}", "127.0.0.1", 9878 - 10 * i) for i in range(3))
    assert ("group1", "n1", expected) == (config.group, config.self_id, config.peers)
    assert "127.0.0.1:9868" == config.this.address


def test_an_id_ends_at_the_first_dash_when_the_host_has_dashes() -> None:
    """Kubernetes names hosts controller-0.ns; splitting at every dash truncates them."""
    peers = "n0-controller-0.my-ns.svc:9878; n1-controller-1.my-ns.svc:9878;"
    config = load(DLEDGER, controllerDLegerPeers=peers)
    expected = ["controller-0.my-ns.svc:9878", "controller-1.my-ns.svc:9878"]
    assert expected == [peer.address for peer in config.peers]


def test_an_ipv6_host_keeps_its_brackets_in_the_address() -> None:
    """Without brackets nobody can tell the host's end from the port."""
    config = load(DLEDGER, controllerDLegerPeers="n1-[::1]:9878")
    assert ("::1", 9878, "[::1]:9878") == (
        config.this.host,
        config.this.port,
        config.this.address,
    )


def test_jraft_lists_are_matched_by_position() -> None:
    """The node listens where brokers come to, not on jRaft's own port."""
    config = load(JRAFT)
    assert "jRaft-Controller" == config.group
    assert "localhost:9881" == config.self_id
    assert "localhost:9771" == config.this.address
    assert [9770, 9771, 9772] == [peer.port for peer in config.peers]


@pytest.mark.parametrize("kind", ["jRaft", "JRAFT", "jraft"])
def test_the_controller_type_is_read_in_any_case(kind: str) -> None:
    """Java compares it in any case."""
    assert "localhost:9881" == load(JRAFT, controllerType=kind).self_id


def test_defaults_equal_what_the_java_controller_shows() -> None:
    """A script that reads getControllerConfig would see other values, or miss keys."""
    java = java_config()
    given = {"controllerDLegerGroup", "controllerDLegerPeers", "controllerDLegerSelfId"}
    given |= {"controllerStorePath", "configStorePath", "rocketmqHome", "listenPort"}
    assert JAVA_JUNK == set(java) - set(DEFAULTS)
    different = {k for k, v in java.items() if k not in given | JAVA_JUNK and DEFAULTS[k] != v}
    assert set() == different


@pytest.mark.parametrize(
    ("properties", "store", "config_store"),
    [
        (DLEDGER, "/home/rocketmq/DLedgerController", "/home/rocketmq/controller"),
        (JRAFT, "/home/rocketmq/jRaftController", "/home/rocketmq/controller"),
        ({**DLEDGER, "controllerStorePath": "/data"}, "/data", "/home/rocketmq/controller"),
    ],
)
def test_store_paths_are_below_the_users_home_when_none_is_given(
    properties: dict[str, str], store: str, config_store: str
) -> None:
    """Beside Java's files and never in them: our store is a folder of its own."""
    config = load(properties)
    assert store == config.values["controllerStorePath"]
    assert f"{store}/rmqha" == config.store_path
    assert f"{config_store}/controller.properties" == config.values["configStorePath"]


def test_the_listen_port_is_the_own_peers_port_whatever_the_file_says() -> None:
    """As in Java: raft and requests share one port."""
    assert "9868" == load(DLEDGER, listenPort="19876").values["listenPort"]


def test_the_home_is_taken_from_the_file_before_the_environment() -> None:
    """1010 shows it."""
    assert "/opt/rocketmq" == load(DLEDGER).values["rocketmqHome"]
    assert "/mine" == load(DLEDGER, rocketmqHome="/mine").values["rocketmqHome"]


def test_the_setters_name_is_an_alias_of_the_field() -> None:
    """Java's file key is processReadEvent, its 1010 says isProcessReadEvent."""
    config = load(DLEDGER, processReadEvent="true")
    assert config.boolean("isProcessReadEvent")
    assert "processReadEvent" not in config.values


def test_unknown_keys_are_kept_and_reported() -> None:
    """1010 shows the file's properties in Java too, and a typo must be noticed."""
    config = load(DLEDGER, zone="z1", controllerDLedgerGroup="typo")
    assert ("controllerDLedgerGroup", "zone") == config.unknown
    assert "z1" == config.values["zone"]


def test_blanks_around_values_are_no_part_of_them() -> None:
    """Java keeps blanks at a value's end and then fails on the number."""
    assert 7000 == load(DLEDGER, scanNotActiveBrokerInterval=" 7000 ").integer(
        "scanNotActiveBrokerInterval"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [("true", True), ("TRUE", True), ("false", False), ("", False)],
)
def test_a_boolean_is_true_only_by_that_word(text: str, *, expected: bool) -> None:
    """Java takes any word but "true" for false; others than "false" are refused at the start."""
    assert expected is load(DLEDGER, enableElectUncleanMaster=text).boolean(
        "enableElectUncleanMaster"
    )


def test_every_mutable_key_is_a_known_key() -> None:
    """A key that 1009 accepts and nobody reads would lie."""
    assert set() == MUTABLE - set(DEFAULTS)


def test_what_decides_when_a_log_is_compacted_is_a_setting() -> None:
    """With fixed limits no simulated story is long enough for a compaction or an install."""
    small = {
        "raftTrailingEntries": "0",
        "raftSnapshotChunkBytes": "48",
        "raftEntriesPerRequestMax": "2",
        "raftBytesPerRequestMax": "100",
        "raftRequestsInFlightMax": "1",
    }
    raft = load(DLEDGER, **small).raft_settings()
    assert (raft.trailing_entries, raft.snapshot_chunk_bytes) == (0, 48)
    assert (raft.entries_per_request_max, raft.bytes_per_request_max) == (2, 100)
    assert raft.requests_in_flight_max == 1
    assert load(DLEDGER).raft_settings() == RaftSettings()


def test_a_stored_configuration_loads_again_to_the_same_values() -> None:
    """updateControllerConfig writes the file that the next start is given with -c."""
    config = load(DLEDGER, metricsLabel="zone:é", custom="a b = c \\ #")
    stored = parse_properties(format_properties(config.values))
    assert config.values == load(stored).values


REFUSED = [
    ({"activeProbeMasters": "java"}, "activeProbeMasters=java must be leased"),
    ({"controllerDLegerGroup": ""}, "controllerDLegerGroup is missing"),
    ({"controllerDLegerPeers": ""}, "controllerDLegerPeers is missing"),
    ({"controllerDLegerSelfId": ""}, "controllerDLegerSelfId is missing"),
    (
        {"controllerDLegerSelfId": "n7"},
        "this node is 'n7', which is not among n0;n1;n2",
    ),
    (
        {"controllerDLegerPeers": "n1-a:1;n1-b:1"},
        "a controller id stands twice in n1;n1",
    ),
    ({"controllerDLegerPeers": "n0-a:1;n1-a:1"}, "two controllers have the same address"),
    ({"controllerDLegerPeers": "n1"}, "controllerDLegerPeers: 'n1' is not id-host:port"),
    ({"controllerDLegerPeers": "-a:1"}, "controllerDLegerPeers: '-a:1' is not id-host:port"),
    ({"controllerDLegerPeers": "n1-a"}, "controllerDLegerPeers: address 'a' is not host:port"),
    ({"controllerDLegerPeers": "n1-:1"}, "controllerDLegerPeers: address ':1' is not host:port"),
    ({"controllerDLegerPeers": "n1-a:x"}, "controllerDLegerPeers: address 'a:x' is not host:port"),
    (
        {"controllerDLegerPeers": "n1-a:0"},
        "controllerDLegerPeers: address 'a:0' has a port outside 1..65535",
    ),
    (
        {"controllerDLegerPeers": "n1-a:65536"},
        "controllerDLegerPeers: address 'a:65536' has a port outside 1..65535",
    ),
    *(
        ({"controllerDLegerPeers": peers}, f"controllerDLegerPeers: {what}")
        for peers, what in (
            ("n0-a:1,n1-b:2,n2-c:3", "address 'a:1,n1-b:2,n2-c:3'"),
            ("n0-a:1 n1-b:2 n2-c:3", "address 'a:1 n1-b:2 n2-c:3'"),
            ("n0-http://a:1;n1-http://b:2", "address 'http://a:1'"),
            ("n0 -a:1;n1-b:2", "'n0 -a:1' is not id-host:port: 'n0 ' is no id"),
            ("n0,-a:1;n1-b:2", "'n0,-a:1' is not id-host:port: 'n0,' is no id"),
            ("n0=1-a:1", "'n0=1-a:1' is not id-host:port: 'n0=1' is no id"),
            ("n0:a:1", "'n0:a:1' is not id-host:port"),
            ("n0--a:1", "address '-a:1'"),
        )
    ),
    ({"controllerType": "Raft"}, "controllerType=Raft is neither DLedger nor jRaft"),
    ({"connectionsMax": "many"}, "connectionsMax=many is not a number"),
    ({"connectionsMax": ""}, "connectionsMax= is not a number"),
    ({"connectionsMax": "1_000"}, "connectionsMax=1_000 is not a number"),
    ({"connectionsMax": "٣"}, "connectionsMax=٣ is not a number"),
    ({"connectionsMax": "9" * 5000}, "is not a number"),
    ({"connectionsMax": "1.5"}, "connectionsMax=1.5 is not a number"),
    (
        {"scanInactiveMasterInterval": "-1"},
        "scanInactiveMasterInterval=-1 must not be negative",
    ),
    ({"brokerCloseGraceMs": "101"}, "brokerCloseGraceMs=101 must be at most 100"),
    ({"metricsPromExporterPort": "65536"}, "metricsPromExporterPort=65536 must be at most 65535"),
    ({"heldBytesMax": "67108863"}, "heldBytesMax=67108863 must be at least 67108864"),
    ({"logLevel": "loud"}, "logLevel=loud is not a level"),
    ({"statusPagePort": "x"}, "statusPagePort=x is not a port"),
    ({"logStyle": "xml"}, "logStyle=xml is not a style"),
    ({"enableElectUncleanMaster": "yes"}, "enableElectUncleanMaster=yes is neither true nor false"),
    ({"notifyBrokerRoleChanged": "1"}, "notifyBrokerRoleChanged=1 is neither true nor false"),
    ({"raftHeartbeatMs": "0"}, "raftHeartbeatMs=0 must be at least 1"),
    ({"raftSnapshotChunkBytes": "0"}, "raftSnapshotChunkBytes=0 must be at least 1"),
    ({"raftRequestsInFlightMax": "0"}, "raftRequestsInFlightMax=0 must be at least 1"),
    ({"raftTrailingEntries": "-1"}, "raftTrailingEntries=-1 must not be negative"),
    ({"raftLeaseMs": "100"}, "raftLeaseMs=100 must be below raftVoteGuardMs=100"),
    ({"raftVoteGuardMs": "150"}, "raftVoteGuardMs=150 must be below raftElectionMinMs=150"),
    ({"raftElectionMaxMs": "150"}, "raftElectionMinMs=150 must be below raftElectionMaxMs=150"),
]
REFUSED_JRAFT = [
    ({"jRaftServerId": ""}, "jRaftServerId is missing"),
    ({"jRaftInitConf": ""}, "jRaftInitConf is missing"),
    ({"jRaftControllerRPCAddr": ""}, "jRaftControllerRPCAddr is missing"),
    (
        {"jRaftControllerRPCAddr": "localhost:9770"},
        "jRaftInitConf names 3 nodes, jRaftControllerRPCAddr 1",
    ),
    (
        {"jRaftControllerRPCAddr": "localhost:9770,localhost:9771,localhost"},
        "jRaftControllerRPCAddr: address 'localhost' is not host:port",
    ),
    (
        {
            "jRaftInitConf": "localhost:9880;localhost:9881;localhost:9882",
            "jRaftControllerRPCAddr": "localhost:9770;localhost:9771;localhost:9772",
        },
        "jRaftInitConf: address 'localhost:9880;localhost:9881;localhost:9882'",
    ),
    (
        {"jRaftInitConf": "http://localhost:9880,localhost:9881,localhost:9882"},
        "jRaftInitConf: address 'http://localhost:9880'",
    ),
    (
        {"jRaftControllerRPCAddr": "localhost:9770,localhost:9771,http://localhost:9772"},
        "jRaftControllerRPCAddr: address 'http://localhost:9772'",
    ),
    ({"jRaftServerId": "other:1"}, "this node is 'other:1', which is not among"),
]


@pytest.mark.parametrize(
    ("base", "changes", "message"),
    [(DLEDGER, *case) for case in REFUSED] + [(JRAFT, *case) for case in REFUSED_JRAFT],
    ids=lambda value: None if isinstance(value, dict) else value[:60],
)
def test_a_configuration_is_refused_when_it_cannot_work(
    base: dict[str, str], changes: dict[str, str], message: str
) -> None:
    """A node that starts anyway joins no group, or the wrong one; the key must be named."""
    with pytest.raises(ConfigInvalid) as caught:
        load(base, **changes)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "peers",
    [
        "n0-rmq-controller-0.rmq-controller.default.svc.cluster.local:9878;",
        " n0-[fd00::1]:9878 ; n1-[fd00::2]:9878 ",
        "n0-host_1:9878;n1-host-2.example.:9878",
        "node.0_a-10.0.0.1:1",
    ],
)
def test_peers_when_they_are_written_as_people_do_then_they_are_taken(peers: str) -> None:
    """Names of Kubernetes, IPv6, underscores, blanks and a semicolon at the end."""
    own = peers.strip().partition("-")[0]
    config = load(DLEDGER, controllerDLegerPeers=peers, controllerDLegerSelfId=own)
    assert len(config.peers) == len([one for one in peers.split(";") if one.strip()])


def test_jraft_ids_when_they_carry_index_and_priority_then_they_are_taken() -> None:
    """JRaft's PeerId is ip:port, ip:port:index or ip:port:index:priority."""
    ids = "localhost:9880:0:100,localhost:9881:1,localhost:9882"
    config = load(JRAFT, jRaftInitConf=ids, jRaftServerId="localhost:9881:1")
    assert [peer.id for peer in config.peers] == ids.split(",")


def test_settings_when_documented_then_name_and_default_are_right() -> None:
    """Operators copy from docs/SETTINGS.md; a stale default is a cluster that times out otherwise."""
    page = (Path(__file__).parents[2] / "docs" / "SETTINGS.md").read_text()
    own = page[page.index("## Our own keys") : page.index("## Keys of Java")]
    wrong = {}
    for line in re.findall(r"^\| (`.*?) \| (.*?) \|", own, re.MULTILINE):
        keys, texts = ([one.strip().strip("`") for one in cell.split(",")] for cell in line)
        for key, text in zip(keys, texts, strict=True):
            shown = "" if text in ("none", "off") else text
            if DEFAULTS.get(key) != shown:
                wrong[key] = (text, DEFAULTS.get(key))
    assert wrong == {}
    assert "raftElectionMaxMs" in own


@pytest.mark.parametrize("said", [{}, {"listenPort": "9876"}], ids=["nothing", "a name server's"])
def test_own_port_when_it_was_worked_out_then_it_is_not_written(said: dict[str, str]) -> None:
    """In one file with a name server it was that one's port at the next start."""
    config = load(DLEDGER, **said)
    assert config.values["listenPort"] == "9868"
    assert {k: v for k, v in config.to_store.items() if k == "listenPort"} == said
