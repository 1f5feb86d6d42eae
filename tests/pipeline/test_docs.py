"""The Python examples of docs/pipeline.md run as they stand there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from rmqha.cli.pipeline import main
from rmqha.pipeline.jobs.failover_report import STAGES
from rmqha.testing.client import SetInfo
from rmqha.testing.cluster import RmqCluster
from rmqha.testing.real import wire
from rmqha.testing.real.processes import wait_until
from rmqha.testing.workload import Ledger
from tests.pipeline.live import Topic
from tests.pipeline.stores import TOPICS, messages, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]
PAGE = Path(__file__).parents[2] / "docs" / "pipeline.md"
LIVE = re.search(r"^## Live topics\n.*?(?=^## )", PAGE.read_text(), re.DOTALL | re.MULTILINE)
assert LIVE is not None
EXAMPLE = re.compile(r"```python\n(.*?)```", re.DOTALL)
WITHOUT = re.search(r"^## Without Spark\n.*?(?=^## )", PAGE.read_text(), re.DOTALL | re.MULTILINE)
assert WITHOUT is not None
JOBS = PAGE.read_text()[PAGE.read_text().index("\n## What became of every message") :]
EXAMPLES = EXAMPLE.findall(
    PAGE.read_text().replace(LIVE[0], "").replace(WITHOUT[0], "").replace(JOBS, "")
)
"""Those of the session; test_arrow_reader.py runs those that need none."""


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


COMMAND = re.compile(r"^bin/pipeline (.*)$", re.MULTILINE)


def test_commands_when_run_then_they_do_what_the_page_says(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Over a failover of a cluster, whose files stand in for those that the page names."""
    data, lake = tmp_path / "data", tmp_path / "lake"
    data.mkdir()
    nodes = {"n0": "controller-0", "a": "broker-0", "b": "broker-1", "namesrv": "namesrv-0"}
    history = data / "run.jsonl"
    with RmqCluster(tmp_path / "cluster", controllers=1, replicas=2, history=history) as cluster:
        workload = cluster.workload("orders")
        workload.wait_for_acks(20)
        cluster.kill(cluster.wait_for_master())
        workload.wait_for_acks(20)
        cluster.heal()
        # Without any group there is no file of offsets, and a limit of lags (--lag-max) is not judged.
        where = {"consumerGroup": "readers", "topic": "orders", "queueId": "0", "commitOffset": "1"}
        master = f"127.0.0.1:{cluster.wait_for_master().place.port}"
        for code, fields, body in ((200, None, b'{"groupName":"readers"}'), (15, where, b"")):
            assert wire.invoke(master, code, fields, body).code == 0
        offsets = tmp_path / "cluster" / nodes["a"] / "store" / "config" / "consumerOffset.json"
        wait_until(offsets.exists, 30.0, "the offsets, at whoever a is")
        ledger = workload.stop()
        info = cluster.set_info()
    for name, node in (*nodes.items(), ("broker-a", "broker-0")):
        (data / name).symlink_to(tmp_path / "cluster" / node)
    commands = COMMAND.findall(PAGE.read_text())
    assert len(commands) == 10
    for command in commands:
        words = command.replace("[", "").replace("]", "").replace("/data", str(data))
        words = words.replace("/lake", str(lake)).replace("/tmp/package", str(tmp_path / "package"))
        words = words.replace("--up-to OFFSET", "").replace("page.html", str(data / "page.html"))
        # Its body is read below.
        words = words.replace("--no-bodies", "")
        done = CliRunner().invoke(main, shlex.split(words))
        assert done.exit_code == 0, f"{command}: {done.output}"
    for example in EXAMPLE.findall(JOBS):
        exec(example.replace('"/lake', f'"{lake}'), {"spark": spark})
    assert "p99" in capsys.readouterr().out
    _check_tables(spark, lake, ledger, info)


def _check_tables(spark: SparkSession, lake: Path, ledger: Ledger, info: SetInfo | None) -> None:
    """What the jobs say is what the cluster and its workload say."""
    acks = spark.read.parquet(str(lake / "run" / "events")).where("op = 'ack'")
    assert acks.count() == ledger.acknowledged
    findings = spark.read.parquet(str(lake / "run" / "findings"))
    assert findings.where("kind = 'lost'").count() == 0
    first, second = (
        spark.read.parquet(str(lake / "failovers" / "failovers")).orderBy("masterEpoch").collect()
    )
    assert (first.oldMaster, first.lostMs) == (None, None)
    # Both replicas were in the cluster, so no slave was left to be told or to connect.
    alone = {"slavesNotifiedMs", "slavesConnectedMs"}
    stages = {name: second[name] for name in STAGES if name not in alone}
    assert None not in stages.values(), stages
    order = ["lostMs", "electedMs", "notifiedMs", "activeMs", "registeredMs", "firstWriteMs"]
    assert [stages[name] for name in order] == sorted(stages[name] for name in order)
    assert info is not None
    events = spark.read.parquet(str(lake / "controllers" / "entries"))
    elected = events.where("kind = 'ElectMaster'").orderBy("logIndex").collect()
    assert len(elected) == info.master_epoch
    assert f'"new_master_broker_id":{info.master_id}' in elected[-1].fields
    times = spark.read.parquet(str(lake / "lag" / "latency")).where("topic = 'orders'")
    assert times.groupBy().sum("messages").collect()[0][0] >= ledger.acknowledged
