"""Which tests run: what passed once in a run of CI is not run again, of many alike few at first."""

from __future__ import annotations

import shutil
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


def test_modules_when_named_for_their_length_or_their_seconds_then_they_are_there() -> None:
    """One that was renamed would begin last, or beside others, and nobody would see why."""
    there = {one.stem for one in Path(interop.__file__).parent.glob("test_*.py")}
    assert set(interop.LONG) | interop.ALONE <= there
    assert not set(interop.LONG) & interop.ALONE
