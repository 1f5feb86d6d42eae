"""One planned switch of real processes by bin/mqadmin, under sends with an old route."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from rmqha.testing.real.processes import wait_until
from tests.bench.bench_switch import GOALS_MS, Outcome, switch_once
from tests.bench.switch_stages import PythonStage

pytestmark = pytest.mark.slow


def test_switch_master_under_load_fails_no_send_and_loses_nothing(tmp_path: Path) -> None:
    """Every send of a client that has not heard of the switch is acknowledged, and stays."""
    outcome = Outcome(GOALS_MS["py"])
    with closing(PythonStage(tmp_path, 4)) as stage:
        before = stage.wait_in_sync()
        wait_until(lambda: len(stage.acked_since(0)) > 50, 30, "acknowledgements")
        switch_once(stage, "switchMaster", outcome)
        more = len(stage.acked_since(0)) + 50
        wait_until(lambda: len(stage.acked_since(0)) > more, 30, "sends that are passed on")
        after = stage.wait_in_sync()
        assert after.master_id != before.master_id
        acked, lost = stage.end()
        assert stage.failures() == 0
        assert acked > more
        assert lost == 0
