"""Spark over commit logs: ``from rmqha.pipeline import session``."""

from __future__ import annotations

from rmqha.pipeline.spark.session import session

__all__ = ["session"]
