"""What a broker tells people of itself: the table of request 28, and its configuration (25).

Source: AdminBrokerProcessor.prepareRuntimeInfo and StoreStatsService of RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rmqha import __version__
from rmqha.broker.common.latencies import readable_bytes
from rmqha.broker.common.statistics import SHORT, Statistics
from rmqha.broker.deferred.timers import TimerFigures
from rmqha.remoting.broker_figures import STATUS_PAGE
from rmqha.remoting.codes import VERSION_CURRENT

BLACK_LIST = frozenset({
    "brokerConfigPath", "configBlackList", "configStorePath", "rocketmqHome", "storePathRootDir",
})  # fmt: skip

_QUEUES = ("send", "pull", "ack", "query", "litePull")
_NO_POOL = 2**31 - 1
"""remainTransientStoreBufferNumbs of a broker without a transient store pool, as Java says it."""


class Facts(NamedTuple):
    """What the table needs that no counter holds. Times are milliseconds, offsets bytes.

    Attributes:
        active: this broker serves as master.
        used_ratio, queues_ratio: of the commit log's disk and of the queues', 0 to 1.
        disk_space: of the former, bytes, all and free; None where nobody can tell.
        earliest_ms: store time of the oldest message; -1 without one.
        sends_waiting_max, pulls_held_max: what bounds them.
        oldest_send_ms: how long the oldest of the waiting sends has waited.
        delays: by level, the offset to deliver next and the end of the level's queue.
        lease: whether the write lease is held, and how often it was lost; None without one.
        files_unwritten: files of the configuration that cannot be written now.
        oldest_write_ms: for how long the store's oldest write has waited for the disk.
        writes_wait: writes to the log have waited for the disk lately.
        writes_waited: how many writes, and makings of room for them, have.
        disk_full: sends are refused, for one of the store's disks is fuller than
            diskSpaceWarningLevelRatio.
        dispatch_lacks_space: what comes reaches no queue until there is room on the disk.
        index_skipped_bytes: of the log, which could not be read and are in no index.
        records_damaged: records of the log that are known not to be whole now.
        records_mended: that were written anew from another replica.
        records_differing: whole ones that another replica has otherwise; nobody knows who is right.
        blocks_differing: blocks of the log that are not what they were, whatever their records say.
        status_page: where this node's listens; empty for none.
        scrubbed_bytes, compared_bytes: of the log, that were read again, and compared with others'.
    """

    active: bool
    boot_ms: int
    now_ms: int
    min_offset: int
    max_offset: int
    flushed_offset: int
    dispatched_offset: int
    confirm_offset: int
    used_ratio: float
    queues_ratio: float
    disk_space: tuple[int, int] | None
    earliest_ms: int
    sends_waiting: int
    sends_waiting_max: int
    oldest_send_ms: int
    pulls_held: int
    pulls_held_max: int
    timers: TimerFigures
    delays: Mapping[int, tuple[int, int]]
    store_path: str
    lease: tuple[bool, int] | None = None
    files_unwritten: int = 0
    oldest_write_ms: int = 0
    writes_wait: bool = False
    writes_waited: int = 0
    disk_full: bool = False
    dispatch_lacks_space: bool = False
    index_skipped_bytes: int = 0
    records_damaged: int = 0
    records_mended: int = 0
    records_differing: int = 0
    blocks_differing: int = 0
    scrubbed_bytes: int = 0
    compared_bytes: int = 0
    status_page: str = ""


def runtime_table(facts: Facts, statistics: Statistics) -> dict[str, str]:
    """The members of ``table``: texts, all keys that mqadmin reads among them."""
    totals = statistics.totals
    table = {
        "bootTimestamp": facts.boot_ms,
        "brokerActive": str(facts.active).lower(),
        "brokerVersion": VERSION_CURRENT,
        "brokerVersionDesc": f"rmqha_{__version__}",
        "commitLogDirCapacity": _capacity(facts.disk_space),
        "commitLogDiskRatio": facts.used_ratio,
        "commitLogDiskRatio_" + facts.store_path: facts.used_ratio,
        "commitLogMaxOffset": facts.max_offset,
        "commitLogMinOffset": max(0, facts.min_offset),
        "confirmOffset": facts.confirm_offset,
        "consumeQueueDiskRatio": facts.queues_ratio,
        # Every request is worked on when it is read: no queue, nothing that waits for a transaction.
        "EndTransactionQueueSize": 0,
        "EndTransactionThreadPoolQueueCapacity": 0,
        "dispatchMaxBuffer": 0,
        "diskFull": str(facts.disk_full).lower(),
        "dispatchBehindBytes": max(0, facts.confirm_offset - facts.dispatched_offset),
        "dispatchLacksSpace": str(facts.dispatch_lacks_space).lower(),
        "earliestMessageTimeStamp": facts.earliest_ms,
        "getMessageEntireTimeMax": statistics.slowest_read_ms,
        "getFoundTps": statistics.rates("hits"),
        "getMissTps": statistics.rates("misses"),
        "getTotalTps": statistics.rates("pulls"),
        "getTransferredTps": statistics.rates("got"),
        "heldPulls": facts.pulls_held,
        "indexSkippedBytes": facts.index_skipped_bytes,
        "msgGetTotalTodayMorning": statistics.today_morning.got,
        "msgGetTotalTodayNow": totals.got,
        "msgGetTotalYesterdayMorning": statistics.yesterday_morning.got,
        "msgPutTotalTodayMorning": statistics.today_morning.put,
        "msgPutTotalTodayNow": totals.put,
        "msgPutTotalYesterdayMorning": statistics.yesterday_morning.put,
        # Java's: for how long the log has been locked by the put that is under way.
        "pageCacheLockTimeMills": facts.oldest_write_ms,
        "putLatency99": f"{statistics.puts.percentile_ms(0.99):.2f}",
        "putLatency999": f"{statistics.puts.percentile_ms(0.999):.2f}",
        "putMessageDistributeTime": statistics.puts.spread(),
        "putMessageEntireTimeMax": statistics.puts.slowest_ms,
        "putMessageFailedTimes": statistics.puts_failed,
        "putMessageAverageSize": totals.put_bytes / totals.put if totals.put else 0.0,
        "putMessageSizeTotal": totals.put_bytes,
        "putMessageTimesTotal": totals.put,
        "putTps": statistics.rates("put"),
        "blocksDiffering": facts.blocks_differing,
        "recordsDamaged": facts.records_damaged,
        "recordsDiffering": facts.records_differing,
        "recordsMended": facts.records_mended,
        "scrubbedBytes": facts.scrubbed_bytes,
        "scrubComparedBytes": facts.compared_bytes,
        "remainHowManyDataToFlush": readable_bytes(max(0, facts.max_offset - facts.flushed_offset)),
        "remainTransientStoreBufferNumbs": _NO_POOL,
        "runtime": _duration(facts.now_ms - facts.boot_ms),
        "startAcceptSendRequestTimeStamp": 0,
        "timerCongestNum": facts.timers.held,
        "timerDequeueTps": statistics.rate("timers_out", SHORT),
        "timerEnqueueTps": statistics.rate("timers_in", SHORT),
        "timerOffsetBehind": facts.timers.unread,
        "timerReadBehind": facts.timers.read_behind_s,
    }
    capacities = {"send": facts.sends_waiting_max, "pull": facts.pulls_held_max}
    for name in _QUEUES:
        sends = name == "send"
        table[f"{name}ThreadPoolQueueSize"] = facts.sends_waiting if sends else 0
        table[f"{name}ThreadPoolQueueHeadWaitTimeMills"] = facts.oldest_send_ms if sends else 0
        table[f"{name}ThreadPoolQueueCapacity"] = capacities.get(name, 0)
    for level, (offset, end) in facts.delays.items():
        table[f"scheduleMessageOffset_{level}"] = f"{offset},{end}"
    if facts.lease is not None:
        table["writeLeaseHeld"] = str(facts.lease[0]).lower()
        table["writeLeaseLosses"] = facts.lease[1]
    if facts.status_page:
        table[STATUS_PAGE] = facts.status_page
    table["putRate"] = statistics.rate("put", SHORT)
    return {key: str(value) for key, value in sorted(table.items())}


def _capacity(space: tuple[int, int] | None) -> str:
    """As Java writes it: ``Total : 252.0 GiB, Free : 234.9 GiB.``"""
    total, free = space or (0, 0)
    return f"Total : {readable_bytes(total)}, Free : {readable_bytes(free)}."


def _duration(ms: int) -> str:
    """As Java writes it: ``[ 0 days, 0 hours, 1 minutes, 2 seconds ]``."""
    seconds = max(0, ms) // 1000
    days, hours, minutes = seconds // 86_400, seconds // 3600 % 24, seconds // 60 % 60
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds % 60} seconds ]"
