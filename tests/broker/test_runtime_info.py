"""The figures of request 28: how long puts took, sizes as Java writes them, and all of Java's keys."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha import __version__
from rmqha.broker.admin.runtime_info import Facts, runtime_table
from rmqha.broker.admin.scrape import PART, Lag, lags_of
from rmqha.broker.common.latencies import WINDOW_MS, Latencies, readable_bytes
from rmqha.broker.common.statistics import Statistics
from rmqha.broker.deferred.timers import TimerFigures
from rmqha.broker.groups.offset_table import ConsumerOffsets
from rmqha.remoting import fastjson
from rmqha.runtime.aio.turns import in_turns
from tests.broker.replicas import ReplicaCluster

FACTS = Facts(
    active=True, boot_ms=0, now_ms=9, min_offset=0, max_offset=0, flushed_offset=0,
    dispatched_offset=0, confirm_offset=0, used_ratio=0.5, queues_ratio=0.25, disk_space=None,
    earliest_ms=-1,
    sends_waiting=0, sends_waiting_max=1, oldest_send_ms=0, pulls_held=0, pulls_held_max=1,
    timers=TimerFigures(), delays={}, store_path="/store",
)  # fmt: skip
JAVAS_COLUMN = 16
"""Of the version in the table of Java's clusterList."""
GOLDEN = Path(__file__).parents[1] / "golden" / "5.3.3" / "mqadmin_cluster.jsonl"


def keys_of_java() -> set[str]:
    """What a Java 5.3.3 broker says, but for its path."""
    for line in GOLDEN.read_text().splitlines():
        for text in json.loads(line).values():
            if isinstance(text, str) and text.startswith("EndTransactionQueueSize"):
                return {key for key in re.findall(r"(?m)^(\S+?)\s*: ", text) if "/" not in key}
    raise AssertionError("no brokerStatus among the recordings")


def test_table_when_asked_then_it_has_every_key_of_javas() -> None:
    """Dashboards read by name."""
    with ReplicaCluster(seed=41, replicas=1) as cluster:
        cluster.boot_all()
        master = cluster.master()
        assert master is not None
        table = fastjson.loads(cluster.ask(master.config.address, 28).body)["table"]
    missing = keys_of_java() - table.keys()
    assert len(keys_of_java()) > 50
    assert not missing


def test_disks_when_log_and_queues_are_on_two_then_each_is_told() -> None:
    """Who watches consumeQueueDiskRatio must not be shown the commit log's disk."""
    table = runtime_table(FACTS, Statistics(10))
    ratios = [table[f"{what}DiskRatio"] for what in ("commitLog", "consumeQueue")]
    assert ratios == ["0.5", "0.25"]


def test_pulls_when_they_find_nothing_then_they_count() -> None:
    """getTotalTps of Java counts pulls, found or not; it showed the messages that were given."""
    statistics = Statistics(10)
    list(statistics.sample(0, 0))
    for _ in range(5):
        statistics.missed()
    statistics.got("T", "G", 32, 1_000)
    list(statistics.sample(1_000, 0))
    table = runtime_table(FACTS, statistics)
    rates = [
        table[f"get{what}Tps"].split()[0] for what in ("Total", "Found", "Miss", "Transferred")
    ]
    assert rates == ["6.0", "1.0", "5.0", "32.0"]


def test_version_when_asked_then_the_text_says_whose_broker_it_is_and_the_number_its_protocol() -> (
    None
):
    """clusterList said V5_5_0 of ours, in every release: who upgrades could not see how far that is."""
    table = runtime_table(FACTS, Statistics(10))
    assert table["brokerVersionDesc"] == f"rmqha_{__version__}"
    assert len(table["brokerVersionDesc"]) <= JAVAS_COLUMN
    assert table["brokerVersion"] == "513"


def test_disk_when_a_write_waits_for_it_then_it_shows() -> None:
    """clusterList shows pageCacheLockTimeMills first when a disk stalls; it was 0 whatever happened."""
    table = runtime_table(FACTS._replace(oldest_write_ms=1_234), Statistics(10))
    assert table["pageCacheLockTimeMills"] == "1234"


@pytest.mark.slow
def test_figures_when_replicas_are_waited_for_then_the_time_is_theirs() -> None:
    """Two replicas that acknowledge over a slow link; delays and timers wait as well."""
    with ReplicaCluster(seed=42, replicas=2) as cluster:
        cluster.boot_all()
        cluster.until(cluster.in_sync, "SyncStateSet")
        master = cluster.master()
        assert master is not None
        cluster.send_many(20)
        assert cluster.send(1, i="DELAY\x015\x02") is not None
        assert cluster.send(2, i="TIMER_DELAY_SEC\x01600\x02") is not None
        cluster.run_for(WINDOW_MS + 21_000)
        table = fastjson.loads(cluster.ask(master.config.address, 28).body)["table"]
    assert int(table["putMessageEntireTimeMax"]) > 0
    assert float(table["putLatency999"]) >= float(table["putLatency99"]) >= 0
    assert sum(map(int, re.findall(r":(\d+) ", table["putMessageDistributeTime"]))) >= 22
    assert table["scheduleMessageOffset_5"] == "1,1"
    assert table["timerCongestNum"] == "1"
    assert (table["timerOffsetBehind"], table["timerReadBehind"]) == ("0", "0")
    assert table["putMessageFailedTimes"] == "0"


@settings(max_examples=50)
@given(times=st.lists(st.integers(-5, 30_000), max_size=50), quick=st.integers(0, 100))
def test_latencies_when_a_window_is_over_then_each_put_is_counted_once(
    times: list[int], quick: int
) -> None:
    """Those that did not wait count as 0 ms; the percentile is no smaller than what it stands for."""
    latencies = Latencies()
    latencies.sample(0, 0)
    for ms in times:
        latencies.took(ms)
    total = quick + len(times)
    latencies.sample(WINDOW_MS - 1, total)
    assert latencies.spread() == "null"
    latencies.sample(WINDOW_MS, total)
    assert sum(int(one.rpartition(":")[2]) for one in latencies.spread().split()) == total
    real = sorted([0] * quick + [max(0, ms) for ms in times])
    if real:
        assert latencies.slowest_ms == max(0, *real)
        at = real[max(0, -(-len(real) * 99 // 100) - 1)]
        assert at <= latencies.percentile_ms(0.99) <= max(at * 2 + 1, latencies.slowest_ms)
    latencies.sample(2 * WINDOW_MS, total)
    assert latencies.percentile_ms(0.99) == 0.0


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (252 << 30, "252.0 GiB"), (1 << 62, "4.0 EiB")],
)  # fmt: skip
def test_size_when_shown_then_it_is_as_javas(count: int, text: str) -> None:
    """``remainHowManyDataToFlush`` and ``commitLogDirCapacity``."""
    assert readable_bytes(count) == text


def test_lags_when_there_are_too_many_queues_then_the_rest_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A scrape must not hold the broker up."""
    monkeypatch.setattr("rmqha.broker.admin.scrape.LAG_QUEUES_MAX", 3)
    stored = [("T", "G", {0: 5, 1: 12}), ("T", "H", {0: 1, 1: 1}), ("U", "G", {0: 0})]
    found = asyncio.run(in_turns(lags_of(stored, lambda topic, queue: 10)))
    assert found == ((Lag("T", "G", 5),), 3)


def test_lags_when_there_are_very_many_then_others_have_turns_and_may_forget_some() -> None:
    """20,000 queues kept the broker for 22 ms at each scrape."""
    offsets, count = ConsumerOffsets(10_000), 3 * PART
    for number in range(count):
        offsets.commit("G", f"T{number:04d}", 0, 1, 0)
    work = lags_of(offsets.each(), lambda topic, queue: 3)
    for _ in range(2):
        assert next(work) is None
    assert offsets.forget_topic("T0000") + offsets.forget_topic(f"T{count - 1:04d}") == 2
    offsets.commit("G", "new", 0, 1, 0)
    with pytest.raises(StopIteration) as ended:
        next(work)
    lags, left_out = ended.value.value
    assert [lag.topic for lag in lags] == [f"T{number:04d}" for number in range(count - 1)], (
        "what was looked at stays, what is forgotten before is not missed"
    )
    assert left_out == 0
