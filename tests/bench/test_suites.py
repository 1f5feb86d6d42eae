"""What bin/bench suites takes for a failure."""

from __future__ import annotations

from pathlib import Path

from tests.bench.bench_suites import Time, read_report, table

REPORT = """<testsuites><testsuite>
<testcase name="a" time="1.5"/>
<testcase name="b" time="0.5"><failure message="lost 1&#10;more">...</failure></testcase>
<testcase name="c" time="0.1"><error message="no leader">...</error></testcase>
<testcase name="d" time="0.0"><skipped message="no port"/></testcase>
</testsuite></testsuites>"""


def test_report_when_read_then_all_that_did_not_pass_has_failed(tmp_path: Path) -> None:
    """A skipped test, or one that broke in its fixture, shows nothing of steadiness."""
    path = tmp_path / "report.xml"
    path.write_text(REPORT)
    seconds, failed = read_report(path)
    assert seconds == [1.5, 0.5, 0.1, 0.0]
    assert failed == ["b: lost 1", "c: no leader", "d: no port"]
    shown = table([Time(9.0, seconds, failed, 80.0), Time(8.0, [1.0] * 4, [], 70.0)], "here")
    assert "| here | 2 | 8 | 3 |" in shown
