"""``bin/reproduce`` on a real controller: the quick bugs are there, and not in ours."""

from __future__ import annotations

from tests.interop import required
from tests.reproduce.finding import is_shown
from tests.reproduce.run import play_all
from tests.reproduce.scenarios import SCENARIOS
from tests.reproduce.test_command import QUICK


def test_bug_when_played_on_both_then_red_and_green() -> None:
    """One Java controller for all of them; a release without a bug would be seen here."""
    required.require_classpath()
    scenarios = [SCENARIOS[number] for number in QUICK]
    assert len({one.group for one in scenarios}) == 1
    found = play_all(scenarios, lambda side, one, finding: print(one.number, side, finding.words))
    assert {number: both for number, both in found.items() if not is_shown(*both)} == {}
