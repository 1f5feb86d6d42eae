"""Stages of a failover from logs."""

from __future__ import annotations

import json

from rmqha.chaos.outcome import Round
from rmqha.chaos.stages import NOTICED, WRITING, Told, told_by, with_stages

ROUND = Round(0, "crash broker-0", 1, 5_000, 2_000, elected_ms=40, whole_ms=500)


def line(event: str, **facts: object) -> str:
    """A line of a log at one moment."""
    return json.dumps({"event": event, "timestamp": "2026-01-01T00:00:01.250000Z", **facts})


def test_log_when_read_then_deaths_of_masters_and_new_masters_are_found() -> None:
    """Slaves that come and go, Java's lines, and lines that a kill cut short are none."""
    lines = [
        line("broker_inactive", was_master=True), line("broker_inactive", was_master=False),
        line("role_taken_up", role="master"), line("role_taken_up", role="slave"),
        line("role_taken_up", role="master")[:-9], 'WARN "role_taken_up"', '["role_taken_up"]', "",
        '{"event":"role_taken_up","role":"master"}',
    ]  # fmt: skip
    at_ms = 1_767_225_601_250
    assert told_by(lines) == [Told(at_ms, NOTICED), Told(at_ms, WRITING)]


def test_round_when_logs_tell_of_others_as_well_then_the_first_within_it_counts() -> None:
    told = [
        Told(104_000, NOTICED), Told(105_030, NOTICED), Told(105_020, NOTICED), Told(105_060, WRITING),
        Told(109_000, WRITING),
    ]  # fmt: skip
    found = with_stages(ROUND, 100_000, told)
    assert (found.noticed_ms, found.writing_ms) == (20, 60)


def test_round_when_nobody_was_elected_then_it_has_no_stages() -> None:
    """A master that comes back in its own epoch takes up its role as well."""
    one = Round(0, "hang broker-1", 1, 0, 2_000, elected_ms=None, whole_ms=10)
    assert with_stages(one, 0, [Told(5, NOTICED), Told(6, WRITING)]) is one
