"""Times as columns and in files, the same in sessions of every zone and setting."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import RLock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

DAY_MS = 86_400_000
AS_MICROS: Mapping[str, str] = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}
"""For times in files that every reader takes for UTC, and that have statistics (ADR 0045). By itself
Spark writes INT96."""
_changing: dict[str, RLock] = {}
"""By session: another one's writers wait for nobody."""


@contextmanager
def as_micros(spark: SparkSession) -> Iterator[None]:
    """Whatever the block writes has times as ``AS_MICROS`` says.

    No option of a writer does that, only the session, which may be somebody else's: it has its own
    settings back afterwards. Threads that share such a session write one after the other.
    """
    # What the session has counts only when no other thread is about to give it its own back.
    with _changing.setdefault(_session_id(spark), RLock()):
        before = {name: spark.conf.get(name) for name in AS_MICROS}
        if before != AS_MICROS:
            try:
                for name, value in AS_MICROS.items():
                    spark.conf.set(name, value)
                yield
            finally:
                for name, known in before.items():
                    spark.conf.set(name, str(known))
            return
    # Nobody changes it meanwhile: a session that has it has it for good.
    yield


def _session_id(spark: SparkSession) -> str:
    """Of whatever has the settings: Python may have several objects of one session of Java's."""
    known: Any = spark
    of_connect = getattr(known, "session_id", None)
    # Spark has no public way to a session's of its own process.
    return str(of_connect or known._jsparkSession.sessionUUID())  # noqa: SLF001


def utc_day(column: str) -> Column:
    """The day of a time, as text, whatever zone the session has."""
    from pyspark.sql import functions as f

    days = f"cast(floor(unix_millis({column}) / {DAY_MS}) as int)"
    return f.expr(f"cast(date_from_unix_date({days}) as string)")
