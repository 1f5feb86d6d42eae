"""The wheel: built as a user builds it, installed into an empty environment, and run from there.

Only pip's index is asked, for what builds the wheel and for what it requires.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import venv
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

from rmqha import __version__
from rmqha.cli.scripts import COMMANDS
from tests.cli.test_scripts import SCRIPTS

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "rmqha")
FOR_TESTS_ONLY = {"construct", "psutil", "pytest", "selenium", "mypy", "ruff", "hypothesis"}
WARNED = re.compile(r"warn|deprecat", re.IGNORECASE)
HARMLESS = re.compile(r"byte-compiling is disabled|^\s*(adding|copying|creating) ")
"""A setting of the machine that builds, and files whose names have such words."""


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What belongs to the wheel, where a build may leave its folders."""
    place = tmp_path_factory.mktemp("sources")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, place)
    return place


@pytest.fixture(scope="module")
def build(sources: Path) -> tuple[Path, str]:
    """The wheel, and what was said while it was built."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-v", "--disable-pip-version-check", "--no-deps",
         "-w", sources / "out", sources],
        capture_output=True, text=True, timeout=110, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    (wheel,) = (sources / "out").iterdir()
    return wheel, done.stdout + done.stderr


@pytest.fixture(scope="module")
def installed(build: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of scripts of an environment that has the wheel and what it requires."""
    place = tmp_path_factory.mktemp("installed")
    venv.create(place, with_pip=True)
    subprocess.run(
        [place / "bin" / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check",
         build[0]],
        timeout=110, check=True,
    )  # fmt: skip
    return place / "bin"


def _metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [one for one in archive.namelist() if one.endswith(".dist-info/METADATA")]
        return Parser().parsestr(archive.read(name).decode())


def _said(*command: Path | str) -> str:
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=True
    ).stdout.strip()


def test_build_when_run_then_nothing_is_warned_of(build: tuple[Path, str]) -> None:
    """A licence as a table stops the build from 2027 on."""
    said = [line for line in build[1].splitlines() if WARNED.search(line)]
    assert [line for line in said if not HARMLESS.search(line)] == []


def test_metadata_when_read_then_licence_links_and_requirements_are_there(
    build: tuple[Path, str],
) -> None:
    """What an index and its users go by."""
    found = _metadata(build[0])
    assert (found["Name"], found["Version"]) == ("rmqha", __version__)
    assert (found["License-Expression"], found["License-File"]) == ("Apache-2.0", "LICENSE")
    assert found["Requires-Python"] == ">=3.11"
    assert len(found.get_all("Project-URL", [])) >= 2
    assert "Typing :: Typed" in found.get_all("Classifier", [])
    requires = [one for one in found.get_all("Requires-Dist", []) if "extra ==" not in one]
    names = {re.split(r"[^\w-]", one)[0].lower() for one in requires}
    assert "msgspec" in names
    assert not names & FOR_TESTS_ONLY


def test_wheel_when_opened_then_it_has_pages_and_types_and_no_tests(
    build: tuple[Path, str],
) -> None:
    """A status page that is not in the wheel is missed on the server only."""
    with zipfile.ZipFile(build[0]) as archive:
        names = archive.namelist()
    assert "rmqha/py.typed" in names
    assert any(re.fullmatch(r"rmqha/web/\w+\.html", name) for name in names)
    assert {name.split("/")[0] for name in names} == {"rmqha", f"rmqha-{__version__}.dist-info"}


def test_installation_when_made_then_every_script_says_its_version(installed: Path) -> None:
    """All that is on the PATH afterwards."""
    said = {name: _said(installed / name, "--version") for name in SCRIPTS}
    assert said == {name: f"{name} (rmqha) {__version__}" for name in SCRIPTS}


def test_installation_when_made_then_every_command_starts_without_test_tools(
    installed: Path,
) -> None:
    """An import that only the tests' environment has would be found by users."""
    packages = _said(installed / "python", "-m", "pip", "list", "--format=freeze")
    assert not {line.split("==")[0].lower() for line in packages.splitlines()} & FOR_TESTS_ONLY
    program = (
        "from rmqha.cli import scripts\n"
        "print(*(name for name in scripts.COMMANDS if scripts.load(name)))"
    )
    assert _said(installed / "python", "-c", program).split() == list(COMMANDS)


def test_pipeline_when_run_without_spark_then_it_says_what_is_missing(
    installed: Path, tmp_path: Path
) -> None:
    """Half a gigabyte that not everybody needs; a traceback does not say how to get it."""
    assert "lag-latency" in _said(installed / "rmqha", "pipeline", "--help")
    done = subprocess.run(
        [installed / "rmqha", "pipeline", "lag-latency", str(tmp_path), "-o", str(tmp_path)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, "its extra spark brings it" in done.stderr) == (2, True)
    assert "Traceback" not in done.stderr


def test_simulator_when_run_from_an_installation_then_a_seed_passes(installed: Path) -> None:
    """Controllers, brokers and the rules that judge them, all out of the wheel."""
    assert "0 failed" in _said(installed / "rmqha", "simulate", "3", "--count", "2")
