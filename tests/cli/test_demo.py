"""bin/demo: the shop window. It must say the truth, and its exit code must, too."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from rmqha.cli.demo_python import PythonDemo, tally
from rmqha.cli.demo_show import console_width
from rmqha.testing.workload import Ledger

pytestmark = pytest.mark.slow
STAGES = ("is killed", "as dead", "elects broker", "serves as master", "writes are acknowledged")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the demo as bin/demo does."""
    return subprocess.run(
        [sys.executable, "-m", "rmqha.cli.demo", *arguments],
        capture_output=True, text=True, timeout=90, check=False, env={},
    )  # fmt: skip


def test_once_shows_a_failover_stage_by_stage_and_ends_with_0() -> None:
    """Everything acknowledged is read, nothing is lost, and no directory stays behind."""
    done = run("--once")
    assert done.returncode == 0, done.stdout + done.stderr
    at = [done.stdout.index(stage) for stage in STAGES]
    assert at == sorted(at)
    *_, last = re.findall(r"([\d,]+) acknowledged, ([\d,]+) read, (\d+) lost", done.stdout)
    acknowledged, consumed, lost = (int(number.replace(",", "")) for number in last)
    assert acknowledged == consumed >= 500
    assert lost == 0
    assert "status page http://127.0.0.1:" in done.stdout
    assert "Stores and logs" not in done.stdout
    # In a pipe, nothing is broken within a sentence.
    assert re.search(r"elects broker \d.*quorum's disks after \d+ ms\)", done.stdout)
    assert re.search(r"first message acknowledged after [\d.]+ s; \S+ leads\n", done.stdout)


def test_width_when_piped_then_wide_and_on_a_terminal_its_own() -> None:
    """Rich takes 80 columns where there is no terminal."""
    assert console_width(is_terminal=True) is None
    assert console_width(is_terminal=False) == 160


def test_a_loss_is_shown_and_ends_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A demo that ends with 0 whatever happens shows nothing."""

    def lose(demo: PythonDemo) -> None:
        assert demo._workload is not None
        demo._workload.ledger.lost.append(7)

    monkeypatch.setattr(PythonDemo, "_round", lose)
    assert PythonDemo(tmp_path, 1.0).play(once=True) == 1
    assert "1 lost" in capsys.readouterr().out


def test_agents_still_play() -> None:
    """The older demo is an option now."""
    done = run("--once", "--brokers", "agents")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "scripted agents joins" in done.stdout


def test_a_kind_of_broker_that_does_not_exist_is_refused() -> None:
    """Before anything is started."""
    done = run("--brokers", "go")
    assert done.returncode == 2
    assert "'go' is not one of" in done.stderr


def test_the_tally_counts_what_the_ledger_knows() -> None:
    """No figure is made up."""
    ledger = Ledger()
    ledger.acked(0, 0, 0)
    ledger.passed(0, 1)
    assert tally(ledger, [31.4]) == (
        "1 acknowledged, 0 read, [red]1 lost[/red], 0 duplicate; writes were back after 31 ms"
    )
