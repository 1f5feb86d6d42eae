"""What a bench of switches looks at while it measures."""

from __future__ import annotations

import pytest

from rmqha.testing.real.producer import Acked
from rmqha.testing.real.wire import Stored
from tests.bench import bench_switch
from tests.bench.bench_switch import REFUSALS_MAX, Outcome, SwitchRefused
from tests.bench.switch_stages import logged_places, since, whereabouts


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


def test_lost_messages_when_told_then_by_queue_broker_offsets_and_time() -> None:
    """Retention, an index that is late and a switch that lost something look different."""
    lost = [
        Acked(b"", 1, 7, 10.0, 11.0, "b:2", 300), Acked(b"", 1, 9, 12.0, 13.5, "b:2", 500),
        Acked(b"", 0, 3, 2.0, 3.0, "b:1", 100),
    ]  # fmt: skip
    assert whereabouts(lost, 20.0) == [
        "queue 0, acknowledged by b:1: 1 gone of offsets 3 to 3, from 100 in its log on, 17.0 to 17.0 s"
        " before the end",
        "queue 1, acknowledged by b:2: 2 gone of offsets 7 to 9, from 300 in its log on, 6.5 to 9.0 s"
        " before the end",
    ]
    assert whereabouts([], 20.0) == []


def test_lost_messages_when_another_has_their_offset_then_both_places_in_the_log_are_told() -> None:
    """A new master counted on from an index that its log was ahead of; or the log was cut."""
    lost = [Acked(b"a", 1, 7, 10.0, 11.0, "b:2", 100), Acked(b"gone", 0, 3, 2.0, 3.0, "b:1", 250)]
    log = [
        Stored(1, 7, 100, "T", b"a"), Stored(1, 7, 200, "T", b"b"), Stored(0, 4, 300, "T", b"c"),
    ]  # fmt: skip
    assert logged_places(lost, log) == [
        "1 of 2 are in its log files", "at 100: queue 1, offset 7", "at 300: queue 0, offset 4",
        "queue 1, offset 7: it at 100, another at 200",
    ]  # fmt: skip


@pytest.mark.parametrize("refused", range(REFUSALS_MAX + 1))
def test_switch_when_it_is_refused_then_it_is_counted_and_given_again_but_not_for_ever(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], refused: int
) -> None:
    """One refusal, while controllers changed their leader, ended a run of 84 that was not read back."""
    left = [SwitchRefused("not the leader")] * refused

    def once(*_: object) -> None:
        if left:
            raise left.pop()
        outcome.gaps_ms.append(7.0)

    outcome = Outcome(300)
    monkeypatch.setattr(bench_switch, "switch_once", once)
    if refused == REFUSALS_MAX:
        with pytest.raises(SwitchRefused):
            bench_switch.switch(None, "switchMaster", outcome)  # type: ignore[arg-type]
    else:
        bench_switch.switch(None, "switchMaster", outcome)  # type: ignore[arg-type]
    assert (outcome.refused, outcome.gaps_ms) == (refused, [7.0] * (refused < REFUSALS_MAX))
    assert capsys.readouterr().out.count("not the leader") == refused
