"""One planned switch of real processes by bin/mqadmin, under sends with an old route."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqha.testing.cluster import RmqCluster
from rmqha.testing.real.processes import wait_until
from tests.bench.bench_switch import TOPIC, Outcome, Senders, switch_once

pytestmark = pytest.mark.slow


def test_switch_master_under_load_fails_no_send_and_loses_nothing(tmp_path: Path) -> None:
    """Every send of a client that has not heard of the switch is acknowledged, and stays."""
    outcome = Outcome()
    with RmqCluster(tmp_path, processes=True) as cluster:
        cluster.produce(5, topic=TOPIC)
        cluster.wait_in_sync(3)
        before = cluster.set_info()
        senders = Senders(cluster, 4)
        wait_until(lambda: len(senders.acked_s) > 50, 30, "acknowledgements")
        switch_once(cluster, senders, "switchMaster", outcome)
        more = len(senders.acked_s) + 50
        wait_until(lambda: len(senders.acked_s) > more, 30, "sends that are passed on")
        senders.stop()
        assert senders.failed == []
        after = cluster.set_info()
        assert before is not None
        assert after is not None
        assert after.master_id != before.master_id
        stored = cluster.consume(TOPIC, settle_s=5.0)
        assert len(stored) >= len(senders.acked_s) + 5
