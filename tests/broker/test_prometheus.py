"""Each series of a broker shows its own fact: all are given another figure, and read back."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from rmqha.broker.admin.aio.prometheus import Collector
from rmqha.broker.admin.runtime_info import Facts
from rmqha.broker.admin.scrape import Lag, Scrape
from rmqha.broker.deferred.timers import TimerFigures
from rmqha.ha.busy_wait import ANSWERED, SHARED, VAIN

FACTS = Facts(
    active=False, boot_ms=1, now_ms=90_000, min_offset=1000, max_offset=9000, flushed_offset=8990,
    dispatched_offset=7980, confirm_offset=8000, used_ratio=0.5, queues_ratio=0.25,
    disk_space=(7000, 4000), earliest_ms=59_000, sends_waiting=11, sends_waiting_max=12,
    oldest_send_ms=13, pulls_held=14, pulls_held_max=15,
    timers=TimerFigures(read_behind_s=16, unread=17, held=18, waiting={"T": 19}), delays={},
    store_path="/store", lease=(False, 21), files_unwritten=22, oldest_write_ms=23,
    writes_waited=24, index_skipped_bytes=25, records_damaged=26, records_mended=27,
    records_differing=28, blocks_differing=29, scrubbed_bytes=31, compared_bytes=32,
)  # fmt: skip
SCRAPE = Scrape(
    FACTS, permission=33, topics=34, groups=35, written={"T": 36}, read={("T", "G"): 37},
    lags=(Lag("T", "G", 38),), lags_left_out=39, records_skipped=41, planned_switches=42,
    sends_passed_on=43, peers_unproven=44, busy_waits={ANSWERED: 45, SHARED: 46, VAIN: 47},
)  # fmt: skip
SHOWN = {
    "rocketmq_broker_permission": 33, "rocketmq_topic_number": 34,
    "rocketmq_consumer_group_number": 35, "rocketmq_messages_in_total": 36,
    "rocketmq_messages_out_total": 37, "rocketmq_consumer_lag_messages": 38,
    "rocketmq_storage_size_bytes": 3000, "rocketmq_storage_flush_behind_bytes": 10,
    "rocketmq_storage_dispatch_behind_bytes": 20,
    "rocketmq_storage_message_reserve_time_milliseconds": 31_000, "rocketmq_timer_enqueue_lag": 17,
    "rocketmq_timer_dequeue_latency_milliseconds": 16_000, "rocketmq_timing_messages": 19,
    "rmqha_broker_master": 0, "rmqha_sends_waiting": 11, "rmqha_pulls_held": 14,
    "rmqha_lags_left_out": 39, "rmqha_config_files_unwritten": 22, "rmqha_store_writes_wait": 0,
    "rmqha_store_disk_full": 0, "rmqha_store_dispatch_lacks_space": 0,
    "rmqha_store_oldest_write_milliseconds": 23, "rmqha_store_writes_waited_total": 24,
    "rmqha_records_damaged": 26, "rmqha_records_differing": 28, "rmqha_blocks_differing": 29,
    "rmqha_records_mended_total": 27, "rmqha_scrubbed_bytes_total": 31,
    "rmqha_scrub_compared_bytes_total": 32, "rmqha_index_skipped_bytes_total": 25,
    "rmqha_records_skipped_total": 41, "rmqha_planned_switches_total": 42,
    "rmqha_sends_passed_on_total": 43, "rmqha_ha_unproven_peers_total": 44,
    "rmqha_ha_busy_waits_total": 45 + 46 + 47, "rmqha_write_lease_held": 0,
    "rmqha_write_lease_losses_total": 21,
}  # fmt: skip
"""By series: the sum of its samples."""


def shown(facts: Facts) -> Mapping[str, float]:
    """What a scrape shows."""
    found: dict[str, float] = {}
    for family in Collector(
        {"node_id": "broker-a"}, lambda: SCRAPE._replace(facts=facts)
    ).collect():
        for sample in family.samples:
            assert sample.labels["node_id"] == "broker-a"
            found[sample.name] = found.get(sample.name, 0) + sample.value
    return found


def test_series_when_facts_differ_then_each_shows_its_own() -> None:
    """An alert on a figure of something else never fires, or at the wrong time."""
    assert shown(FACTS) == SHOWN


SWITCHES = {
    "rmqha_broker_master": {"active": True},
    "rmqha_store_writes_wait": {"writes_wait": True},
    "rmqha_store_disk_full": {"disk_full": True},
    "rmqha_store_dispatch_lacks_space": {"dispatch_lacks_space": True},
    "rmqha_write_lease_held": {"lease": (True, 21)},
}


@pytest.mark.parametrize("name", SWITCHES)
def test_switch_when_it_is_on_then_it_is_1_and_no_other_is(name: str) -> None:
    """They are 0 or 1, so that equal figures say nothing."""
    assert shown(FACTS._replace(**SWITCHES[name])) == SHOWN | {name: 1}


def test_lease_when_there_is_none_then_it_has_no_series() -> None:
    """A broker without one must not look like one that has lost it."""
    assert shown(FACTS._replace(lease=None)).keys() == SHOWN.keys() - {
        "rmqha_write_lease_held", "rmqha_write_lease_losses_total",
    }  # fmt: skip
