"""Run by ``test_connect.py``: the jobs in a process whose session is one of Spark Connect."""

from __future__ import annotations

import json
import os
import sys

from pyspark.sql import SparkSession

from rmqha.base.errors import ConfigInvalid
from rmqha.pipeline.jobs import audit, export, lag_latency
from rmqha.pipeline.spark.java import find_java_home
from rmqha.pipeline.spark.session import is_connect, register


def main(folder: str) -> None:
    """Stores ``a`` and ``b`` of a folder; what each job found, as JSON."""
    os.environ["JAVA_HOME"] = find_java_home()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    register(spark)
    a, b, lake = f"{folder}/a", f"{folder}/b", f"{folder}/lake"
    told: dict[str, object] = {"connect": is_connect(spark)}
    told["rows"] = spark.read.format("rocketmq-commitlog").load(a).count()
    found = audit.run(spark, [f"a={a}", f"b={b}"])
    told["differ"] = [one.physical_offset for one in found.differences]
    told["exported"] = export.run(spark, [f"broker-a={a}"], lake).rows
    told["again"] = export.run(spark, [f"broker-a={a}"], lake).rows
    told["lake"] = spark.read.parquet(lake).count()
    try:
        export.run(spark, [f"broker-a={a}"], "s3a://bucket/lake")
    except ConfigInvalid as error:
        told["refused"] = str(error)
    lag_latency.run(spark, [f"broker-a={a}"], f"{folder}/lag")
    told["latency"] = spark.read.parquet(f"{folder}/lag/latency").count() > 0
    spark.stop()
    print("\n" + json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1])
