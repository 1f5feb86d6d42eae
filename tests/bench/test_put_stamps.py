"""The clock between the parts of a put is where the parts are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.bench_ha import WHOLE, Bench
from tests.bench.put_stamps import PARTS

PUTS, WARM_UP = 100, 50
ROUNDING_US = 0.01


@pytest.mark.costly
def test_stamps_when_puts_are_acknowledged_then_each_part_has_its_time_and_they_add_up(
    tmp_path: Path,
) -> None:
    """A part had moved to another class: the bench ended before it began, and no test had run it."""
    bench = Bench(tmp_path, 1)
    bench.apart(PUTS, WARM_UP)
    took = {name: values[0] for name, values in bench.figures["apart"].items()}
    for where in ("median", "fastest"):
        parts = [took[f"{where} {who}: {what}"] for who, what, _, _ in PARTS]
        assert all(one > 0 for one in parts), parts
        assert sum(parts) == pytest.approx(took[f"{where} all: {WHOLE}"], abs=ROUNDING_US)
