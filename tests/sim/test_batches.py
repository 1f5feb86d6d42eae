"""Batches of seeds: what is said of one while it runs, and of one that does not come to its end."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from rmqha.cli.simulate import EXIT_ENDED, main
from rmqha.sim.batch import Played, Run

FAILS, ENDS = 120, 150


def play(monkeypatch: pytest.MonkeyPatch, *, signalled: int | None) -> Result:
    """A batch of 300 seeds that cost nothing, one of which fails."""

    def batch(run: Run, first: int, count: int, processes: int) -> Iterator[Played]:
        for seed in range(first, first + count):
            failure = "Broken: a rule" if seed == FAILS else ""
            yield Played(seed, failure, failure, notes="the end of its trace" if failure else "")
            if signalled is not None and seed == ENDS:
                os.kill(os.getpid(), signalled)

    monkeypatch.setattr("rmqha.cli.simulate.play_batch", batch)
    return CliRunner().invoke(main, ["1", "--count", "300", "--no-shrink"])


@pytest.mark.parametrize("signalled", [signal.SIGTERM, signal.SIGINT])
def test_batch_when_it_is_ended_then_it_says_how_far_it_came(
    monkeypatch: pytest.MonkeyPatch, signalled: int
) -> None:
    """An hour of seeds is not lost because its time was over."""
    before = signal.getsignal(signal.SIGTERM)
    result = play(monkeypatch, signalled=signalled)
    assert result.exit_code == EXIT_ENDED
    assert "seeds 1 to 150: 1 failed" in result.output
    assert "1 times Broken: a rule: 120" in result.output
    assert "the end of its trace" in result.output
    assert "ended after 150 of 300 seeds" in result.output
    assert "never happened" not in result.output
    assert signal.getsignal(signal.SIGTERM) is before


def test_batch_when_it_is_long_then_it_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line for each seed would hide the one that fails; none at all looks like a hang."""
    result = play(monkeypatch, signalled=None)
    assert result.exit_code == 1
    lines = [line for line in result.output.splitlines() if line.startswith("seeds 1 to ")]
    assert [line.partition(",")[0] for line in lines] == [
        "seeds 1 to 100: 0 failed",
        "seeds 1 to 200: 1 failed",
        "seeds 1 to 300: 1 failed",
        "seeds 1 to 300: 1 failed",
    ]
    assert "ended after" not in result.output
