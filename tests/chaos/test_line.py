"""When frames on a slow way are due."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from rmqha.chaos.line import Line


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 1)), max_size=40), st.integers(0, 99))
def test_frames_when_taken_then_each_goes_out_once_and_in_its_time(
    taken: list[tuple[int, int]], seed: int
) -> None:
    line = Line(30, 50, random.Random(seed))
    sent: dict[bytes, tuple[int, int]] = {}
    came: dict[bytes, int] = {}
    for now_ms in range(700):
        for number, (at_ms, way) in enumerate(taken):
            if at_ms == now_ms:
                frame = b"%d" % number
                sent[frame] = (now_ms, way)
                line.take(now_ms, way, frame)
        wait_ms = line.wait_ms(now_ms)
        due = line.due(now_ms)
        assert bool(due) == (wait_ms == 0)
        for way, frame in due:
            assert frame not in came
            assert sent[frame][1] == way
            came[frame] = now_ms
    assert set(came) == set(sent)
    assert all(30 <= came[frame] - sent[frame][0] <= 81 for frame in came)
    assert line.wait_ms(700) is None


def test_frames_when_there_is_jitter_then_some_overtake_others() -> None:
    line = Line(10, 50, random.Random(1))
    for number in range(100):
        line.take(number, 0, b"%d" % number)
    order = [int(frame) for now_ms in range(200) for _, frame in line.due(now_ms)]
    assert sorted(order) == list(range(100))
    assert order != sorted(order)
