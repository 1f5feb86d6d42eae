"""The Python examples of docs/pipeline.md run as they stand there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rmqha.testing.cluster import RmqCluster
from tests.pipeline.live import Topic
from tests.pipeline.stores import TOPICS, messages, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]
PAGE = Path(__file__).parents[2] / "docs" / "pipeline.md"
LIVE = re.search(r"^## Live topics\n.*?(?=^## )", PAGE.read_text(), re.DOTALL | re.MULTILINE)
assert LIVE is not None
EXAMPLE = re.compile(r"```python\n(.*?)```", re.DOTALL)
EXAMPLES = EXAMPLE.findall(PAGE.read_text().replace(LIVE[0], ""))


async def test_examples_when_run_then_they_show_what_is_stored(
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In one go, as a reader would: later ones use what earlier ones made."""
    records = await written(tmp_path / "store", messages(40))
    assert len(EXAMPLES) == 2
    scope: dict[str, object] = {}
    for example in EXAMPLES:
        # Spark's own working directory is where its JVM was started.
        exec(example.replace('"store"', f'"{tmp_path / "store"}"'), scope)
    shown = capsys.readouterr().out
    for topic in TOPICS:
        assert topic in shown
    orders = sum(one.topic == "orders" for one in records)
    assert shown.strip().splitlines()[-1] == str(orders)


def test_live_examples_when_run_then_they_show_what_was_sent(
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Against a cluster in this process, in place of the one that the page names."""
    assert LIVE is not None
    with RmqCluster(tmp_path / "cluster", controllers=1, replicas=1) as cluster:
        Topic(cluster, "orders").fill(17)
        Topic(cluster, "copies")
        scope: dict[str, object] = {}
        for example in EXAMPLE.findall(LIVE[0]):
            here = example.replace("127.0.0.1:9876", cluster.namesrv_addr)
            exec(here.replace('"lake/', f'"{tmp_path}/lake/'), scope)
    shown = capsys.readouterr().out.split()
    assert [word for word in shown if word in ("17", "2")] == ["17", "2"]
