"""The commands of an installation: their names, their versions, and what asking for help imports."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from rmqha import __version__
from rmqha.cli import scripts
from rmqha.cli.version import version_line

ROOT = Path(__file__).resolve().parent.parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SCRIPTS = {
    "rmqha": None, "mqcontroller": "controller", "mqbroker": "broker", "mqnamesrv": "namesrv",
    "mqadmin": "mqadmin", "rmqha-demo": "demo",
}  # fmt: skip
"""Every script, and the subcommand that it is."""
HEAVY = ("rich", "yaml", "cryptography", "pyspark", "pyarrow", "prometheus_client", "aiohttp")
"""Libraries that take longer to import than a command takes to say what it can do."""


def _python(program: str, **environment: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True, text=True, timeout=60, check=True, env={**os.environ, **environment},
    ).stdout  # fmt: skip


def test_scripts_when_listed_then_each_is_a_function_that_is_there() -> None:
    """A name of pyproject.toml that leads nowhere fails on the user's machine only."""
    assert set(SCRIPTS) == set(PROJECT["scripts"])
    for target in PROJECT["scripts"].values():
        module, _, function = target.partition(":")
        assert module == "rmqha.cli.scripts"
        assert callable(getattr(scripts, function))


@pytest.mark.parametrize("name", scripts.COMMANDS)
def test_subcommand_when_listed_then_its_summary_begins_its_help(name: str) -> None:
    """The list is written down so that nothing is imported for it; it must not grow old."""
    command = scripts.load(name)
    help_text = " ".join((command.help or "").split())
    assert help_text.startswith(scripts.COMMANDS[name].summary)


@pytest.mark.parametrize("name", scripts.COMMANDS)
def test_subcommand_when_asked_for_its_version_then_it_says_whose_it_is(name: str) -> None:
    """Java's tools have the same names: who writes a report must see whose this one is."""
    done = CliRunner().invoke(scripts.rmqha, [name, "--version"])
    assert (done.exit_code, done.output.split()[-2:]) == (0, ["(rmqha)", __version__])


def test_help_of_everything_when_asked_for_then_every_command_is_in_it() -> None:
    """Who installs it learns from here what there is."""
    done = CliRunner().invoke(scripts.rmqha, ["--help"])
    listed = [line.split()[0] for line in done.output.splitlines() if line.startswith("  ")]
    assert done.exit_code == 0
    assert set(scripts.COMMANDS) <= set(listed)
    assert CliRunner().invoke(scripts.rmqha, ["--version"]).output == version_line("rmqha") + "\n"


def test_unknown_subcommand_when_given_then_usage_and_exit_2() -> None:
    """Not a traceback of an import."""
    done = CliRunner().invoke(scripts.rmqha, ["contoller"])
    assert (done.exit_code, "No such command" in done.output) == (2, True)


@pytest.mark.few
@pytest.mark.parametrize("script", SCRIPTS)
def test_version_of_a_script_when_asked_for_then_no_command_is_imported(script: str) -> None:
    """mqadmin has some fifty commands; scripts ask for a version often."""
    function = PROJECT["scripts"][script].partition(":")[2]
    program = (
        "import sys; from rmqha.cli import scripts\n"
        f"sys.argv = [{script!r}, '--version']\n"
        "import atexit; atexit.register(lambda: print(*sorted(sys.modules), file=sys.stderr))\n"
        f"scripts.{function}()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == version_line(script) + "\n"
    own = {name for name in done.stderr.split() if name.startswith("rmqha.")}
    assert own <= {f"rmqha.cli{one}" for one in ("", ".early", ".output", ".scripts", ".version")}


@pytest.mark.costly
def test_help_of_mqadmin_when_asked_for_then_no_heavy_library_is_imported() -> None:
    """Tables, YAML and certificates are for those who use them."""
    program = (
        "import sys; from click.testing import CliRunner; from rmqha.cli.mqadmin import main\n"
        "done = CliRunner().invoke(main, ['--help']); assert 'convertStore' in done.output\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    assert _python(program) == "[]\n"


def test_script_when_run_then_its_usage_has_its_own_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Usage: mqbroker, as it was called; not the module's name."""
    monkeypatch.setattr(sys, "argv", ["mqbroker", "--help"])
    with pytest.raises(SystemExit) as ended:
        scripts.mqbroker()
    assert (ended.value.code, capsys.readouterr().out.split()[:2]) == (0, ["Usage:", "mqbroker"])


def test_command_when_loaded_then_it_is_one_of_click() -> None:
    """``rmqha NAME`` hands its arguments over to it."""
    assert all(isinstance(scripts.load(name), click.Command) for name in scripts.COMMANDS)


@pytest.mark.costly
def test_command_when_called_by_a_link_then_it_finds_its_checkout(tmp_path: Path) -> None:
    """As Java's scripts do: an operator links them into a folder of the ``PATH``."""
    (tmp_path / "first").symlink_to(ROOT / "bin" / "mqadmin")
    (tmp_path / "mqadmin").symlink_to("first")
    done = subprocess.run(
        ["mqadmin", "--version"], capture_output=True, text=True, timeout=60, check=False,
        cwd=tmp_path, env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split()[-2:] == ["(rmqha)", __version__]
    plain = {
        one.name
        for one in (ROOT / "bin").iterdir()
        if one.is_file() and one.name != "_env" and "readlink -f" not in one.read_text()
    }
    assert plain == set()
