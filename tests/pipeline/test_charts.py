"""Reports are one file each: charts inside, nothing from elsewhere, times as times."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from rmqha.pipeline.jobs import charts, export, failover_report, history_check, lag_latency
from rmqha.pipeline.jobs.report_page import moment
from rmqha.pipeline.lake.layout import SetName

NAMES = ["orders & more", "$x$ <b>", "t" * 200]
MS = 1_700_000_000_123
WHEN = "2023-11-14 22:13:20.123"


def texts(svg: str) -> str:
    """All texts of a chart, which must be XML."""
    return "\n".join(filter(None, (one.text for one in ElementTree.fromstring(svg).iter())))


def failovers() -> failover_report.Report:
    """Two elections, and one that nobody knows the time of."""
    stages = tuple(MS + 10 * number - 10 for number in range(len(failover_report.STAGES)))
    nothing: tuple[int | None, ...] = (None,) * len(stages)
    made = []
    for epoch, times in ((2, stages), (3, (*stages[:4], *nothing[4:])), (4, nothing)):
        known = {
            "broker_set": "c/a", "master_epoch": epoch, "old_master": 1, "new_master": 2,
            "reason": "MASTER_LOST", "unclean": False, "stages": times,
        }  # fmt: skip
        fields = failover_report.Failover.__struct_fields__
        made.append(failover_report.Failover(**{name: known.get(name) for name in fields}))
    empty = {"left_out": (), "damaged_lines": (), "damaged": 0, "failovers": tuple(made)}
    fields = failover_report.Report.__struct_fields__
    return failover_report.Report(**{name: empty[name] for name in fields})


@pytest.mark.slow
def test_charts_when_names_are_odd_then_still_told() -> None:
    """Markup, formulas and names without end come from topics, which anybody may create."""
    stages = [("lost", 0), ("elected", 12)]
    found = [
        charts.timeline([charts.Stages(name, stages) for name in NAMES]),
        charts.spreads([charts.Spread(name, 0, 1, 20, 3000) for name in NAMES]),
        charts.bars([(name, 12_345) for name in NAMES], "messages"),
        charts.stacked(["2026-01-02"], {name: [1.0] for name in NAMES}, "MB"),
    ]
    for svg in found:
        told = texts(svg)
        assert "orders & more" in told
        assert "$x$ <b>" in told
        assert "t" * 47 + "…" in told
        assert "t" * 48 not in told
    assert "12,345" in texts(found[2])
    assert "elected" in texts(found[0])


@pytest.mark.costly
def test_charts_when_there_is_more_than_they_can_show_then_the_rest_is_one() -> None:
    """A cluster has a thousand topics."""
    many = {f"topic{number}": [float(number)] for number in range(1000)}
    told = texts(charts.stacked(["2026-01-02"], many, "MB"))
    assert "topic999" in told
    assert f"{1000 - charts.SERIES_MAX} others" in told
    told = texts(charts.bars([(name, 1) for name in many], "messages"))
    assert f"topic{charts.ROWS_MAX - 1}" in told
    assert f"topic{charts.ROWS_MAX}\n" not in told


@pytest.mark.costly
def test_chart_when_drawn_twice_then_the_same_bytes() -> None:
    """A report that is kept in a repository changes only when what it tells does."""
    first, second = (charts.bars([("a", 1)], "messages") for _ in range(2))
    assert first == second


@pytest.mark.costly
@pytest.mark.parametrize("name", ["export", "failovers", "latency"])
def test_page_when_opened_then_it_needs_nothing_else(name: str) -> None:
    """No script, no font, no picture is fetched: it is read on machines without a network."""
    if name == "export":
        days = (("orders", "2026-01-02", 3, 4_000_000), ("t", "2026-01-03", 1, 100))
        one = export.SetExported(SetName("c", "a"), days, 0, 0, 0)
        text = export.report(["/data/a"], export.Exported((one,)))
    elif name == "failovers":
        text = failover_report.report(["n0"], failovers())
        assert text.count(WHEN) == 2
        assert "1970" not in text
        assert str(MS) not in text
    else:
        slow = lag_latency.TopicLatency("r", "orders", "2026-01-02", 3, 0, 1.0, 2.0, 3.0, 400)
        lag = lag_latency.GroupLag("r", "orders", "group", 4, 0, 7, 0, 0, 10)
        text = lag_latency.report(["/data/a"], lag_latency.Found((slow,), (lag,), 7, 0, ()))
        assert "group: orders" in text
    assert text.count("<svg") == (2 if name == "latency" else 1)
    assert "<script" not in text
    assert not re.search(r'(?:src|href)="(?!#)', text)
    assert not re.search(r"url\((?!#)", text)
    assert len(text) < 200_000


def test_moment_when_told_then_in_utc() -> None:
    """Milliseconds since 1970 say nothing to anybody."""
    assert moment(MS) == WHEN
    assert moment(None) is None
    finding = history_check.Finding("unavailable", "t", None, None, None, None, None, MS, MS, "why")
    checked = history_check.Checked(
        **{
            name: {"findings": (finding,), "records": {}, "counts": {}, "damaged_lines": ()}.get(name, 0)
            for name in history_check.Checked.__struct_fields__
        }
    )  # fmt: skip
    text = history_check.report(["run.jsonl"], checked)
    assert text.count(WHEN) == 2
