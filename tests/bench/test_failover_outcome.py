"""What ``bench_failover`` writes down of a run in which nobody is elected."""

from __future__ import annotations

from typing import Any, Self

import pytest

from rmqha.testing.real.processes import WaitTimeout
from tests.bench import bench_failover
from tests.bench.bench_failover import WRITES_BACK_TIMEOUT_S, Outcome


class Stand:
    """Stands in for a cluster whose controllers elect nobody, and for its producer."""

    address, topic, master_id = "127.0.0.1:1", "T", 1
    acked: tuple[str, ...] = ("a", "b")

    def __getattr__(self, name: str) -> Any:
        """Whatever is asked of it."""
        return self

    def __call__(self, *_: object, **__: object) -> Stand:
        """Whatever is asked of it."""
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def wait_for_master(self, *_: object, other_than: int | None = None, **__: object) -> Stand:
        """There is one until the fault."""
        if other_than is not None:
            raise WaitTimeout("nobody is elected")
        return self

    def wait_for_write_after(self, *_: object, **__: object) -> float:
        """Never asked: it would take as long again."""
        raise AssertionError("nobody can write")


def test_run_when_nobody_is_elected_then_it_counts_as_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It ended the whole measurement, with all that had been measured."""
    stand, outcome = Stand(), Outcome()
    monkeypatch.setattr(bench_failover, "Producer", stand)
    monkeypatch.setattr(bench_failover, "_heal", lambda _: 0)
    monkeypatch.setattr(bench_failover, "_lost", lambda *_: 0)
    bench_failover._run_once(stand, "kill master", 0, outcome, 1.0)  # type: ignore[arg-type]
    assert (outcome.elected_s, outcome.seconds) == ([WRITES_BACK_TIMEOUT_S],) * 2
    assert (outcome.acked, outcome.lost) == (2, 0)
