"""What kind of broker set a story has: how its replicas are configured, and what that promises."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from rmqha.sim.cluster import CONTROLLER_PORT
from rmqha.store.checkpoint import SIZE, Checkpoint, write_into

NAME = "broker-a"
TOPIC = "Orders"
QUEUES = 2
PORT = 10911
LOG_FILE_BYTES = 8192
STALL_MS = 500
"""Well before the lease ends."""


class LogShape(Struct, frozen=True):
    """The files of a log, and where in it the set begins: what was before has expired.

    Attributes:
        file_bytes: ``mappedFileSizeCommitLog``.
        begin: the log's first offset, where a file begins.
    """

    file_bytes: int = LOG_FILE_BYTES
    begin: int = 0


LOG_SHAPES = (
    LogShape(begin=(2 << 30) - 3 * LOG_FILE_BYTES),
    LogShape(begin=(4 << 30) - 3 * LOG_FILE_BYTES),
    LogShape(file_bytes=1 << 30, begin=3 << 30),
)
"""Offsets that pass what 31 and 32 bits hold, and files of users' size."""


def log_of(seed: int) -> LogShape:
    """What a seed's log is like; most begin at 0, with small files."""
    return {3: LOG_SHAPES[0], 5: LOG_SHAPES[1], 7: LOG_SHAPES[2]}.get(seed % 8, LogShape())


class ReplicaOptions(Struct, frozen=True):
    """What kind of broker set.

    Attributes:
        replicas: how many.
        sync_flush: an acknowledged message is on every counted replica's disk. Without it power
            may only fail where a failover may lose as much: what page caches held is gone with good
            reason.
        all_ack: ``allAckInSyncStateSet``; else ``in_sync`` counts.
        in_sync: ``inSyncReplicas`` and ``minInSyncReplicas``. With 1, Java's default, nobody waits
            for slaves, and a failover may lose what was acknowledged.
        producers: sending at a time.
        topics: that come and go meanwhile.
        lease: nobody waits for slaves, so only the write lease keeps a master that is cut off
            from acknowledging what nobody else has.
        learners: of the replicas, that never join the SyncStateSet (``asyncLearner``).
        min_in_sync: ``minInSyncReplicas``, beside ``all_ack``.
        held_dispatcher: what is in the log comes to the queues late now and then.
        watched: each replica has a watcher, which acts while it stands still.
        log: its files and where it begins.
        scrub_bytes_per_second: of each replica; 0 is off, and nobody asks controllers then either.
    """

    replicas: int = 3
    sync_flush: bool = False
    all_ack: bool = True
    in_sync: int = 2
    producers: int = 2
    topics: int = 2
    lease: bool = False
    learners: int = 0
    min_in_sync: int = 1
    watched: bool = False
    held_dispatcher: bool = False
    log: LogShape = LogShape()
    scrub_bytes_per_second: int = 0

    @property
    def survives(self) -> bool:
        """Whether what is acknowledged outlives every failover."""
        return not self.lease and (self.all_ack or self.in_sync > 1)

    @property
    def bears_power_cuts(self) -> bool:
        """Whether power may fail, and what is promised holds."""
        return self.sync_flush or not (self.survives or self.lease)

    @property
    def holders(self) -> int:
        """How many that may be elected hold a message before it is acknowledged, whatever fails."""
        if self.lease:
            return 1
        return self.min_in_sync if self.all_ack else self.in_sync


def properties_of(
    kind: ReplicaOptions, host: str, controller_hosts: Iterable[str], *, is_learner: bool
) -> dict[str, str]:
    """The configuration of one replica, as in its ``broker.conf``."""
    wait = {"allAckInSyncStateSet": "true"}
    if kind.min_in_sync > 1:
        wait["minInSyncReplicas"] = str(kind.min_in_sync)
    if kind.lease:
        wait = {}
    elif not kind.all_ack:
        wait = dict.fromkeys(("inSyncReplicas", "minInSyncReplicas"), str(kind.in_sync))
    if is_learner:
        wait["asyncLearner"] = "true"
    if kind.watched:
        wait["diskStallMs"] = str(STALL_MS)
    return {
        "enableControllerMode": "true",
        "brokerName": NAME,
        "brokerIP1": host,
        "listenPort": str(PORT),
        "controllerAddr": ";".join(f"{h}:{CONTROLLER_PORT}" for h in controller_hosts),
        "storePathRootDir": "/store",
        "mappedFileSizeCommitLog": str(kind.log.file_bytes),
        "mappedFileSizeConsumeQueue": "2000",
        "maxHashSlotNum": "50",
        "maxIndexNum": "200",
        "flushDiskType": "SYNC_FLUSH" if kind.sync_flush else "ASYNC_FLUSH",
        "brokerHeartbeatInterval": "300",
        "controllerHeartBeatTimeoutMills": "2000",
        "syncBrokerMetadataPeriod": "1000",
        "syncControllerMetadataPeriod": "2000",
        "haMaxTimeSlaveNotCatchup": "3000",
        "slaveTimeout": "1000",
        "haHousekeepingInterval": "4000",
        "haSendHeartbeatInterval": "1000",
        "scrubBytesPerSecond": str(kind.scrub_bytes_per_second),
        "scrubPassIntervalMs": "2000",
        # Where bits flip, they do in what was written a moment before.
        **({"uncheckedTailBytes": "0"} if kind.scrub_bytes_per_second else {}),
        **wait,
    }


def begun_store(log: LogShape) -> list[tuple[str, int, bytes]]:
    """A store whose records have all expired: paths, sizes and beginnings of its files."""
    checkpoint = bytearray(SIZE)
    write_into(checkpoint, Checkpoint(confirm_offset=log.begin, flushed_offset=log.begin))
    return [
        (f"/store/commitlog/{log.begin:020d}", log.file_bytes, b""),
        ("/store/checkpoint", SIZE, bytes(checkpoint)),
    ]


def send_fields(number: int) -> dict[str, str]:
    """The fields of a 310 request as a Java client sends them."""
    return {
        "a": "PG", "b": TOPIC, "c": "TBW102", "d": str(QUEUES), "e": str(number % QUEUES),
        "f": "0", "g": "1700000000000", "h": "0",
        "i": f"UNIQ_KEY\x01U{number}\x02WAIT\x01true\x02",
        "j": "0", "k": "false", "m": "false", "n": NAME,
    }  # fmt: skip
