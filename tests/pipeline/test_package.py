"""What spark-submit ships: all sources, nothing else, the same bytes each time."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

import rmqha
from rmqha.cli.pipeline import main
from rmqha.pipeline.spark.package import write_package


@pytest.mark.costly
def test_package_when_made_twice_then_the_same_bytes(tmp_path: Path) -> None:
    """So that two drivers ship the same."""
    first, _ = write_package(tmp_path / "a")
    second, _ = write_package(tmp_path / "b")
    assert first.read_bytes() == second.read_bytes()
    assert sorted(one.name for one in (tmp_path / "a").iterdir()) == ["pipeline.py", "rmqha.zip"]


@pytest.mark.costly
def test_package_when_it_is_all_that_there_is_then_its_modules_load(tmp_path: Path) -> None:
    """Of the zip alone, in a Python that sees no checkout and no installed rmqha."""
    zip_path, script = write_package(tmp_path)
    with zipfile.ZipFile(zip_path) as package:
        names = package.namelist()
    root = Path(rmqha.__file__).parent
    wanted = {f"rmqha/{one.relative_to(root).as_posix()}" for one in root.rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == wanted
    assert not [name for name in names if "pycache" in name or "tests/" in name]
    site = next(path for path in sys.path if path.endswith("site-packages"))
    code = "import rmqha.pipeline.commitlog.store_folder as one; print(one.__file__)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        capture_output=True, text=True, check=True, timeout=60, cwd=tmp_path,
        env={"PYTHONPATH": f"{zip_path}:{site}"},
    )  # fmt: skip
    assert done.stdout.startswith(str(zip_path))
    assert "rmqha.cli.pipeline" in script.read_text()


@pytest.mark.costly
def test_package_command_when_run_then_it_says_how_to_submit(tmp_path: Path) -> None:
    """And one that cannot write says so."""
    done = CliRunner().invoke(main, ["package", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert f"--py-files {tmp_path / 'out' / 'rmqha.zip'}" in done.output
    (tmp_path / "file").write_text("")
    done = CliRunner().invoke(main, ["package", str(tmp_path / "file" / "sub")])
    assert done.exit_code == 1
    assert "Not a directory" in done.output
