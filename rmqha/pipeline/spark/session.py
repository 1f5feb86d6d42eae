"""A SparkSession that works: with a Java, this Python in the workers, and the project's sources."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rmqha.base.errors import ConfigInvalid
from rmqha.pipeline.spark.java import find_java_home
from rmqha.pipeline.spark.times import AS_MICROS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL: Mapping[str, str] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
"""For a session in this process alone; nothing listens beyond loopback."""

TIME_ZONE = "spark.sql.session.timeZone"
ALWAYS: Mapping[str, str] = {
    "spark.sql.python.filterPushdown.enabled": "true",
    TIME_ZONE: "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    **AS_MICROS,
}
THEIRS = frozenset({TIME_ZONE, *AS_MICROS})
"""Settings of a session that somebody else has made and that stay as they are."""


def session(
    app: str = "rmqha", *, master: str | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """The running session, or a new one, with ``rocketmq-commitlog`` and ``rocketmq``.

    It is then the calling thread's, too: call it in every thread that writes. A new one shows times
    in UTC, and writes them so; one that runs keeps its zone.

    Args:
        app: the application's name.
        master: by default what ``spark-submit`` says, else ``local[*]``.
        settings: further Spark settings; they win.

    Raises:
        ConfigInvalid: pyspark is not installed, or no Java is found that it can use.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ConfigInvalid(f"pyspark is needed: pip install 'rmqha[spark]' ({error})") from error
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    builder = SparkSession.builder.appName(app)
    is_running = _is_running()
    for key, value in ALWAYS.items():
        if not (is_running and key in THEIRS):
            builder = builder.config(key, value)
    if not submitted:
        _prepare_process()
        builder = builder.master(master or "local[*]")
        if master is None or master.startswith("local"):
            for key, value in LOCAL.items():
                builder = builder.config(key, value)
    for key, value in (settings or {}).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    if SparkSession.getActiveSession() is None:
        # A thread that did not start the session: without one of its own Spark (4.3) finds no
        # sink there that is written in Python. This makes it the thread's.
        spark.createDataFrame([], "none int")
    register(spark)
    return spark


def is_connect(spark: SparkSession) -> bool:
    """Whether a session is one of Spark Connect: a client alone, whose Java is elsewhere."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def register(spark: SparkSession) -> None:
    """Make the sources known to a session that was made elsewhere."""
    from rmqha.pipeline.commitlog.source import CommitLogSource
    from rmqha.pipeline.live.source import RocketmqSource

    spark.dataSource.register(CommitLogSource)
    spark.dataSource.register(RocketmqSource)


def _prepare_process() -> None:
    if not _is_running():
        os.environ["JAVA_HOME"] = find_java_home()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def _is_running() -> bool:
    """In this thread or another one."""
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    try:
        SparkSession.active()
    except PySparkRuntimeError:
        return False
    return True
