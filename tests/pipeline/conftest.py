"""One Spark session for all tests: it takes seconds to start and half a gigabyte."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

if importlib.util.find_spec("pyspark") is None and os.environ.get("CI") != "true":
    # bin/test --fast runs without Spark's half gigabyte; bin/test and CI install it.
    collect_ignore_glob = ["test_*.py"]

SMALL = {
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.sql.shuffle.partitions": "2",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Two cores, in this process."""
    from rmqha.pipeline import session

    made = session("tests", master="local[2]", settings=SMALL)
    yield made
    made.stop()
