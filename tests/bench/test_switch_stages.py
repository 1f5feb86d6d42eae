"""What a bench of switches looks at while it measures."""

from __future__ import annotations

from tests.bench.switch_stages import since


def test_newest_acknowledgements_when_looked_for_then_no_older_ones_are_looked_at() -> None:
    """A look at millions of them keeps the senders, threads of the same process, from sending."""
    looked: list[float] = []

    def time_of(one: float) -> float:
        looked.append(one)
        return one

    times = [float(at) for at in range(1000)]
    assert since(times, 996.5, time_of) == [997.0, 998.0, 999.0]
    assert looked == [999.0, 998.0, 997.0, 996.0]
    assert since(times, 0.0, float) == times
    assert since([], 0.0, float) == []
