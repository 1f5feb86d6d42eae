"""Whole clusters of processes under faults, by the command that people type."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from rmqha.chaos.aio.cell import begun
from rmqha.chaos.aio.disks import THROTTLE
from rmqha.chaos.aio.nodes import Kinds
from rmqha.chaos.course import Course
from rmqha.chaos.outcome import Cell, Round
from rmqha.chaos.report import from_json, to_json
from rmqha.chaos.scenarios import ARTICLE, BITS
from rmqha.sim.service_swarm import SERVED
from rmqha.store.record import Head, check_record
from rmqha.testing.real.processes import wait_until
from tests.chaos.needs import needs_disks, needs_hosts

ROOT = Path(__file__).resolve().parents[2]


def played(folder: Path, *arguments: str, timeout_s: float = 280) -> tuple[int, list[Cell], str]:
    """Run ``bin/chaos``: exit code, the cells, and what it said."""
    command = [sys.executable, "-m", "rmqha.cli.chaos", *arguments, "--short", "--out", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=timeout_s, check=False
    )
    assert (folder / "cells.json").exists(), done.stderr
    cells = from_json((folder / "cells.json").read_bytes())
    return done.returncode, cells, done.stderr


@needs_hosts
@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timeout(400)
def test_tour_when_the_twelve_scenarios_have_a_round_each_then_nothing_is_lost(
    tmp_path: Path,
) -> None:
    """The matrix, reduced: one cluster takes a round of each, while all services are used."""
    history = tmp_path / "history.jsonl"
    code, (cell,), said = played(
        tmp_path,
        "--tour",
        "--services",
        "--fault-s",
        "2",
        "--pause-s",
        "0",
        "--history",
        str(history),
        timeout_s=380,
    )
    assert (code, cell.lost, cell.broken) == (0, [], []), said
    assert len(cell.rounds) == len(ARTICLE)
    words = " ".join(one.fault for one in cell.rounds)
    assert {"crash", "hang", "loss", "partition"} <= set(words.replace("80 % ", "").split())
    assert cell.elections, "some round has taken the master"
    assert cell.acknowledged > 1_000
    assert cell.consumed >= cell.acknowledged
    assert cell.bytes_equal, "logs were compared"
    assert [name for name in SERVED if not cell.services.get(name)] == []
    assert history.stat().st_size > 0
    assert "Nothing was lost" in (tmp_path / "report.html").read_text()


@needs_hosts
@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timeout(300)
def test_matrix_when_it_was_ended_midway_then_what_it_had_is_kept(tmp_path: Path) -> None:
    """A whole one takes an hour or two. What the folder holds is not played again, the rest is."""
    course = Course(1, 500, 0, topics=5, messages=900, batch=7)
    kept = begun("hang-master", Kinds(short=True), 1, course)
    assert "5 topics, 7 messages a send, 900 messages" in kept.asked
    kept.rounds, kept.acknowledged = [Round(0, "hang broker-7", 1, 0, 500, out_ms=77)], 700
    (tmp_path / "cells.json").write_bytes(to_json([kept]))
    asked = ("hang-master", "crash-master", "--rounds", "1", "--fault-s", "0.5", "--pause-s", "0",
             "--topics", "5", "--messages", "900", "--batch", "7")  # fmt: skip
    code, cells, said = played(tmp_path, *asked, "--resume")
    assert code == 0, said
    assert "[1/2] hang-master on py controllers, py brokers: kept" in said
    assert [one.scenario for one in cells] == ["hang-master", "crash-master"]
    assert cells[0] == kept
    assert cells[1].acknowledged >= 900, "before the master was killed"
    assert cells[1].acknowledged % 7 == 0, "together"
    again = played(tmp_path, *asked, "--resume", timeout_s=60)
    assert again[:2] == (0, cells), "all is there: nobody is started"


@needs_hosts
@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timeout(300)
@pytest.mark.parametrize("waits_for_all", [True, False])
def test_master_when_it_wrote_alone_and_died_then_only_the_rule_that_promises_it_loses_nothing(
    tmp_path: Path, *, waits_for_all: bool
) -> None:
    """By Java's default rule messages are lost, and the command finds them."""
    rule = f"allAckInSyncStateSet={str(waits_for_all).lower()}"
    code, (cell,), said = played(
        tmp_path, "cut-and-crash-master", "--rounds", "1", "--fault-s", "2", "--set", rule
    )
    assert cell.broken == [], said
    assert (code == 0, cell.lost == []) == (waits_for_all, waits_for_all), said
    assert cell.elections == 1


@needs_disks
@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timeout(300)
def test_brokers_when_all_lose_power_at_once_then_what_waited_for_the_disk_is_there(
    tmp_path: Path,
) -> None:
    """``SYNC_FLUSH`` promises it, with everybody's page cache gone."""
    code, (cell,), said = played(
        tmp_path,
        "power-cut-brokers",
        "--rounds",
        "2",
        "--fault-s",
        "1",
        "--set",
        "flushDiskType=SYNC_FLUSH",
    )
    assert (code, cell.lost, cell.broken) == (0, [], []), said
    assert cell.faults == 6
    assert cell.acknowledged > 50


@needs_hosts
@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timeout(300)
def test_hosts_when_their_links_are_slow_then_nothing_is_lost(tmp_path: Path) -> None:
    """Frames come late and overtake each other, and each that there is comes once."""
    code, (cell,), said = played(tmp_path, "delay-both", "--rounds", "2", "--fault-s", "2")
    assert (code, cell.lost, cell.broken) == (0, [], []), said
    assert all(one.fault.startswith("delay of ") for one in cell.rounds)
    assert cell.faults >= 2


@needs_hosts
@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timeout(300)
def test_nodes_when_their_wall_clocks_jump_then_nobody_is_elected_and_nothing_is_lost(
    tmp_path: Path,
) -> None:
    """With this seed each broker, and so the master, is an hour or a minute ahead once, and a message
    is stored by that clock. When it is right again, so are the times of what is stored then: a delay
    of an hour that began in the future would be over at once."""
    code, (cell,), said = played(
        tmp_path, "clock-jump-brokers", "--rounds", "6", "--fault-s", "1", "--pause-s", "0",
        "--seed", "2", "--folder", str(tmp_path / "nodes"),
    )  # fmt: skip
    assert (code, cell.lost, cell.broken) == (0, [], []), said
    assert cell.elections == 0, "leases and timeouts are intervals"
    (log,) = (tmp_path / "nodes").glob("*/broker-0/disk/store/commitlog/[0-9]*")
    stored_ms = [head.store_timestamp for head in heads(log.read_bytes())]
    assert len(stored_ms) >= cell.acknowledged
    assert max(b - a for a, b in pairwise(stored_ms)) > 30_000, cell.rounds
    assert min(b - a for a, b in pairwise(stored_ms)) < -30_000, cell.rounds
    assert stored_ms[-1] <= time.time() * 1000 + 3_000


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timeout(400)
def test_links_when_there_are_no_namespaces_then_proxies_break_them_and_nothing_is_lost(
    tmp_path: Path,
) -> None:
    """For users who may not make namespaces; the report says what it was."""
    names = ("crash-both", "hang-brokers", "loss-brokers", "delay-both", "partition-both")
    code, cells, said = played(
        tmp_path, *names, "--links", "proxies", "--rounds", "2", "--fault-s", "2", "--pause-s", "0",
        timeout_s=380,
    )  # fmt: skip
    assert code == 0, said
    assert [(one.scenario, one.lost, one.broken) for one in cells] == [(n, [], []) for n in names]
    assert {one.links_by for one in cells} == {"user-space proxies"}
    assert all(one.acknowledged > 50 and one.bytes_equal for one in cells)


def heads(log: bytes) -> Iterator[Head]:
    """Those of the records of a commit log's first file."""
    at = 0
    while (head := check_record(log, at, len(log), at, check_crc=True)).size > 0:
        yield head
        at += head.size


@needs_hosts
@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timeout(300)
@pytest.mark.parametrize("scrubs", [True, False])
def test_log_when_bits_of_it_flip_then_replicas_that_compare_give_out_nothing_damaged(
    tmp_path: Path, *, scrubs: bool
) -> None:
    """Who compares nothing and trusts its memory gives it out, and the command counts that."""
    trusting = [] if scrubs else [
        "--set", "scrubBytesPerSecond=0", "--set", f"uncheckedTailBytes={64 << 20}",
    ]  # fmt: skip
    code, (cell,), said = played(
        tmp_path,
        "flipped-bits-master",
        "--rounds",
        "2",
        "--fault-s",
        "1",
        "--pause-s",
        "0",
        *trusting,
    )
    assert (code == 0, cell.damaged == 0, cell.lost == []) == (scrubs, scrubs, scrubs), said
    assert cell.flipped_bits == 2 * BITS
    assert (cell.broken == []) == scrubs, "without repairs the logs differ"
    assert cell.bytes_equal or not scrubs


@needs_disks
@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timeout(300)
def test_master_when_its_disk_is_full_slow_or_stands_still_then_nothing_acknowledged_is_lost(
    tmp_path: Path,
) -> None:
    """Full, it refuses, or ends where a queue has no room for what the log holds already; standing
    still, it hands over."""
    names = ["frozen-disk-master", "full-disk-master"]
    if THROTTLE.exists():
        names.append("slow-disk-master")
    code, cells, said = played(
        tmp_path, *names, "--rounds", "1", "--fault-s", "4", "--set", "flushDiskType=SYNC_FLUSH"
    )
    assert (code, [(one.lost, one.broken) for one in cells]) == (0, [([], [])] * len(names)), said
    assert cells[0].elections, "a disk that stands still costs the mastership"


@needs_hosts
@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("links", ["namespaces", "proxies"])
def test_command_when_it_is_ended_then_no_node_of_it_is_left(
    tmp_path: Path, links: str, number: signal.Signals
) -> None:
    """Whoever ends it by force must not find a cluster running an hour later."""
    place = tmp_path / "nodes"
    command = [
        sys.executable, "-m", "rmqha.cli.chaos", "crash-master", "--rounds", "1000", "--fault-s", "1",
        "--folder", str(place), "--links", links,
    ]  # fmt: skip
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if " 1/1000 " in line:
                break
        assert len(nodes_below(place)) > 6
        process.send_signal(number)
    wait_until(lambda: not nodes_below(place), 10.0, "the end of all nodes")


def nodes_below(place: Path) -> list[int]:
    """Processes whose command line names this folder."""
    found = []
    for one in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if any(str(place) in part for part in one.cmdline()) and one.name() not in (
                "unshare",
                "setpriv",
            ):
                found.append(one.pid)
    return found
