"""Work in parts that is done at once."""

from __future__ import annotations

from collections.abc import Generator

from rmqha.runtime.parts import at_once


def test_work_when_done_at_once_then_all_its_parts_are_done_and_its_result_comes() -> None:
    """Also of work that has one part only."""
    done: list[int] = []

    def work(parts: int) -> Generator[None, None, int]:
        for number in range(parts):
            done.append(number)
            yield
        return 7

    assert (at_once(work(3)), done) == (7, [0, 1, 2])
    assert at_once(work(0)) == 7
