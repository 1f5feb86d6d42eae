"""Spark's source and sink at a cluster whose every port asks for a certificate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from rmqha.testing.plugin import Factory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]
ROWS = [(f"row {number}",) for number in range(20)]


def test_rows_when_written_and_read_by_tls_then_all_of_them(
    spark: SparkSession, rmq_cluster_factory: Factory
) -> None:
    """The tasks dial for themselves; without the certificate they are sent away."""
    cluster = rmq_cluster_factory(tls=True, controllers=1, replicas=1)
    cluster.produce(b"row -1", topic="Sealed")
    folder = cluster.folder / "certificates"
    least = {"nameServer": cluster.namesrv_addr, "topic": "Sealed", "failoverTimeoutMs": "5000"}
    access = least | {
        "tls.enable": "true",
        "tls.client.authServer": "true",
        "tls.client.trustCertPath": str(folder / "authority.pem"),
        "tls.client.certPath": str(folder / "node.pem"),
        "tls.client.keyPath": str(folder / "node.key"),
    }
    rows = spark.createDataFrame(ROWS, "body string")
    rows.write.format("rocketmq").mode("append").options(**access).save()
    cluster.consume("Sealed")  # queues trail the log by a moment
    found = spark.read.format("rocketmq").options(**access).load().collect()
    assert sorted(row.body for row in found) == sorted(
        [b"row -1", *(text.encode() for (text,) in ROWS)]
    )
    with pytest.raises(PySparkException):
        rows.write.format("rocketmq").mode("append").options(**least).save()
