"""``bin/reproduce``: what it lists, refuses and ends with."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from click.testing import CliRunner

from rmqha.testing.real.maven import JavaUnavailable
from tests.reproduce import __main__ as command
from tests.reproduce.finding import Finding, bug, right, unclear
from tests.reproduce.run import play, running, side_name
from tests.reproduce.scenario import Group, Scenario
from tests.reproduce.scenarios import SCENARIOS
from tests.reproduce.stage import Stage

Pair = tuple[Finding, Finding]
QUICK = (1, 2, 4, 6, 7, 8, 9, 10, 12, 16, 23, 30)
"""On one node, in two seconds at most."""


def run(patch: pytest.MonkeyPatch, pair: Pair, *numbers: str) -> tuple[int, str]:
    """Exit code and output, with findings that nobody played for."""

    def found(
        scenarios: Iterable[Scenario], tell: Callable[[str, Scenario, Finding], None]
    ) -> dict[int, Pair]:
        both = {}
        for one in scenarios:
            both[one.number] = pair
            tell("Java", one, pair[0])
            tell("rmqha", one, pair[1])
        return both

    patch.setattr(command, "play_all", found)
    result = CliRunner().invoke(command.main, numbers)
    return result.exit_code, result.output


def test_nothing_when_asked_for_then_all_are_listed() -> None:
    """Nothing is started."""
    result = CliRunner().invoke(command.main, [])
    assert result.exit_code == 0
    listed = [line.split()[0] for line in result.output.splitlines() if line[:3].strip().isdigit()]
    assert listed == [str(number) for number in sorted(SCENARIOS)]
    assert "(#10578)" in result.output


@pytest.mark.parametrize(
    ("pair", "code"),
    [
        ((bug("it fell"), right("it stood")), 0),
        ((right("it stood"), right("it stood")), 1),
        ((bug("it fell"), bug("it fell")), 1),
        ((unclear("no java"), right("it stood")), 1),
    ],
)
def test_finding_when_told_then_words_and_exit_code(
    pair: Pair, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """0 only when Java has the bug and ours has not."""
    ended, output = run(monkeypatch, pair, "4")
    assert ended == code
    for side, finding in zip(("Java", "rmqha"), pair, strict=True):
        (line,) = [one for one in output.splitlines() if f"  {side} " in one]
        assert finding.outcome.value.upper() in line
        assert line.endswith(finding.words)
    assert ("not shown: 4" in output) == (code == 1)


def test_numbers_when_given_twice_then_each_is_played_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the order of the table."""
    _, output = run(monkeypatch, (bug("a"), right("b")), "9", "4", "9")
    assert "2 of 2 shown" in output
    assert output.index("  4  ") < output.index("  9  ")


@pytest.mark.parametrize("asked", [["0"], ["four"], ["4", "999"], ["all", "4"], ["-1"]])
def test_number_when_there_is_none_then_wrong_usage(asked: list[str]) -> None:
    """2, before anything is started."""
    assert CliRunner().invoke(command.main, asked).exit_code == 2


def test_java_when_it_cannot_be_had_then_3_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most machines have no Maven."""

    def away(*facts: object) -> dict[int, Pair]:
        raise JavaUnavailable("no mvn on the PATH")

    monkeypatch.setattr(command, "play_all", away)
    result = CliRunner().invoke(command.main, ["4"])
    assert result.exit_code == 3
    assert "no mvn on the PATH" in result.output


def test_side_when_named_then_release_and_flavour() -> None:
    """Whoever reads red must know of what."""
    assert side_name("jraft", Group(java="jraft")) == "Java 5.3.3 (jraft)"
    assert side_name("rmqha", Group()) == "rmqha"


@pytest.mark.slow
def test_scenarios_when_played_on_ours_then_green() -> None:
    """Without Java: the same requests, on a process of ours."""
    with running("rmqha", Group()) as controllers:
        found = {number: play(controllers, SCENARIOS[number]) for number in QUICK}
        lost = Scenario(999, "", "", _asks_for_a_set_that_is_none, lambda seen: right(""))
        nothing = play(controllers, lost)
    assert {number: one for number, one in found.items() if one.outcome.value != "green"} == {}
    assert nothing == unclear("it did not get so far: the leader knows no set set-999")


def _asks_for_a_set_that_is_none(stage: Stage) -> object:
    return stage.seen()
