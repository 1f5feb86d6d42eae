"""The Containerfile of docs/deploy.

Checked: its instructions are known, in an order that builds, copy what is there, and start what is
installed, as nobody special. ``tests/cli/test_wheel.py`` installs the same sources, and
``tests/cli/test_environment.py`` starts what its command starts. Not checked: the build itself,
which needs a container engine.
"""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import NamedTuple

from rmqha.broker.common.settings import DEFAULTS as BROKER
from rmqha.namesrv.settings import DEFAULTS as NAMESRV

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "docs" / "deploy" / "Containerfile"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
KNOWN = {
    "FROM", "COPY", "RUN", "ENV", "USER", "WORKDIR", "VOLUME", "EXPOSE", "STOPSIGNAL", "CMD",
}  # fmt: skip


class Step(NamedTuple):
    """One instruction."""

    word: str
    rest: str


def _steps() -> list[Step]:
    lines = [one for one in FILE.read_text().splitlines() if one and not one.startswith("#")]
    return [Step(*one.split(maxsplit=1)) for one in lines]


def _of(word: str) -> list[str]:
    return [step.rest for step in _steps() if step.word == word]


def test_instructions_when_read_then_they_are_known_and_begin_with_a_base() -> None:
    """Both stages have the Python that the project asks for, and the same: a venv is moved."""
    assert {step.word for step in _steps()} <= KNOWN
    assert _steps()[0].word == "FROM"
    bases = {rest.split()[0] for rest in _of("FROM")}
    (base,) = bases
    version = tuple(int(part) for part in re.findall(r"\d+", base.partition(":")[2]))
    assert version >= tuple(int(part) for part in re.findall(r"\d+", PROJECT["requires-python"]))


def test_copies_when_made_then_the_build_has_all_that_the_project_names() -> None:
    """A readme or licence that is not copied stops the build."""
    copied = [rest.split()[:-1] for rest in _of("COPY") if not rest.startswith("--from")]
    sources = {name for names in copied for name in names}
    assert all((ROOT / name).exists() for name in sources)
    assert {"pyproject.toml", "rmqha", PROJECT["readme"], *PROJECT["license-files"]} == sources


def test_command_when_nothing_is_given_then_it_is_the_controller() -> None:
    """rocketmq-operator gives no command; a script that is not installed would end it at once."""
    (command,) = _of("CMD")
    assert json.loads(command) == ["mqcontroller"]
    assert "mqcontroller" in PROJECT["scripts"]
    assert any(rest.startswith("PATH=/opt/rmqha/bin:") for rest in _of("ENV"))
    assert _of("STOPSIGNAL") == ["SIGTERM"]


def test_user_when_it_runs_then_it_is_a_number_and_not_root() -> None:
    """Kubernetes compares numbers only (runAsNonRoot)."""
    (user,) = _of("USER")
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", user)
    assert f"--uid {user.partition(':')[0]} " in " ".join(_of("RUN"))


def test_ports_when_exposed_then_they_are_those_of_the_defaults() -> None:
    """A controller has no default; 9878 is what the operator and our examples take."""
    (ports,) = _of("EXPOSE")
    broker = int(BROKER["listenPort"])
    assert {int(port) for port in ports.split()} == {
        int(NAMESRV["listenPort"]), 9878, broker - 2, broker, broker + 1,
        int(BROKER["metricsPromExporterPort"]),
    }  # fmt: skip
