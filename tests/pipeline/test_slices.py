"""Ranges of a file as Arrow arrays: by a copy, and by views of the file itself."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from rmqha.pipeline.commitlog.columns import Slices


@st.composite
def ranges(draw: st.DrawFn) -> tuple[bytes, list[tuple[int, int]], list[int]]:
    """A file, ranges of it that ascend, and an order of some of them."""
    sizes = draw(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 30)), max_size=12))
    at, found = 0, []
    for gap, size in sizes:
        found.append((at + gap, size))
        at += gap + size
    file = draw(st.binary(min_size=max(at, 1), max_size=max(at, 1)))
    order = draw(st.lists(st.integers(0, len(found) - 1), max_size=20)) if found else []
    return file, found, order


@given(ranges())
def test_ranges_when_taken_or_seen_then_the_bytes_of_the_file(
    case: tuple[bytes, list[tuple[int, int]], list[int]],
) -> None:
    """Twelve bytes and fewer stand in a view itself, also at the very end of a file."""
    file, found, order = case
    slices = Slices(
        memoryview(file),
        np.array([at for at, _ in found], np.int64),
        np.array([size for _, size in found], np.int64),
    )
    wanted = [file[found[rank][0] :][: found[rank][1]] for rank in order]
    ranks = np.array(order, np.int64)
    assert slices.take(ranks).to_pylist() == wanted
    seen = slices.views(ranks)
    seen.validate(full=True)
    assert seen.to_pylist() == wanted
    assert seen.cast(pa.binary()).to_pylist() == wanted
