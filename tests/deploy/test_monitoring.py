"""The alert rules and the dashboard of docs/deploy.

Checked: their form, that each expression is PromQL (promql-parser), and that every series and label
in it is one that a running controller, broker or name server serves. When an alert fires is
`test_rules.py`'s.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from rmqha.runtime.properties import format_properties
from rmqha.testing.real.processes import Child, allocate_ports, wait_until

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "deploy"
ALERTS = yaml.safe_load((FOLDER / "prometheus" / "alerts.yaml").read_text())
DASHBOARD = json.loads((FOLDER / "grafana" / "rmqha.json").read_text())
RULES = {rule["alert"]: rule for group in ALERTS["groups"] for rule in group["rules"]}
OF_PROMETHEUS = {"instance", "job"}
"""Labels that Prometheus adds itself."""
MADE_BY_PROMETHEUS = {"up"}
"""Series of its own."""
SUFFIXES = {
    "counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",),
    "info": ("_info",),
}  # fmt: skip
READY_S = 60.0
DURATION = re.compile(r"\d+[smh]")
PLACEHOLDER = re.compile(r"\{\{ *(?:\$labels\.)?(\$?\w+) *\}\}")


def _targets() -> Iterator[tuple[str, dict[str, Any]]]:
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target


EXPRESSIONS = {name: rule["expr"] for name, rule in RULES.items()} | {
    f"{title} {target['refId']}": target["expr"] for title, target in _targets()
}


def _parts(expression: str) -> list[Any]:
    found: list[Any] = []
    promql_parser.walk(promql_parser.parse(expression), found.append)
    return found


def _series(expression: str) -> dict[str, set[str]]:
    """The series that an expression reads, with the labels that it asks of each."""
    selected: dict[str, set[str]] = {}
    for part in _parts(expression):
        if isinstance(part, promql_parser.VectorSelector):
            labels = {one.name for one in part.matchers.matchers}
            selected.setdefault(str(part.name), set()).update(labels)
    return selected


def _groupings(expression: str) -> set[str]:
    """Labels after ``by`` and ``on``."""
    found: set[str] = set()
    for part in _parts(expression):
        modifier = getattr(part, "modifier", None)
        matching = getattr(modifier, "matching", modifier)
        found.update(getattr(matching, "labels", None) or ())
    return found


def _metrics(port: int) -> dict[str, str]:
    return {
        "metricsExporterType": "PROM", "metricsPromExporterHost": "127.0.0.1",
        "metricsPromExporterPort": str(port), "bindAddress": "127.0.0.1",
    }  # fmt: skip


class Served:
    """What three servers serve."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.labels: dict[str, set[str]] = {}

    def add(self, page: str) -> None:
        """Take a page in: also families that have no samples yet."""
        for kind in re.findall(r"^# TYPE (\S+) (\S+)$", page, re.MULTILINE):
            self.names.add(kind[0])
            if kind[1] == "histogram":
                self.names.update(kind[0] + suffix for suffix in SUFFIXES["histogram"])
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                self.names.add(sample.name)
                self.labels.setdefault(sample.name, set()).update(sample.labels)


def _page(port: int, path: str = "metrics") -> str:
    try:
        with urlopen(f"http://127.0.0.1:{port}/{path}", timeout=5) as page:
            return str(page.read().decode())
    except OSError:
        return ""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Series of a controller that leads, a name server, and a broker that is master."""
    folder = tmp_path_factory.mktemp("monitored")
    ports = list(allocate_ports())
    controller, namesrv, broker = ports[0], ports[1], allocate_ports()[2]
    pages = allocate_ports()[:3]
    files = {
        "mqcontroller": {
            "controllerDLegerGroup": "g", "controllerDLegerSelfId": "n0",
            "controllerDLegerPeers": f"n0-127.0.0.1:{controller}",
            "controllerStorePath": str(folder / "controller"), **_metrics(pages[0]),
        },
        "mqnamesrv": {
            "listenPort": str(namesrv), "kvConfigPath": str(folder / "kv.json"),
            **_metrics(pages[1]),
        },
        "mqbroker": {
            "enableControllerMode": "true", "brokerName": "broker-a", "brokerIP1": "127.0.0.1",
            "listenPort": str(broker), "controllerAddr": f"127.0.0.1:{controller}",
            "namesrvAddr": f"127.0.0.1:{namesrv}", "storePathRootDir": str(folder / "store"),
            "mappedFileSizeCommitLog": "1048576", **_metrics(pages[2]),
        },
    }  # fmt: skip
    children = []
    try:
        for name, values in files.items():
            config = folder / f"{name}.conf"
            config.write_text(format_properties(values))
            child = Child(
                name, [sys.executable, "-m", f"rmqha.cli.{name}", "-c", str(config)],
                folder / f"{name}.log", env={"HOME": str(folder), "PYTHONPATH": str(ROOT)},
            )  # fmt: skip
            child.start()
            children.append(child)
        wait_until(lambda: "rmqha_broker_master{" in _page(pages[2]), READY_S, "the broker")
        wait_until(lambda: _page(pages[2], "readyz") != "", READY_S, "the broker to be ready")
        wait_until(lambda: "namesrv_master_num{" in _page(pages[1]), READY_S, "its registration")
        found = Served()
        for port in pages:
            found.add(_page(port))
        yield found
    finally:
        for child in children:
            child.kill()


@pytest.mark.slow
@pytest.mark.parametrize("where", EXPRESSIONS)
def test_expression_when_evaluated_then_servers_serve_what_it_asks_for(
    served: Served, where: str
) -> None:
    """An alert on a series that nobody serves never fires, and nothing says so."""
    series = _series(EXPRESSIONS[where])
    assert series, "no series in it"
    assert set(series) - served.names - MADE_BY_PROMETHEUS == set()
    for name, asked in series.items():
        if name in served.labels:
            assert asked - served.labels[name] - OF_PROMETHEUS == set()
    known = set().union(*(served.labels.get(name, set()) for name in series), OF_PROMETHEUS)
    if all(name in served.labels for name in set(series) - MADE_BY_PROMETHEUS):
        assert _groupings(EXPRESSIONS[where]) - known == set()


@pytest.mark.slow
def test_series_when_nobody_serves_it_then_it_is_found(served: Served) -> None:
    """A check that finds nothing may be blind."""
    assert set(_series("rate(rocketmq_producer_connections[1m])")) - served.names
    assert {"rmqha_build_info", "role", "namesrv_topic_num", "process_open_fds"} <= served.names


def test_alerts_when_read_then_each_has_what_an_operator_needs() -> None:
    """One that fires at night says what is wrong and where to look."""
    assert len(RULES) == sum(len(group["rules"]) for group in ALERTS["groups"])
    for rule in RULES.values():
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert DURATION.fullmatch(rule.get("for", "0s"))
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert set(rule["annotations"]) == {"summary", "description"}


@pytest.mark.parametrize("name", RULES)
def test_alert_when_it_names_a_label_then_its_expression_keeps_it(name: str) -> None:
    """``by`` drops all other labels, and a text with an empty name says nothing."""
    rule = RULES[name]
    by = _groupings(rule["expr"])
    named = set(PLACEHOLDER.findall(rule["annotations"]["summary"])) - {"$value"}
    if any(isinstance(part, promql_parser.AggregateExpr) for part in _parts(rule["expr"])):
        assert named <= by


def test_dashboard_when_read_then_panels_have_places_and_sources_of_their_own() -> None:
    """Panels that lie on each other, or ask a database of the author's."""
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert place["x"] + place["w"] <= 24
        taken |= cells
        assert panel["type"] == "row" or panel["targets"]
    assert {t["datasource"]["uid"] for _, t in _targets()} == {"${datasource}"}
    assert [one["name"] for one in DASHBOARD["templating"]["list"]] == ["datasource"]
    for _, target in _targets():
        by = _groupings(target["expr"])
        if isinstance(promql_parser.parse(target["expr"]), promql_parser.AggregateExpr) and by:
            assert set(PLACEHOLDER.findall(target["legendFormat"])) <= by
