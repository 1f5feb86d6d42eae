"""What backlogs do in each turn of the loop."""

from __future__ import annotations

from typing import Any

import pytest

from rmqha.runtime.aio.turns import Backlog


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many were handled in each turn of any backlog."""
    seen: list[int] = []
    real = Backlog._go_on

    def go_on(backlog: Backlog[Any]) -> None:
        before = len(backlog)
        real(backlog)
        seen.append(before - len(backlog))

    monkeypatch.setattr(Backlog, "_go_on", go_on)
    return seen
