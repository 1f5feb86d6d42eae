"""The units of docs/deploy, read by systemd's own tools.

Checked: ``systemd-analyze verify`` finds nothing, the exposure that ``systemd-analyze security``
computes is low, and what a unit says fits what the servers do. Not checked: that a service starts
under these restrictions, for which a machine with systemd is needed.
"""

from __future__ import annotations

import configparser
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from rmqha.cli.process import EXIT_CONFIG, EXIT_STORE

ROOT = Path(__file__).resolve().parents[2]
UNITS = sorted((ROOT / "docs" / "deploy" / "systemd").glob("*.service"))
SCRIPTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
EXPOSURE_MAX = 20
"""In tenths, as ``--threshold`` takes it; without any restriction it is 96."""

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None and os.environ.get("CI") != "true",
    reason="no systemd here",
)
"""In CI its absence is a failure."""

by_unit = pytest.mark.parametrize("unit", UNITS, ids=[one.stem for one in UNITS])


def _service(unit: Path) -> configparser.SectionProxy:
    parser = configparser.ConfigParser(strict=True, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(unit.read_text())
    return parser["Service"]


def _analyze(*arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        ["systemd-analyze", *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout + done.stderr


def _with_programs(unit: Path, folder: Path) -> Path:
    """A unit whose server is a program of this machine: systemd looks whether there is one."""
    changed = folder / unit.name
    text = unit.read_text()
    (program,) = {part for part in text.split() if "/opt/rmqha/bin/" in part}
    changed.write_text(text.replace(program.removeprefix("ExecStart="), sys.executable))
    return changed


def test_units_when_listed_then_each_server_has_one() -> None:
    """The name of a unit says whose it is."""
    assert [one.stem for one in UNITS] == ["rmqha-broker", "rmqha-controller", "rmqha-namesrv"]


@by_unit
def test_unit_when_read_then_it_starts_an_installed_server_and_knows_its_exit_codes(
    unit: Path,
) -> None:
    """A server whose file is wrong must not be started for ever."""
    service = _service(unit)
    program, flag, config = service["ExecStart"].split()
    assert Path(program).parent == Path("/opt/rmqha/bin")
    assert Path(program).name == "mq" + unit.stem.removeprefix("rmqha-")
    assert Path(program).name in SCRIPTS
    assert (flag, Path(config).parent) == ("-c", Path("/etc/rmqha"))
    assert service["Type"] == "notify"
    assert service["ExecReload"].split()[-2:] == ["-HUP", "$MAINPID"]
    assert {int(one) for one in service["RestartPreventExitStatus"].split()} == {
        EXIT_CONFIG, EXIT_STORE,
    }  # fmt: skip
    # The broker's watcher is a child: it must outlive the signal, not the broker.
    assert service["KillMode"] == "mixed"


@needs_systemd
@by_unit
def test_unit_when_verified_by_systemd_then_it_finds_nothing(unit: Path, tmp_path: Path) -> None:
    """A misspelt key is only a line in the journal of the machine that needed it."""
    assert _analyze("verify", "--man=no", str(_with_programs(unit, tmp_path))) == (0, "")


@needs_systemd
@by_unit
def test_unit_when_its_exposure_is_computed_then_it_is_low(unit: Path) -> None:
    """Whoever breaks into a server finds little to go on with."""
    code, told = _analyze(
        "security", "--offline=true", "--no-pager", f"--threshold={EXPOSURE_MAX}", str(unit)
    )
    assert code == 0, told


@needs_systemd
def test_verification_when_a_key_is_misspelt_then_it_says_so(tmp_path: Path) -> None:
    """A check that finds nothing may be blind."""
    changed = _with_programs(UNITS[0], tmp_path)
    changed.write_text(changed.read_text().replace("WatchdogSec=", "WatchdogSecs="))
    assert "WatchdogSecs" in _analyze("verify", "--man=no", str(changed))[1]
