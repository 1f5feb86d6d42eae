"""What the alerts of docs/deploy do in time: played by promtool, where that is installed.

Everywhere it is checked that the cases fit the rules: that they are about alerts that there are, give
series that these read, with labels that these keep, and expect the rule's own labels and words.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.test_monitoring import OF_PROMETHEUS, PLACEHOLDER, RULES, _groupings, _series

PATH = Path(__file__).with_name("alerts_test.yaml")
CASES = yaml.safe_load(PATH.read_text())["tests"]
PROMTOOL = shutil.which("promtool")
LABEL = re.compile(r'(\w+)="')
by_case = pytest.mark.parametrize("case", CASES, ids=[one["name"] for one in CASES])
OUTAGES = {
    "RocketmqClientsFindNoMaster", "RocketmqControllerAway", "RocketmqControllersVanished",
    "RocketmqControllersWithoutLeader", "RocketmqNameServersVanished", "RocketmqNoMasterElected",
    "RocketmqServerAway", "RocketmqSetVanished", "RocketmqSetWithoutMaster",
}  # fmt: skip


def fired(case: Any) -> list[tuple[str, Any]]:
    """The alerts that a case expects, by name."""
    return [
        (look["alertname"], one) for look in case["alert_rule_test"] for one in look["exp_alerts"]
    ]


def test_rules_when_played_then_alerts_come_and_go_in_time() -> None:
    """An alert that cannot fire is found out in the night in which it was needed."""
    if PROMTOOL is None:
        assert os.environ.get("CI") != "true", "CI plays the rules: .ci/run brings promtool"
        pytest.skip("promtool is not installed")
    done = subprocess.run(
        [PROMTOOL, "test", "rules", str(PATH)], capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@by_case
def test_case_when_it_gives_series_then_its_rules_read_them_all(case: Any) -> None:
    """One with a misspelt series shows only that nothing fires."""
    names = {one["alertname"] for one in case["alert_rule_test"]}
    assert names <= RULES.keys()
    read: dict[str, set[str]] = {}
    for name in names:
        for series, asked in _series(RULES[name]["expr"]).items():
            read.setdefault(series, set()).update(asked)
    for one in case["input_series"]:
        name, _, labels = one["series"].partition("{")
        assert read.keys() >= {name}
        assert set(LABEL.findall(labels)) >= read[name]


@by_case
def test_case_when_an_alert_fires_then_it_has_the_labels_and_words_of_its_rule(case: Any) -> None:
    """The words of a rule were changed, and its case was not."""
    for name, one in fired(case):
        rule, labels = RULES[name], dict(one["exp_labels"])
        assert labels.pop("severity") == rule["labels"]["severity"]
        if " by " in rule["expr"]:
            assert set(labels) <= _groupings(rule["expr"]) | OF_PROMETHEUS
        words = {key: _pattern(text, labels) for key, text in rule["annotations"].items()}
        for key, text in one["exp_annotations"].items():
            assert re.fullmatch(words[key], text), text


def _pattern(text: str, labels: dict[str, str]) -> str:
    """What a text can become, with these labels."""
    words = PLACEHOLDER.split(text)  # words of the rule, and names between them, in turns
    found = [re.escape(words[0])]
    for name, after in zip(words[1::2], words[2::2], strict=True):
        found += [re.escape(labels[name]) if name in labels else r"\S+", re.escape(after)]
    return "".join(found)


def test_outages_when_listed_then_each_is_played() -> None:
    """Rules for the worst nights were those that were silent."""
    assert {name for case in CASES for name, _ in fired(case)} >= OUTAGES
