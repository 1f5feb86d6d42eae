"""A stream that reads what there is now, and is started again where Spark gave its worker no time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

UNHEARD = "Python worker failed to connect back"
"""Spark 4.3 gives the process in which it plans a stream ten seconds to start, and no setting for more. Three
test workers with Java's brokers beside them have taken longer."""
STARTS = 4


def to_the_end(start: Callable[[], StreamingQuery], within_s: float) -> StreamingQuery:
    """Wait until a query with ``availableNow`` has ended; one that Spark gave up is started again.

    As an operator does it: the checkpoint says where it goes on. Before the worker has spoken there is
    no batch that could have been half done.

    Raises:
        StreamingQueryException: it failed for another reason, or for this one too often.
    """
    from pyspark.errors import StreamingQueryException

    for left in reversed(range(STARTS)):
        query = start()
        try:
            assert query.awaitTermination(within_s)
        except StreamingQueryException as error:
            if left == 0 or UNHEARD not in str(error):
                raise
            continue
        return query
    pytest.fail("there is always a last start")


def stream_to(writer: DataStreamWriter, lake: str, within_s: float) -> StreamingQuery:
    """``to_the_end`` of a writer that has its checkpoint, into the Parquet files of ``lake``."""
    return to_the_end(lambda: writer.trigger(availableNow=True).start(lake), within_s)
