"""What holds for all tests."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.share import left_out, turn_of

# Hypothesis ends an example that takes over 0.2 s, which on a busy machine says nothing about it.
# Where CI is set it knows that itself.
settings.register_profile("busy machine", deadline=None)
# bin/test --fast is for those who wait for it; bin/test tries the usual hundred.
settings.register_profile("fast", deadline=None, max_examples=25)
FAST = os.environ.get("RMQHA_TEST_FAST") == "1"
FEW = 4
"""One of so many parameters of a test that is marked ``few`` is run where somebody waits."""
if FAST:
    settings.load_profile("fast")
elif os.environ.get("CI") != "true":
    settings.load_profile("busy machine")

SIM_TIMEOUT_S = 600
"""Stories are bounded in simulated time, and a busy machine takes long for it: two of them beside ten
other processes passed the two minutes that other tests have."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """What .ci/run asks for, which has had the fast tests run in a fresh clone of the same commit."""
    group = parser.getgroup("rmqha's own tests")
    group.addoption("--note-passed", metavar="FILE", help="write there which tests passed")
    group.addoption("--passed-before", metavar="FILE", help="leave out what passed there")
    group.addoption("--by-turns", action="store_true", help="of tests with turns(N) one in N")
    group.addoption("--share", metavar="N", type=int, default=1, help="see tests/share.py")


def pytest_configure(config: pytest.Config) -> None:
    """One process notes what passed, also for its workers."""
    # In the background of a script Ctrl-C is ignored, by children too; tests send it to both.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    path = config.getoption("--note-passed")
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Passed(Path(path)))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give batches of seeds a limit of their own, where they name none; leave out what passed."""
    for item in items:
        if item.get_closest_marker("sim") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SIM_TIMEOUT_S))
    if FAST:
        alike = [one for one in items if one.get_closest_marker("few")]
        _leave_out(config, items, left_out(alike, FEW, 0))
    path = config.getoption("--passed-before")
    if path:
        passed = frozenset(Path(path).read_text().splitlines())
        _leave_out(
            config, items, [one for one in items if one.nodeid in passed and not _is_property(one)]
        )
    _leave_out(config, items, _not_their_turn(config, items))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Thousands of collected tests are looked through at each collection else: a seventh of all."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


@pytest.fixture(autouse=True)
def _signals_come() -> Iterator[None]:
    """A server that is called in this process holds SIGTERM until it can end, and only says its help."""
    held = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    yield
    signal.pthread_sigmask(signal.SIG_SETMASK, held)


def _leave_out(config: pytest.Config, items: list[pytest.Item], gone: list[pytest.Item]) -> None:
    config.hook.pytest_deselected(items=gone)
    known = set(gone)
    items[:] = [item for item in items if item not in known]


def _not_their_turn(config: pytest.Config, items: list[pytest.Item]) -> list[pytest.Item]:
    """One whose turn comes every fourth time has it every eighth time where half of all is run.

    Two choices one after the other would agree on some parameters for ever.
    """
    by_turns, share = config.getoption("--by-turns"), config.getoption("--share")
    of_so_many: dict[int, list[pytest.Item]] = {}
    for item in items:
        mark = item.get_closest_marker("turns")
        count = mark.args[0] if by_turns and mark is not None else 1
        if item.get_closest_marker("slow") or item.get_closest_marker("interop"):
            count *= share
        if count > 1:
            of_so_many.setdefault(count, []).append(item)
    turn = turn_of(config.rootpath) if of_so_many else 0
    return [one for count, alike in of_so_many.items() for one in left_out(alike, count, turn)]


def _is_property(item: pytest.Item) -> bool:
    """Whether a run of bin/test tries more examples than one of bin/test --fast."""
    return bool(getattr(getattr(item, "obj", None), "is_hypothesis_test", False))


class _Passed:
    """Which tests passed in all their phases; a skipped one did not."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._passed: set[str] = set()
        self._not: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One phase has ended."""
        if report.outcome != "passed":
            self._not.add(report.nodeid)
        elif report.when == "call":
            self._passed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        """All have."""
        self._path.write_text("".join(f"{one}\n" for one in sorted(self._passed - self._not)))
