"""Spark Connect: sources and jobs work from a client that has no Java, or say at once why not (P10)."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipeline.stores import messages, written
from tests.pipeline.test_reading import body_start, flip

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[2]
COUNT = 60


def test_jobs_when_the_session_is_one_of_spark_connect_then_they_work_or_say_why_not(
    tmp_path: Path,
) -> None:
    """A process of its own: a session of Spark Connect and another one do not go together."""
    records = asyncio.run(written(tmp_path / "a", messages(COUNT)))
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    hurt = next(one for one in records[30:] if len(one.body) > 100)
    flip(tmp_path / "b", body_start(hurt) + 50)
    done = subprocess.run(
        [sys.executable, "-m", "tests.pipeline.connect_jobs", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, timeout=240, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads(done.stdout.splitlines()[-1])
    refused = told.pop("refused")
    assert told == {
        "connect": True, "rows": COUNT, "differ": [hurt.physical_offset], "exported": COUNT,
        "again": COUNT, "lake": COUNT, "latency": True,
    }  # fmt: skip
    assert refused.startswith("s3a://bucket/lake: by Spark Connect a lake is written below")
