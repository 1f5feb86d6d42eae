"""What a broker tells people of itself: the table of request 28, and its configuration (25, 26).

Source: AdminBrokerProcessor.prepareRuntimeInfo and StoreStatsService of RocketMQ 5.1.1 to 5.5
(reference broker-namesrv 2.9).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rmqha.broker.statistics import SHORT, Statistics
from rmqha.remoting.codes import VERSION_CURRENT, VERSION_ORDINALS

SECRET_WORDS = ("password", "secret", "credential")
BLACK_LIST = frozenset({
    "brokerConfigPath", "configBlackList", "configStorePath", "rocketmqHome", "storePathRootDir",
})  # fmt: skip

_QUEUES = ("send", "pull", "ack", "query", "litePull")
_NO_TIMERS = (
    "timerReadBehind", "timerOffsetBehind", "timerCongestNum", "timerEnqueueTps", "timerDequeueTps",
)  # fmt: skip


class Facts(NamedTuple):
    """What the table needs that no counter holds. Times are milliseconds, offsets bytes.

    Attributes:
        active: this broker serves as master.
        used_ratio: of the disk, 0 to 1.
        earliest_ms: store time of the oldest message; -1 without one.
        lease: whether the write lease is held, and how often it was lost; None without one.
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
    earliest_ms: int
    sends_waiting: int
    pulls_held: int
    store_path: str
    lease: tuple[bool, int] | None = None


def runtime_table(facts: Facts, statistics: Statistics) -> dict[str, str]:
    """The members of ``table``: texts, all keys that mqadmin reads among them."""
    totals = statistics.totals
    desc = {number: name for name, number in VERSION_ORDINALS.items()}[VERSION_CURRENT]
    table = {
        "bootTimestamp": facts.boot_ms,
        "brokerActive": str(facts.active).lower(),
        "brokerVersion": VERSION_CURRENT,
        "brokerVersionDesc": "V" + desc.replace(".", "_"),
        "commitLogDirCapacity": facts.store_path,
        "commitLogDiskRatio": facts.used_ratio,
        "commitLogDiskRatio_" + facts.store_path: facts.used_ratio,
        "commitLogMaxOffset": facts.max_offset,
        "commitLogMinOffset": max(0, facts.min_offset),
        "confirmOffset": facts.confirm_offset,
        "consumeQueueDiskRatio": facts.used_ratio,
        "dispatchBehindBytes": max(0, facts.confirm_offset - facts.dispatched_offset),
        "earliestMessageTimeStamp": facts.earliest_ms,
        "getFoundTps": statistics.rates("hits"),
        "getMissTps": statistics.rates("misses"),
        "getTotalTps": statistics.rates("got"),
        "getTransferredTps": statistics.rates("got"),
        "heldPulls": facts.pulls_held,
        "msgGetTotalTodayMorning": statistics.today_morning.got,
        "msgGetTotalTodayNow": totals.got,
        "msgGetTotalYesterdayMorning": statistics.yesterday_morning.got,
        "msgPutTotalTodayMorning": statistics.today_morning.put,
        "msgPutTotalTodayNow": totals.put,
        "msgPutTotalYesterdayMorning": statistics.yesterday_morning.put,
        "pageCacheLockTimeMills": 0,
        "putMessageAverageSize": totals.put_bytes / totals.put if totals.put else 0.0,
        "putMessageSizeTotal": totals.put_bytes,
        "putMessageTimesTotal": totals.put,
        "putTps": statistics.rates("put"),
        "remainHowManyDataToFlush": f"{max(0, facts.max_offset - facts.flushed_offset)} B",
        "runtime": _duration(facts.now_ms - facts.boot_ms),
        "startAcceptSendRequestTimeStamp": 0,
        **dict.fromkeys(_NO_TIMERS, 0),
    }
    for name in _QUEUES:
        table[f"{name}ThreadPoolQueueSize"] = facts.sends_waiting if name == "send" else 0
        table[f"{name}ThreadPoolQueueHeadWaitTimeMills"] = 0
    if facts.lease is not None:
        table["writeLeaseHeld"] = str(facts.lease[0]).lower()
        table["writeLeaseLosses"] = facts.lease[1]
    table["putRate"] = statistics.rate("put", SHORT)
    return {key: str(value) for key, value in sorted(table.items())}


def _duration(ms: int) -> str:
    """As Java writes it: ``[ 0 days, 0 hours, 1 minutes, 2 seconds ]``."""
    seconds = max(0, ms) // 1000
    days, hours, minutes = seconds // 86_400, seconds // 3600 % 24, seconds // 60 % 60
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds % 60} seconds ]"


def config_text(values: Mapping[str, str]) -> bytes:
    """The body of 26: ``key=value`` lines, sorted; secrets are hidden."""
    lines = []
    for key, value in sorted(values.items()):
        hidden = value and any(word in key.lower() for word in SECRET_WORDS)
        lines.append(f"{key}={'******' if hidden else value}\n")
    return "".join(lines).encode()
