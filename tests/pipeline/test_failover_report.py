"""Failovers stage by stage: known answers and missing logs (a real cluster's: test_docs.py)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from rmqha.cli.pipeline import main
from rmqha.pipeline.jobs.failover_report import STAGES
from rmqha.verify.client_history import HistoryWriter
from tests.pipeline.test_client_history import ack, write_history
from tests.pipeline.test_controller_log import story_frames, write_segment
from tests.pipeline.test_failover_log import (
    CONTROLLER,
    MASTER,
    NAME_SERVER,
    RETURNED,
    SLAVE,
    at,
    write_log,
)

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]
BEGIN_MS = 1_795_301_844_000
"""22:57:24.000 of the lines' day."""


def run(*arguments: object, code: int = 0) -> str:
    done = CliRunner().invoke(main, ["failover-report", *map(str, arguments)])
    assert done.exit_code == code, done.output
    return done.output


def stages(row: Row) -> dict[str, int | None]:
    """Of a row, in milliseconds of the lines' second."""
    return {name: None if row[name] is None else row[name] - BEGIN_MS for name in STAGES}


def test_failover_when_every_log_is_given_then_each_stage_has_its_time(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The replica that came back later is no stage of it; an acknowledgement before is none after."""
    logs = [
        write_log(tmp_path / "controller", CONTROLLER),
        write_log(tmp_path / "broker-2", MASTER),
        write_log(tmp_path / "broker-1", SLAVE),
        write_log(tmp_path / "broker-0", RETURNED),
        write_log(tmp_path / "namesrv", NAME_SERVER),
    ]

    def tell(writer: HistoryWriter) -> None:
        for key, moment in enumerate((-900, -8, 29, 35)):
            ack(writer, key, 0, key, BEGIN_MS + moment)

    history = write_history(tmp_path / "h", tell)
    history.write_bytes(history.read_bytes().replace(b'"broker":"b"', b'"broker":"broker-a"'))
    told = run(*logs, "-o", tmp_path / "out", "--history", history)
    (row,) = spark.read.parquet(str(tmp_path / "out" / "failovers")).collect()
    assert (row.brokerSet, row.masterEpoch, row.oldMaster, row.newMaster) == ("broker-a", 2, 1, 3)
    assert (row.reason, row.unclean, row.commitMs, row.logIndex) == ("master_inactive", False, 4, 8)
    assert stages(row) == {
        "lastWriteMs": -6, "lostMs": 1, "electedMs": 5, "notifiedMs": 6, "activeMs": 23,
        "registeredMs": 26, "listedMs": 25, "routedMs": 42, "slavesNotifiedMs": 43,
        "slavesConnectedMs": 193, "joinedMs": 203, "firstWriteMs": 31,
    }  # fmt: skip
    assert row.slavesConnected == 1
    assert "broker-a epoch 2 2026-11-21T22:57:24.001Z: broker 1 -> broker 3" in told
    assert "lost +0, elected +4, notified +5, active +22, listed +24" in told
    assert told.rstrip().endswith("1 elections, 0 lines that cannot be read")
    assert "master_inactive" in (tmp_path / "out" / "_report.html").read_text()


def test_failover_when_only_a_controllers_log_is_there_then_the_rest_is_null(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Nothing is made up; elections that only the controller's store knows have no times."""
    nobody = {
        **CONTROLLER[1], "event": "master_lost", "new_master_broker_id": None,
        "master_address": None, "old_master_broker_id": 3, "old_master_epoch": 2,
        "master_epoch": 3, "timestamp": "2026-11-21T22:58:00.000Z",
    }  # fmt: skip
    log = write_log(tmp_path / "controller", [*CONTROLLER, nobody])
    log.write_bytes(log.read_bytes() + b'{"event": "bro')
    write_segment(tmp_path / "n0", story_frames())
    tables = tmp_path / "tables[1]"
    done = CliRunner().invoke(main, ["controller-history", str(tmp_path / "n0"), "-o", str(tables)])
    assert done.exit_code == 0, done.output
    told = run(log, "-o", tmp_path / "out", "--controller-history", tables)
    found = spark.read.parquet(str(tmp_path / "out" / "failovers")).orderBy("masterEpoch")
    first, second, third = found.collect()
    assert (first.masterEpoch, first.newMaster, first.reason) == (1, 1, "first")
    assert set(stages(first).values()) == {None}
    known = {name: ms for name, ms in stages(second).items() if ms is not None}
    assert known == {
        "lostMs": 1, "electedMs": 5, "notifiedMs": 6, "routedMs": 42, "slavesNotifiedMs": 43,
        "joinedMs": 203,
    }  # fmt: skip
    assert (third.masterEpoch, third.oldMaster, third.newMaster) == (3, 3, None)
    assert {name for name, ms in stages(third).items() if ms is not None} == {"electedMs"}
    assert "at an unknown time: nobody -> broker 1 (first): no stage known" in told
    assert "controller line 8: no JSON object" in told


def test_files_when_wrong_then_said(tmp_path: Path) -> None:
    """Before Spark is started."""
    assert "No such file" in run(tmp_path / "none", "-o", tmp_path, code=2)
    log = write_log(tmp_path / "log", [at(1, "started")])
    wrong = ("--history", log)
    assert "no client history" in run(log, "-o", tmp_path, *wrong, code=2)
    wrong = ("--controller-history", tmp_path / "none")
    assert "controller-history has not written it" in run(log, "-o", tmp_path, *wrong, code=2)


def test_failover_when_its_logs_have_been_rotated_then_its_stages_are_as_they_were(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The controllers' own history names the election for ever; nothing but lines has its times."""
    lines = write_log(tmp_path / "controller", CONTROLLER)
    write_segment(tmp_path / "n0", story_frames())
    tables, out = tmp_path / "tables", tmp_path / "out"
    made = CliRunner().invoke(main, ["controller-history", str(tmp_path / "n0"), "-o", str(tables)])
    assert made.exit_code == 0, made.output

    def found() -> dict[int, dict[str, int | None]]:
        rows = spark.read.parquet(str(out / "failovers")).collect()
        return {row.masterEpoch: {**stages(row), "slaves": row.slavesConnected} for row in rows}

    run(lines, "-o", out, "--controller-history", tables)
    before = found()
    assert before[2]["electedMs"] is not None
    rotated = write_log(tmp_path / "rotated", [at(1, "started")])
    run(rotated, "-o", out, "--controller-history", tables)
    assert found() == before
