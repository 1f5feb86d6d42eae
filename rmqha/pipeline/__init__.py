"""Commit logs as tables: ``from rmqha.pipeline import session`` for Spark, ``read`` for the others.

Each brings its own libraries, which need not be there for the other one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqha.pipeline.spark.session import session

if TYPE_CHECKING:
    from rmqha.pipeline.commitlog.arrow_reader import read

__all__ = ["read", "session"]


def __getattr__(name: str) -> Any:
    if name == "read":
        from rmqha.pipeline.commitlog.arrow_reader import read

        return read
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
