"""Between which numbers a controller's settings are; beyond them a node ends, or never begins to work.

Bounds, not advice: the defaults are in ``settings.py``, and the relations of Raft's timings in
``raft/settings.py``. The same bounds hold for files, variables and 1009.
"""

from __future__ import annotations

from collections.abc import Mapping

from rmqha.controller.liveness import CLOSE_GRACE_MS_MAX
from rmqha.controller.raft.members import MEMBERS_MAX
from rmqha.remoting.address import PORT_MAX
from rmqha.remoting.settings import FRAME_BYTES_MAX, UNSENT_BYTES_MAX

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
HEARTBEAT_TIMEOUT_MS_LEAST = 1_000
MESSAGE_BYTES_MAX = FRAME_BYTES_MAX // 4
"""What a message of Raft carries: with each entry's own bytes it has to fit into a frame. A leader
whose message does not fit ends, and the next one after it."""

SEGMENT_BYTES_LEAST, SEGMENT_BYTES_MAX = 64 * 1024, 1 << 30
"""A segment is a file, made with two syncs: below 64 KiB a busy group would make more files than
entries are worth. Its space is taken when it is begun, and a start reads it as a whole."""

IN_FLIGHT_BYTES_MAX = UNSENT_BYTES_MAX // 2
"""A connection with more than twice that unsent is cut, and a slow follower never catches up."""

JAVA_INT_MAX = 2**31 - 1
"""How files of Java say "never"."""

_NO_BOUND = 10**18

BOUNDS: dict[str, tuple[int, int]] = {
    "activeProbeTimeoutMillis": (0, MINUTE_MS),
    "authUsersReloadMs": (100, DAY_MS),  # 0 would read the file all the time
    "brokerCloseGraceMs": (0, CLOSE_GRACE_MS_MAX),
    "coldStartGraceMs": (0, HOUR_MS),
    "connectionsMax": (1, _NO_BOUND),  # descriptors bound it
    "electMasterMaxRetryCount": (0, 100),  # all of them in one turn of the loop
    # Each remembered election is in memory, in every snapshot, and in the answers about it.
    "electionHistoryMax": (0, 100_000),
    "electionHistoryPerSet": (0, 1_000),
    "heartbeatTimeoutMaxMs": (HEARTBEAT_TIMEOUT_MS_LEAST, DAY_MS),
    "metricsPromExporterPort": (0, PORT_MAX),
    "raftBytesPerRequestMax": (1, MESSAGE_BYTES_MAX),
    "raftElectionMaxMs": (1, MINUTE_MS),
    "raftEntriesPerRequestMax": (1, 65_536),
    "raftHeartbeatMs": (1, _NO_BOUND),  # the lease bounds it
    "raftRequestsInFlightMax": (1, 4_096),
    "raftSnapshotChunkBytes": (1, MESSAGE_BYTES_MAX),
    # Entries that are kept are in memory.
    "raftTrailingEntries": (0, 1_000_000),
    "scanInactiveMasterInterval": (0, JAVA_INT_MAX),
    "serverChannelMaxIdleTimeSeconds": (0, JAVA_INT_MAX),
    "slaveNotifyDelayMs": (0, HOUR_MS),
    "slaveNotifyOpenDelayMs": (0, HOUR_MS),
    "slaveNotifyOpenMarginMs": (0, HOUR_MS),
    # 0 would make a snapshot all the time; what none covers is in memory.
    "snapshotEveryEntries": (1, 1_000_000),
    "walSegmentBytes": (SEGMENT_BYTES_LEAST, SEGMENT_BYTES_MAX),
}  # fmt: skip


def out_of_bounds(key: str, number: int) -> str | None:
    """Why a number cannot be a key's value; None when it can."""
    least, most = BOUNDS.get(key, (0, _NO_BOUND))
    if number < 0:
        return f"{key}={number} must not be negative"
    if number < least:
        return f"{key}={number} must be at least {least}"
    if number > most:
        return f"{key}={number} must be at most {most}"
    return None


def contradiction(values: Mapping[str, str], peers: int) -> str | None:
    """Why two values, each within its bounds, cannot go together; None when all can.

    Args:
        values: numbers, within their bounds.
        peers: how many controllers the group has.
    """
    if peers > MEMBERS_MAX:
        return f"a group has {MEMBERS_MAX} controllers at most, and here are {peers}"
    # The others take one each, and brokers come by what is left.
    if int(values["connectionsMax"]) < peers:
        return (
            f"connectionsMax={values['connectionsMax']} must be at least {peers}, one a controller"
        )
    size, count = int(values["raftBytesPerRequestMax"]), int(values["raftRequestsInFlightMax"])
    if size * count > IN_FLIGHT_BYTES_MAX:
        return (
            f"raftBytesPerRequestMax={size} times raftRequestsInFlightMax={count}"
            f" must be at most {IN_FLIGHT_BYTES_MAX}"
        )
    return None
