"""Is the fixture steady enough for a suite of tests with a cluster each, run again and again?

Question: how many tests of such suites fail, how long does a test take, its cluster included, and what
does the test process hold in memory?

Recipe: ``bin/bench suites --tests 100 --times 100``. Each time is a pytest of its own, with the plugin
as an installation has it and nothing of this repository's own fixtures. A test starts three controllers,
a name server and three replicas, sends, kills the master, sends again, and reads everything back; every
other one leaves the master alone. Seconds are wall time: read them beside what else the machine does.
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


def run_once(folder: Path, tests: int, *, processes: bool) -> Time:
    """One pytest to its end; a run that ends without a report is a failure, too."""
    folder.mkdir()
    (folder / "test_suite.py").write_text(SUITE.format(tests=tests))
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
    parser.add_argument("--json", type=Path, help="write all figures there")
    options = parser.parse_args()
    if options.tests < 1 or options.times < 1:
        parser.error("--tests and --times must be at least 1")
    end_children_when_terminated()
    what = "processes" if options.processes else "in the test's process"
    print(machine())
    times: list[Time] = []
    folder = Path(tempfile.mkdtemp(prefix="rmqha-suites-"))
    for number in range(options.times):
        place = folder / str(number)
        one = run_once(place, options.tests, processes=options.processes)
        times.append(one)
        print(f"suite {number + 1}: {len(one.tests_s)} tests, {len(one.failed)} failed,"
              f" {one.took_s:.1f} s", *one.failed, sep="\n  ", flush=True)  # fmt: skip
        if not one.failed:
            shutil.rmtree(place)
    print(table(times, what))
    if options.json is not None:
        write_json(options.json, [one._asdict() for one in times])
    if any(one.failed for one in times):
        print(f"kept: {folder}")
        sys.exit(1)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
