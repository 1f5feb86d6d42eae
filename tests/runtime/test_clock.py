"""The machine's clock."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time

import pytest

from rmqha.runtime.aio.clock import SystemClock

PROGRAM = """
import time
from rmqha.runtime.aio.clock import SystemClock
print(SystemClock().now_ms() - time.monotonic_ns() // 1_000_000)
"""


def _suspended(seconds: int) -> subprocess.CompletedProcess[str]:
    """What the program says on a machine that was suspended for so long: a namespace of clocks."""
    command = ["unshare", "--user", "--map-root-user", "--time", "--boottime", str(seconds)]
    return subprocess.run(
        [*command, sys.executable, "-c", PROGRAM],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.skipif(shutil.which("unshare") is None, reason="no namespaces here")
def test_clock_when_the_machine_was_suspended_then_that_time_has_passed() -> None:
    """A lease would be good for so much longer than everybody else believes."""
    done = _suspended(1_000)
    if done.returncode and "unshare" in done.stderr:
        pytest.skip(f"no namespace of clocks may be made here: {done.stderr.strip()}")
    assert abs(int(done.stdout) - 1_000_000) < 100


def test_clock_when_another_stands_still_then_it_is_not_the_one_that_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same where no namespace may be made."""
    stood_still = {time.CLOCK_BOOTTIME: 5_000_000_000}
    monkeypatch.setattr(time, "clock_gettime_ns", lambda which: stood_still.get(which, 0))
    assert SystemClock().now_ms() == 5_000


def test_clock_when_read_again_then_it_counts_milliseconds() -> None:
    clock = SystemClock()
    before = clock.now_ms(), time.monotonic()
    time.sleep(0.02)
    passed_ms = clock.now_ms() - before[0]
    assert 20 <= passed_ms + 1 <= (time.monotonic() - before[1]) * 1000 + 2
