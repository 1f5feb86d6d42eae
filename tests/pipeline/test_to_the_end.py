"""How the tests' own streams are started again: for one reason only, and not for ever."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tests.pipeline.to_the_end import STARTS, UNHEARD, to_the_end

pytest.importorskip("pyspark")
from pyspark.errors import StreamingQueryException


class Query:
    """Ends with an error, or well."""

    def __init__(self, error: str | None) -> None:
        self.error = error

    def awaitTermination(self, within_s: float) -> bool:  # noqa: N802 (Spark's name)
        """At once."""
        assert within_s == 7
        if self.error is not None:
            raise StreamingQueryException(self.error)
        return True


def played(*errors: str | None) -> tuple[Any, int]:
    """The query that ended well, and which one it was."""
    queries = [Query(error) for error in errors]
    begun: list[Query] = []

    def start() -> Any:
        begun.append(queries[len(begun)])
        return begun[-1]

    return cast("Any", to_the_end(start, 7)), len(begun)


def test_query_when_spark_gave_its_worker_up_then_started_again() -> None:
    """And the last one is told of, whose progress is that of all."""
    found, begun = played(UNHEARD, UNHEARD, None, None)
    assert found.error is None
    assert begun == 3


def test_query_when_it_fails_for_another_reason_or_always_then_raised() -> None:
    """Data that was lost stays an error."""
    with pytest.raises(StreamingQueryException, match="lost data"):
        played("lost data", None)
    with pytest.raises(StreamingQueryException, match=UNHEARD):
        played(*[UNHEARD] * STARTS, None)
