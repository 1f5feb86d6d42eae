"""What passed once in a run of CI is not run again; what did not, or tries more, is."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

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
