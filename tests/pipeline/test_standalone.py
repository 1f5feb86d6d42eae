"""Beyond one machine: the documented spark-submit line on a cluster of processes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqha.pipeline.spark.package import write_package
from tests.pipeline.standalone import StandaloneCluster
from tests.pipeline.stores import messages, written
from tests.pipeline.test_reading import body_start, flip

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]


async def test_audit_when_submitted_to_a_cluster_then_its_workers_find_the_byte(
    tmp_path: Path,
) -> None:
    """Sources from the zip alone, both workers busy, the message named, and the exit code."""
    records = await written(tmp_path / "a", messages(120))
    for name in ("b", "c"):
        shutil.copytree(tmp_path / "a", tmp_path / name)
    hurt = next(one for one in records[60:] if len(one.body) > 100)
    flip(tmp_path / "b", body_start(hurt) + 50)
    package = write_package(tmp_path / "package")
    stores = [str(tmp_path / name) for name in "abc"]
    page = tmp_path / "report.html"
    with StandaloneCluster(tmp_path / "cluster") as cluster:
        done = cluster.submit(*package, "replica-audit", *stores, "--report", str(page))
        told = done.stdout + done.stderr[-5000:]
        # A traceback ends with 1, too.
        assert done.stdout.rstrip().endswith("1 differ"), told
        applications = [list(cluster.work_dir(number).glob("app-*/*")) for number in (0, 1)]
        busy = cluster.executors_with_tasks()
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert lines[-2].startswith(
        f"{hurt.physical_offset}: {hurt.topic} queue {hurt.queue_id} offset {hurt.queue_offset}"
    ), told
    assert "The replicas differ" in page.read_text()
    assert [len(one) for one in applications] == [1, 1]
    assert busy == {"0", "1"}
