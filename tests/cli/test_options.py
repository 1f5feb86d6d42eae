"""Options that take seconds."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from rmqha.cli import chaos, demo, explore, explore_replicas, mqdoctor

COMMANDS = {
    "check --timeout": mqdoctor.main, "check --pause": mqdoctor.main,
    "--every": demo.main, "--fault-s": chaos.main, "--pause-s": chaos.main,
    "--seconds": explore.main, "--seconds ": explore_replicas.main,
}  # fmt: skip


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "NaN", "1e999"])
@pytest.mark.parametrize("words", COMMANDS)
def test_seconds_when_they_are_no_number_then_the_usage_says_so(words: str, value: str) -> None:
    """nan is within every range, and what waits for it ended in a traceback or never."""
    done = CliRunner().invoke(COMMANDS[words], [*words.split(), value])
    assert (done.exit_code, isinstance(done.exception, SystemExit)) == (2, True), done.output
    option = words.split()[-1]
    assert f"Invalid value for '{option}'" in done.output


def test_seconds_when_they_are_a_number_then_the_range_counts() -> None:
    """As with every other range of numbers."""
    done = CliRunner().invoke(mqdoctor.main, ["check", "--timeout", "61"])
    assert (done.exit_code, "0.1<=x<=60" in done.output) == (2, True)
