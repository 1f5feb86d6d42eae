"""What a Spark worker does besides its work: once for all its tasks, or to tell how far they are."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

Batches = Callable[["Iterator[pa.RecordBatch]"], "Iterator[pa.RecordBatch]"]
"""What ``mapInArrow`` runs."""

_state = {"frozen": False}


def freeze_modules() -> None:
    """Let the collector pass over what is loaded already; does nothing outside of a Spark task.

    Spark's Python daemon collects garbage after every task. With numpy, pandas and Arrow loaded
    each time costs 50 ms, as much as 50 MB of log. To be called at the end of a task, when all that
    it needs is loaded. Garbage of before goes first, once in a worker's life; what is made later is
    collected as ever, and what nothing refers to goes at once, frozen or not.
    """
    if _state["frozen"] or not is_task():
        return
    gc.collect()
    gc.freeze()
    _state["frozen"] = True


def is_task() -> bool:
    """Whether this is a worker of Spark that runs a task now."""
    from pyspark import TaskContext

    return TaskContext.get() is not None


class RowCount:
    """Rows that a job's own tasks have made; each task's are known when it has ended.

    Args:
        accumulator: Spark's; None on Spark Connect, which has none.
    """

    def __init__(self, accumulator: Any) -> None:
        self._accumulator = accumulator

    def add(self, rows: int) -> None:
        """To be called in a task."""
        if self._accumulator is not None:
            self._accumulator.add(rows)

    def of(self, work: Batches) -> Batches:
        """The same work, whose rows are counted."""
        return _Counted(work, self)

    @property
    def value(self) -> int:
        """On the driver."""
        return 0 if self._accumulator is None else int(self._accumulator.value)


class _Counted:
    """Travels to the workers."""

    def __init__(self, work: Batches, rows: RowCount) -> None:
        self._work = work
        self._rows = rows

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in self._work(batches):
            self._rows.add(batch.num_rows)
            yield batch
