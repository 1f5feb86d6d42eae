"""Numbers and members with which no controller could work are refused where they are written."""

from __future__ import annotations

import pytest

from rmqha.base.errors import ConfigInvalid
from rmqha.controller.bounds import BOUNDS, IN_FLIGHT_BYTES_MAX, MESSAGE_BYTES_MAX, out_of_bounds
from rmqha.controller.config_requests import update_config
from rmqha.controller.raft.members import MEMBERS_MAX
from rmqha.controller.raft.messages import AppendRequest, Entry, SnapshotRequest, encode_message
from rmqha.controller.settings import DEFAULTS, MUTABLE, ControllerConfig, load_config
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.frame import encode


def load(count: int = 3, **more: str) -> ControllerConfig:
    """A group of so many."""
    peers = ";".join(f"n{number}-127.0.0.1:{9800 + number}" for number in range(count))
    properties = {
        "controllerDLegerGroup": "g", "controllerDLegerPeers": peers, "controllerDLegerSelfId": "n0"
    }  # fmt: skip
    return load_config({**properties, **more}, home="", user_home="/home")


def refusal(count: int = 3, **more: str) -> str:
    """Why such a group cannot be."""
    with pytest.raises(ConfigInvalid) as caught:
        load(count, **more)
    return str(caught.value)


REFUSED = {
    "activeProbeTimeoutMillis": ("60001",),
    "brokerCloseGraceMs": ("101",),
    "metricsPromExporterPort": ("65536",),
    "raftHeartbeatMs": ("0",),
    "scanInactiveMasterInterval": ("2147483648",),
    "slaveNotifyOpenDelayMs": ("3600001",),
    "slaveNotifyOpenMarginMs": ("3600001",),
    "walSegmentBytes": ("0", "65535", "1073741825"),
    "raftSnapshotChunkBytes": ("0", str(64 << 20)),
    "raftBytesPerRequestMax": ("0", str(64 << 20)),
    "raftEntriesPerRequestMax": ("0", "65537"),
    "raftRequestsInFlightMax": ("0", "4097"),
    "raftTrailingEntries": ("-1", "1000001"),
    "raftElectionMaxMs": ("60001",),
    "connectionsMax": ("0", "2"),
    "snapshotEveryEntries": ("0", "1000001"),
    "authUsersReloadMs": ("0",),
    "coldStartGraceMs": ("3600001",),
    "electMasterMaxRetryCount": ("101",),
    "electionHistoryMax": ("100001",),
    "electionHistoryPerSet": ("1001",),
    "heartbeatTimeoutMaxMs": ("999", "86400001"),
    "serverChannelMaxIdleTimeSeconds": ("2147483648",),
    "slaveNotifyDelayMs": ("3600001",),
}


@pytest.mark.parametrize(
    ("key", "text"), [(key, text) for key, texts in REFUSED.items() for text in texts]
)
def test_number_when_no_node_works_with_it_then_it_is_refused_by_name(key: str, text: str) -> None:
    """A node began with them, and then ended, filled its disk, or never had a leader."""
    assert f"{key}={text} must " in refusal(**{key: text})


def test_bounds_when_they_are_looked_at_then_defaults_are_within_and_keys_are_known() -> None:
    """A key that is misspelt here has no bound."""
    assert set(DEFAULTS) >= set(BOUNDS)
    assert [] == [key for key in BOUNDS if out_of_bounds(key, int(DEFAULTS[key]))]


@pytest.mark.parametrize(
    ("key", "text"), [("electionHistoryMax", "100001"), ("slaveNotifyDelayMs", "3600001")]
)
def test_number_when_it_comes_while_the_node_runs_then_the_bound_is_the_same(
    key: str, text: str
) -> None:
    """1009 and SIGHUP come by here."""
    assert key in MUTABLE
    config = load()
    answer = update_config(config, f"{key}={text}".encode())
    assert (answer.remark or "").startswith(f"{key}={text} must be at most ")
    assert config.values[key] == DEFAULTS[key]


def test_message_when_it_is_as_large_as_may_be_set_then_it_fits_into_a_frame() -> None:
    """One that does not raises out of an effect, and ends the leader and its successors."""
    chunk = SnapshotRequest(1, "n0", 1, 1, 0, 1 << 30, bytes(MESSAGE_BYTES_MAX), 1, 1)
    most = BOUNDS["raftEntriesPerRequestMax"][1]
    data = bytes(MESSAGE_BYTES_MAX // most)
    entries = tuple(Entry((1 << 40) + number, 1 << 40, data) for number in range(most))
    for message in (
        chunk,
        AppendRequest(1 << 40, "n0", 1 << 40, 1 << 40, entries, 1 << 40, 1 << 40),
    ):
        encode(RemotingCommand(60001, body=encode_message(message)))


def test_requests_when_those_in_flight_are_more_than_a_connection_keeps_then_refused() -> None:
    """A follower that is slow for a moment would lose its connection each time it is caught up."""
    both = {"raftBytesPerRequestMax": "1048576", "raftRequestsInFlightMax": "33"}
    assert f"must be at most {IN_FLIGHT_BYTES_MAX}" in refusal(**both)
    load(**{**both, "raftRequestsInFlightMax": "32"})


def test_connections_when_there_are_fewer_than_controllers_then_refused() -> None:
    """The others of the group would take turns, and no broker would ever come in."""
    assert "connectionsMax=4 must be at least 5" in refusal(5, connectionsMax="4")
    load(5, connectionsMax="5")


def test_group_when_it_has_more_than_the_log_can_name_then_refused() -> None:
    """It worked until its first change of members, which ended its leader, and each one after it."""
    load(MEMBERS_MAX)
    assert "a group has 9 controllers at most, and here are 10" in refusal(MEMBERS_MAX + 1)
