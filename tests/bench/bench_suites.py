"""Is the fixture steady enough for a suite of tests with a cluster each, run again and again?

Question: how many tests of such suites fail, how long does a test take, its cluster included, and what
does the test process hold in memory?

Recipe: ``bin/bench suites --tests 100 --times 100``. Each time is a pytest of its own, with the plugin
as an installation has it and nothing of this repository's own fixtures. A test starts three controllers,
a name server and three replicas, sends, kills the master, sends again, and reads everything back; every
other one leaves the master alone. Seconds are wall time: read them beside what else the machine does.
``--lanes 2`` runs two suites at a time. ``--java-tests 10`` runs such a suite on clusters of Java's
processes first, with shorter periods than its defaults.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.bench.ending import end_children_when_terminated
from tests.bench.tables import machine, markdown, spread, write_json

SUITE = '''"""Made by bin/bench suites."""

import pytest


@pytest.mark.parametrize("number", range({tests}))
def test_messages_survive(rmq_cluster, number):
    before = rmq_cluster.produce(10, topic="Orders")
    if number % 2:
        old = rmq_cluster.kill(rmq_cluster.wait_for_master())
        rmq_cluster.wait_for_master(other_than=old)
    after = rmq_cluster.produce(10, topic="Orders")
    assert len(before) == len(after) == 10
    rmq_cluster.assert_nothing_lost("Orders")
'''


JAVA_SUITE = '''"""Made by bin/bench suites."""

from functools import partial

import pytest

from rmqha.testing.real.cluster import Cluster
from rmqha.testing.real.processes import wait_until
from rmqha.testing.real.producer import Producer, missing_at_last, read_back


@pytest.mark.parametrize("number", range({tests}))
def test_messages_survive(tmp_path, number):
    with Cluster(tmp_path, "dledger") as cluster:
        cluster.start()
        producer = Producer(cluster.name_server.address, "Orders").start()
        producer.wait_for_acks(10)
        if number % 2:
            old = cluster.master()
            old.child.kill()
            wait_until(
                lambda: cluster.controllers.replica_info("broker-a").master_id
                not in (None, old.controller_id), 60, "another master",
            )
        producer.wait_for_acks(10)
        producer.stop()
        assert not missing_at_last(
            list(producer.acked), partial(read_back, cluster.master().address, "Orders")
        )
'''
JAVA = "Java's processes"


class Time(NamedTuple):
    """One run of the suite.

    Attributes:
        tests_s: of each test, its cluster's start and end included.
        failed: names and first lines of what failed.
        memory_mb: the most that the test process held.
    """

    took_s: float
    tests_s: list[float]
    failed: list[str]
    memory_mb: float


def read_report(path: Path) -> tuple[list[float], list[str]]:
    """Seconds of each test, and what failed, out of pytest's XML."""
    seconds, failed = [], []
    for case in ET.parse(path).iter("testcase"):
        seconds.append(float(case.get("time", "0")))
        failed += [
            f"{case.get('name')}: {(one.get('message') or one.tag).splitlines()[0]}"
            for one in case
            if one.tag in ("failure", "error", "skipped")
        ]
    return seconds, failed


def run_once(folder: Path, tests: int, *, processes: bool = False, suite: str = SUITE) -> Time:
    """One pytest to its end; a run that ends without a report is a failure, too."""
    folder.mkdir()
    (folder / "test_suite.py").write_text(suite.format(tests=tests))
    report = folder / "report.xml"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        f"--junitxml={report}",
    ]
    command += ["--basetemp", str(folder / "tmp"), *(["--rmq-processes"] if processes else [])]
    began = time.monotonic()
    with (folder / "out.txt").open("w") as out:
        process = subprocess.Popen([*command, str(folder)], stdout=out, stderr=out, cwd=folder)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    took_s = time.monotonic() - began
    seconds, failed = read_report(report) if report.exists() else ([], ["pytest left no report"])
    if len(seconds) != tests:
        failed.append(f"{len(seconds)} of {tests} tests were run")
    if process.returncode != 0 and not failed:
        failed.append(f"pytest ended with {process.returncode}")
    return Time(took_s, seconds, failed, usage.ru_maxrss / 1024)


def table(times: list[Time], what: str) -> str:
    """The line of the documents."""
    tests = [one for each in times for one in each.tests_s]
    return markdown(
        ["clusters", "suites", "tests", "failed", "a suite", "a test", "memory"],
        [[
            what, str(len(times)), str(len(tests)), str(sum(len(one.failed) for one in times)),
            spread([one.took_s for one in times], " s"), spread(tests, " s"),
            spread([one.memory_mb for one in times], " MB"),
        ]],
    )  # fmt: skip


def main() -> None:
    """Run suites; ends with 1 when a test failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--tests", type=int, default=100, help="of a suite (100)")
    parser.add_argument("--times", type=int, default=10, help="suites, one after another (10)")
    parser.add_argument(
        "--processes", action="store_true", help="each node in a process of its own"
    )
    parser.add_argument("--lanes", type=int, default=1, help="suites at a time (1)")
    parser.add_argument("--java-tests", type=int, default=0, help="on clusters of Java's (0)")
    parser.add_argument("--json", type=Path, help="write all figures there")
    options = parser.parse_args()
    if min(options.tests, options.times, options.lanes) < 1 or options.java_tests < 0:
        parser.error("--tests, --times and --lanes must be at least 1, and --java-tests 0")
    end_children_when_terminated()
    print(machine())
    folder = Path(tempfile.mkdtemp(prefix="rmqha-suites-"))
    kinds: dict[str, list[Time]] = {}
    if options.java_tests:
        kinds[JAVA] = [told(JAVA, run_once(folder / "java", options.java_tests, suite=JAVA_SUITE))]
    what = "processes" if options.processes else "in the test's process"
    kinds[what] = run_all(folder, options, what)
    for name, times in kinds.items():
        print(table(times, name))
    everything = [one for times in kinds.values() for one in times]
    if options.json is not None:
        write_json(options.json, [one._asdict() for one in everything])
    if any(one.failed for one in everything):
        print(f"kept: {folder}")
        sys.exit(1)
    shutil.rmtree(folder)


def run_all(folder: Path, options: argparse.Namespace, what: str) -> list[Time]:
    """As many suites as were asked for, some at a time."""

    def run(number: int) -> Time:
        place = folder / str(number)
        one = run_once(place, options.tests, processes=options.processes)
        if not one.failed:
            shutil.rmtree(place)
        return told(f"{what}, {number + 1}", one)

    with ThreadPoolExecutor(options.lanes) as lanes:
        return list(lanes.map(run, range(options.times)))


def told(name: str, one: Time) -> Time:
    """Say what became of a suite, and pass it on."""
    print(f"{name}: {len(one.tests_s)} tests, {len(one.failed)} failed, {one.took_s:.1f} s",
          *one.failed, sep="\n  ", flush=True)  # fmt: skip
    return one


if __name__ == "__main__":
    main()
