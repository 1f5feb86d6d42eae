"""Times as columns, the same in sessions of every zone."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column

DAY_MS = 86_400_000


def utc_day(column: str) -> Column:
    """The day of a time, as text, whatever zone the session has."""
    from pyspark.sql import functions as f

    days = f"cast(floor(unix_millis({column}) / {DAY_MS}) as int)"
    return f.expr(f"cast(date_from_unix_date({days}) as string)")
