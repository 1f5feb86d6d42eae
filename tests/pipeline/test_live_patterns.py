"""Which topics a pattern names; no brokers."""

from __future__ import annotations

from typing import Any, cast

import pytest

from rmqha.client.aio.master_client import MasterClient
from rmqha.pipeline.live.options import read_options
from rmqha.pipeline.live.planning import Planner

LISTED = [
    "Orders", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "rmq_sys_wheel_timer",
    "%RETRY%G", "DefaultCluster", "DefaultCluster_REPLY_TOPIC",
]  # fmt: skip


class Topics:
    """Name servers that only tell of topics."""

    def topics(self) -> tuple[list[str], frozenset[str]]:
        """All names, and those of clusters and brokers."""
        return LISTED, frozenset({"DefaultCluster"})


@pytest.mark.parametrize(
    ("pattern", "found"),
    [(".*", ["Orders"]), ("rmq_sys_.*", ["rmq_sys_wheel_timer"]), ("%RETRY%.*", ["%RETRY%G"])],
)
def test_pattern_when_it_matches_what_brokers_keep_for_themselves_then_that_is_left_out(
    pattern: str, found: list[str]
) -> None:
    """Also what only brokers of 5.5 keep; who names a prefix of theirs means them."""
    options: Any = read_options({"nameServer": "a:1", "subscribePattern": pattern})
    planner = Planner(cast(MasterClient, Topics()), options, lambda _: None)
    assert list(planner._topics()) == found
