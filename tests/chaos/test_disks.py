"""Disks of nodes: a real file system loses what was not synced, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.needs import needs_disks

ROOT = Path(__file__).resolve().parents[2]


@needs_disks
@pytest.mark.slow
def test_disk_when_its_power_is_cut_or_it_is_full_then_files_are_what_they_would_be() -> None:
    """A cut that kept unsynced bytes would find no broker that lies about its syncs."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos.disks_story"], cwd=ROOT, capture_output=True, text=True,
        timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "after the cut: EIO", "synced: True", "new: False", "full: ENOSPC", "emptied: 100000",
        "left: ['disk']",
    ]  # fmt: skip
    mounts = Path("/proc/self/mounts").read_text()
    assert "disk.ext4" not in mounts
