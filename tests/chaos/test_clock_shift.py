"""Wall clocks that jump under processes of ours: which, by how much, and no other clock."""

from __future__ import annotations

import importlib.util
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from rmqha.chaos.aio.clock_shift import write_shift
from rmqha.chaos.aio.java_clock import with_clock, write_java_shift
from rmqha.chaos.scenarios import BY_NAME, JUMPS_S, Kind, Members, draw
from rmqha.cli.chaos import main

ROOT = Path(__file__).resolve().parents[2]
THREE = Members(("b0", "b1", "b2"), ("c0", "c1", "c2"), "b0", "c0")
NEAR_MS = 60_000
"""A busy machine may take its time; jumps here are of an hour."""


@pytest.mark.costly
def test_clock_when_the_file_says_so_then_only_the_wall_clock_jumps(tmp_path: Path) -> None:
    """As ours and as libraries read it; there and back; arguments reach the program."""
    file = tmp_path / "clock"
    write_shift(file, 0)
    command = [sys.executable, "-m", "rmqha.chaos.aio.clock_shift", str(file)]
    last_ms = 0
    with subprocess.Popen(
        [*command, "tests.chaos.clock_story", "an", "argument"], cwd=ROOT, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as program:  # fmt: skip
        assert program.stdin is not None
        assert program.stdout is not None
        for shift_s in (0, 3_600, -3_600, 0):
            write_shift(file, shift_s)
            program.stdin.write("\n")
            program.stdin.flush()
            told = program.stdout.readline().split()
            assert told[3:] == ["an", "argument"]
            ours_ms, theirs_ms, interval_ms = map(int, told[:3])
            now_ms = time.time_ns() // 1_000_000
            assert abs(ours_ms - now_ms - shift_s * 1000) < NEAR_MS
            assert abs(theirs_ms - ours_ms) < NEAR_MS
            assert interval_ms >= last_ms
            assert abs(interval_ms - time.monotonic_ns() // 1_000_000) < NEAR_MS
            last_ms = interval_ms
        program.stdin.close()
        assert program.wait(60) == 0


@given(st.integers(0, 2**32), st.sampled_from(("brokers", "controllers", "both")))
def test_jump_when_drawn_then_some_clocks_are_wrong_and_some_are_right(
    seed: int, scope: str
) -> None:
    """Were all wrong alike, nobody would see it."""
    fault = draw(BY_NAME[f"clock-jump-{scope}"], random.Random(seed), THREE)
    assert fault is not None
    scoped = {"brokers": THREE.brokers, "controllers": THREE.controllers}.get(
        scope, (*THREE.brokers, *THREE.controllers)
    )
    assert set(fault.hosts) < set(scoped)
    assert 0 < fault.count == len(fault.hosts)
    assert fault.kind is Kind.CLOCK_JUMP
    assert fault.text.startswith(f"clock jump of {fault.jump_s:+} s {fault.hosts[0]}")


def test_jumps_when_many_are_drawn_then_each_comes() -> None:
    drawn = {
        fault.jump_s
        for seed in range(200)
        if (fault := draw(BY_NAME["clock-jump-both"], random.Random(seed), THREE)) is not None
    }
    assert drawn == set(JUMPS_S)


def test_services_when_clocks_are_to_jump_then_they_are_refused() -> None:
    """A timer that comes early would be no fault."""
    done = CliRunner().invoke(main, ["clock-jump-both", "--services"])
    assert done.exit_code == 2
    assert "the clocks by which delays and timers go" in " ".join(done.output.split())


@pytest.mark.parametrize("more", [["--brokers", "py,java"], ["--controllers", "jraft"]])
def test_clocks_of_java_when_there_is_no_library_to_move_them_then_that_is_said_first(
    monkeypatch: pytest.MonkeyPatch, more: list[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    done = CliRunner().invoke(main, ["clock-jump-both", *more])
    assert done.exit_code == 2
    assert "pip install libfaketime" in " ".join(done.output.split())


def test_file_of_a_java_clock_when_it_is_moved_then_it_is_never_half_written(
    tmp_path: Path,
) -> None:
    """As libfaketime reads it, at any moment."""
    file = tmp_path / "clock"
    command = with_clock(["java", "-version"], file)
    assert (command[0], command[-2:]) == ("env", ["java", "-version"])
    assert f"FAKETIME_TIMESTAMP_FILE={file}" in command
    told = [file.read_text()]
    for shift_s in (3_600, -60, 0):
        before = file.stat().st_ino
        write_java_shift(file, shift_s)
        assert file.stat().st_ino != before, "another file in its place"
        told.append(file.read_text())
    assert told == ["+0\n", "+3600\n", "-60\n", "+0\n"]
    assert list(tmp_path.iterdir()) == [file]
