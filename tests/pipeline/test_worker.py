"""What is loaded is out of the collector's way once a task has run, and nowhere else."""

from __future__ import annotations

import gc

import pytest

from rmqha.pipeline.spark import worker


@pytest.fixture(autouse=True)
def thawed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a worker that has run nothing yet."""
    monkeypatch.setitem(worker._state, "frozen", False)


def test_modules_when_outside_of_a_task_then_left_alone() -> None:
    """A program that reads a store by itself keeps its collector."""
    before = gc.get_freeze_count()
    worker.freeze_modules()
    assert gc.get_freeze_count() == before


@pytest.mark.costly
def test_modules_when_in_a_task_then_frozen_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is made behind the first task is collected as ever."""
    monkeypatch.setattr(worker, "is_task", lambda: True)
    before = gc.get_freeze_count()
    try:
        worker.freeze_modules()
        frozen = gc.get_freeze_count()
        assert frozen > before + 1000
        later: list[list[int]] = [[] for _ in range(1000)]
        worker.freeze_modules()
        assert gc.get_freeze_count() <= frozen  # what was frozen may end; nothing is added
        assert any(one is later[0] for one in gc.get_objects())
    finally:
        gc.unfreeze()
