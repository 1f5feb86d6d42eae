"""Which tests run: what passed once in a run of CI is not run again, of many alike few at first."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.interop import conftest as interop

pytest_plugins = ["pytester"]

SUITE = """
import pytest
from hypothesis import given, strategies

def test_passes():
    pass

@given(strategies.integers())
def test_property(value):
    assert value == value

@pytest.mark.skip
def test_skipped():
    pass

def test_fails():
    assert False

@pytest.fixture
def breaks_afterwards():
    yield
    assert False

def test_breaks_afterwards(breaks_afterwards):
    pass
"""


@pytest.mark.slow
def test_tests_when_noted_as_passed_then_only_the_others_and_properties_run(
    pytester: pytest.Pytester,
) -> None:
    here = Path(__file__).parent
    shutil.copy(here / "conftest.py", pytester.path)
    shutil.copy(here / "share.py", pytester.mkpydir("tests"))
    pytester.makepyfile(test_suite=SUITE)
    pytester.runpytest_subprocess("-n", "2", "--note-passed=passed").assert_outcomes(
        passed=3, skipped=1, failed=1, errors=1
    )
    assert (pytester.path / "passed").read_text().split() == [
        "test_suite.py::test_passes",
        "test_suite.py::test_property",
    ]
    pytester.runpytest_subprocess("-n", "2", "--passed-before=passed").assert_outcomes(
        passed=2, skipped=1, failed=1, errors=1
    )


MANY = """
import pytest

@pytest.mark.few
@pytest.mark.parametrize("number", range(10))
def test_alike(number):
    pass

@pytest.mark.few
@pytest.mark.parametrize("number", range(2))
def test_pair(number):
    pass

@pytest.mark.parametrize("number", range(5))
def test_all(number):
    pass
"""


@pytest.mark.slow
def test_parameters_when_somebody_waits_then_a_few_of_many_run(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Path(__file__).parent
    shutil.copy(here / "conftest.py", pytester.path)
    shutil.copy(here / "share.py", pytester.mkpydir("tests"))
    pytester.makeini("[pytest]\nmarkers = few: a few of many")
    pytester.makepyfile(test_suite=MANY)
    monkeypatch.delenv("RMQHA_TEST_FAST", raising=False)
    pytester.runpytest_subprocess().assert_outcomes(passed=17)
    monkeypatch.setenv("RMQHA_TEST_FAST", "1")
    pytester.runpytest_subprocess().assert_outcomes(passed=3 + 1 + 5, deselected=8)


TURNS = """
import pytest

@pytest.mark.slow
@pytest.mark.turns(4)
@pytest.mark.parametrize("number", range(16))
def test_long_row(number):
    with open("ran", "a") as ran:
        ran.write(f"{number} ")

@pytest.mark.slow
@pytest.mark.parametrize("number", range(2))
def test_slow(number):
    pass

def test_quick():
    pass
"""


def commit(folder: Path) -> None:
    """One more, of nothing."""
    named = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.org"]
    quiet = ["commit", "-q", "--allow-empty", "-m", "one more"]
    subprocess.run(["git", "-C", str(folder), *named, *quiet], check=True)


@pytest.mark.slow
@pytest.mark.parametrize(("share", "commits", "passed"), [(1, 4, 4 + 2 + 1), (2, 8, 2 + 1 + 1)])
def test_long_rows_when_they_take_turns_then_some_commits_run_all_of_them(
    pytester: pytest.Pytester, share: int, commits: int, passed: int
) -> None:
    """Also where a slow machine runs half of what is slow: then a row takes twice as many."""
    here = Path(__file__).parent
    shutil.copy(here / "conftest.py", pytester.path)
    shutil.copy(here / "share.py", pytester.mkpydir("tests"))
    pytester.makeini("[pytest]\nmarkers =\n  slow: is slow\n  turns(count): takes turns")
    pytester.makepyfile(test_suite=TURNS)
    subprocess.run(["git", "init", "-q", str(pytester.path)], check=True)
    ran = pytester.path / "ran"
    for _ in range(commits):
        commit(pytester.path)
        asked = ["--by-turns", f"--share={share}"]
        pytester.runpytest_subprocess(*asked).assert_outcomes(
            passed=passed, deselected=12 if share == 1 else 15
        )
    assert sorted(map(int, ran.read_text().split())) == list(range(16))
    pytester.runpytest_subprocess().assert_outcomes(passed=19)


def test_modules_when_named_for_their_seconds_then_they_are_there() -> None:
    """One that was renamed would run beside others, and nobody would see why it is red."""
    there = {one.stem for one in Path(interop.__file__).parent.glob("test_*.py")}
    assert there >= interop.ALONE
