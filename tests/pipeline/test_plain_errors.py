"""What users are shown when they made a mistake: one line, and never Java's frames."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from pyspark.errors import PySparkException

from rmqha.base.errors import ConfigInvalid
from rmqha.cli.pipeline import main
from rmqha.pipeline.spark.plain_errors import line_of, one_line
from tests.pipeline.stores import messages, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.filterwarnings("ignore")]
HIDE = "SPARK_HIDE_TRACEBACK"


@pytest.mark.spark
@pytest.mark.parametrize(
    ("make", "what"),
    [
        (
            lambda reader: reader.format("rocketmq-commitlog").option("partBites", "5").load("/a"),
            "rocketmq-commitlog has no option partbites; did you mean partBytes? It has path,",
        ),
        (
            lambda reader: reader.format("rocketmq-commitlog").load("/no/such/store").collect(),
            "/no/such/store: no store, for it has no commitlog directory",
        ),
        (
            lambda reader: reader.format("rocketmq").option("topic", "t").load(),
            "rocketmq needs nameServer: host:port, several with semicolons",
        ),
        (
            lambda reader: reader.format("rocketmq")
            .options(nameServer="127.0.0.1:1", topic="t", failoverTimeoutMs="0")
            .load()
            .collect(),
            "cannot connect to 127.0.0.1:1",
        ),
    ],
)
def test_source_when_asked_for_nonsense_then_one_line(
    spark: SparkSession, make: Callable[[Any], object], what: str
) -> None:
    """Spark's own words before it, and no frame."""
    with pytest.raises(PySparkException) as told:
        make(spark.read)
    text = str(told.value).partition("SQLSTATE")[0].strip()
    assert what in text
    assert len(text.splitlines()) == 1, text


@pytest.mark.spark
async def test_job_when_its_lake_cannot_be_written_then_one_line(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A file stands where the lake is to be."""
    await written(tmp_path / "store", messages(5))
    (tmp_path / "file").write_text("mine")
    arguments = ["export", f"a={tmp_path / 'store'}", "-o", str(tmp_path / "file" / "lake")]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 2, done.output
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("pipeline: ")
    assert str(tmp_path / "file") in last
    assert "\tat " not in done.output
    assert "Traceback" not in done.output


def test_errors_when_for_users_then_their_line_alone() -> None:
    """Spark's text has the worker's frames and Java's around it; a mistake of ours keeps all."""
    shown = PySparkException(
        "Job aborted due to stage failure: Task 0 failed 1 times, most recent failure: Lost task"
        " (host executor driver): org.apache.spark.api.python.PythonException: Traceback:\n"
        '  File "a.py", line 3\nrmqha.pipeline.live.offsets.DataLost: t, b, queue 0: gone\n\n'
        "\tat org.apache.spark.api.python.Reader.handle(PythonRunner.scala:645)\n"
    )
    assert line_of(shown) == "t, b, queue 0: gone"
    refused = PySparkException("Job aborted: java.io.IOException: Mkdirs failed\n\tat java.base/x")
    assert line_of(refused) == "Mkdirs failed"
    nowhere = PySparkException(
        "x: org.apache.hadoop.fs.UnsupportedFileSystemException: No FileSystem for scheme\n\tat a"
    )
    assert line_of(nowhere) == "No FileSystem for scheme"
    assert line_of(PySparkException("java.net.ConnectException: refused\n\tat a")) == "refused"
    assert line_of(PySparkException("KeyError: 'a'\n\tat java.base/x")) is None
    assert line_of(ConfigInvalid("no")) == "no"
    assert line_of(KeyError("a")) is None
    assert line_of(BrokenPipeError(32, "Broken pipe")) is None


def test_traceback_when_hidden_then_only_in_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """And only of errors that tell a user something."""
    for name in (HIDE, "PYTHON_WORKER_FACTORY_SECRET", "PYTHON_WORKER_FACTORY_SOCK_PATH"):
        # Set first, or what the test leaves would stay.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)

    @one_line()
    def fail(error: Exception) -> None:
        raise error

    with pytest.raises(ConfigInvalid):
        fail(ConfigInvalid("no"))
    assert HIDE not in os.environ
    monkeypatch.setenv("PYTHON_WORKER_FACTORY_SECRET", "x")
    with pytest.raises(KeyError):
        fail(KeyError("a"))
    assert HIDE not in os.environ
    with pytest.raises(ConfigInvalid):
        fail(ConfigInvalid("no"))
    assert os.environ[HIDE] == "1"
