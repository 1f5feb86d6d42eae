"""Hosts of their own: real namespaces and the kernel's own rules, seen by real packets."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.needs import needs_hosts

ROOT = Path(__file__).resolve().parents[2]
STORY = Path(__file__).with_name("hosts_story.py")


@needs_hosts
@pytest.mark.slow
def test_links_when_a_fault_takes_them_then_packets_are_dropped_as_it_says() -> None:
    """One direction, both, some of them, and none after healing; nothing is left behind."""
    before = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos.hosts_story"], cwd=ROOT, capture_output=True, text=True,
        timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = dict(line.split(": ") for line in done.stdout.splitlines())
    assert told.pop("some") in {str(count) for count in range(3, 40)}, "80 % of 100 are lost"
    assert told == {
        "whole a to b": "100", "whole b to a": "100",
        "one way a to b": "0", "one way b to a": "100",
        "cut a to b": "0", "cut b to a": "0", "cut hub to a": "100",
        "healed a to b": "100", "healed b to a": "100", "again a to b": "100",
        "late a to b": "(0, 100)", "late b to a": "(0, 100)", "late hub to a": "(0, 100)",
        "late there and back": "True", "in time b to a": "100", "in time there and back": "True",
    }  # fmt: skip
    after = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    assert after == before


def test_hosts_when_a_program_is_missing_then_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package, too: whoever reads it wants to install it."""
    from rmqha.chaos.aio import hosts

    monkeypatch.setattr(hosts.shutil, "which", lambda name: None if name == "nft" else name)
    monkeypatch.delenv(hosts.INSIDE, raising=False)
    with pytest.raises(hosts.HostsUnavailable, match=r"missing programs: nft \(nftables\)"):
        hosts.enter([], "nobody")
