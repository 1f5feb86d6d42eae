"""Plays scenarios: each group of controllers is started once, Java's first, and ended by its pid."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rmqha.testing.real import maven, wire
from rmqha.testing.real.controllers import Controllers
from tests.reproduce.finding import Finding, unclear
from tests.reproduce.scenario import Group, Scenario
from tests.reproduce.stage import Stage

OURS = "rmqha"
Findings = dict[int, Finding]
Tell = Callable[[str, Scenario, Finding], None]


@contextmanager
def running(kind: str, group: Group) -> Iterator[Controllers]:
    """A group of one kind, until the block ends."""
    with tempfile.TemporaryDirectory(prefix="rmqha-reproduce-") as folder:
        one = Controllers(
            kind, Path(folder), count=group.count, settings=dict(group.settings),
            version=group.version,
        )  # fmt: skip
        try:
            one.start()
            one.wait_for_agreement()
            yield one
        finally:
            one.close()


def play(controllers: Controllers, scenario: Scenario) -> Finding:
    """One scenario on a group that runs."""
    stage = Stage(controllers, f"set-{scenario.number}")
    try:
        return scenario.judge(scenario.play(stage))
    except (OSError, AssertionError, wire.Refused) as error:
        return unclear(f"it did not get so far: {str(error).partition(chr(10))[0]}")
    finally:
        stage.close()
        if scenario.group.count > 1:
            controllers.heal()


def play_all(scenarios: Iterable[Scenario], tell: Tell) -> dict[int, tuple[Finding, Finding]]:
    """Play them on both sides.

    Args:
        scenarios: in any order.
        tell: is told each finding as it is made, with the name of its side.

    Raises:
        JavaUnavailable: there is no Java, or Maven cannot have RocketMQ.
    """
    by_group: dict[Group, list[Scenario]] = {}
    for one in scenarios:
        by_group.setdefault(one.group, []).append(one)
    for version in sorted({one.version for one in by_group}):
        maven.classpath(version)
    found: dict[int, tuple[Finding, Finding]] = {}
    for group, members in by_group.items():
        java = _side(group.java, group, members, tell)
        ours = _side(OURS, group, members, tell)
        found |= {number: (java[number], ours[number]) for number in java}
    return found


def side_name(kind: str, group: Group) -> str:
    """How a side is called."""
    return OURS if kind == OURS else f"Java {group.version} ({kind})"


def _side(kind: str, group: Group, members: list[Scenario], tell: Tell) -> Findings:
    found: Findings = {}
    with running(kind, group) as controllers:
        for one in members:
            found[one.number] = play(controllers, one)
            tell(side_name(kind, group), one, found[one.number])
    return found


def seconds_since(begun: float) -> str:
    """How long it took, for people."""
    return f"{time.monotonic() - begun:.0f} s"
