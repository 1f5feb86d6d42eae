"""``bin/reproduce``: lists what it can show; ``bin/reproduce N ...`` shows it, in red and green."""

from __future__ import annotations

import sys
import time

import click

from rmqha.testing.real.maven import JavaUnavailable
from tests.reproduce.finding import Finding, Outcome, is_shown
from tests.reproduce.run import play_all, seconds_since
from tests.reproduce.scenario import Scenario
from tests.reproduce.scenarios import SCENARIOS

COLORS = {Outcome.BUG: "red", Outcome.RIGHT: "green", Outcome.UNCLEAR: "yellow"}
NOT_SHOWN, WRONG_USAGE, NO_JAVA = 1, 2, 3


def listing() -> str:
    """All numbers, with what Java does."""
    lines = ["What Java's controller does, and ours does not (docs/known-java-bugs.md):", ""]
    lines += [heading(SCENARIOS[number]) for number in sorted(SCENARIOS)]
    return "\n".join([*lines, "", "bin/reproduce N ... shows some of them, bin/reproduce all all."])


def heading(one: Scenario) -> str:
    """Number, title and issue."""
    return f"{one.number:>3}  {one.title}" + (f" ({one.issue})" if one.issue else "")


def chosen(asked: tuple[str, ...]) -> list[Scenario]:
    """The scenarios of these numbers, each once, ascending.

    Raises:
        UsageError: one of them is no number, or the number of none.
    """
    if asked == ("all",):
        return [SCENARIOS[number] for number in sorted(SCENARIOS)]
    for text in asked:
        if not text.isdecimal() or int(text) not in SCENARIOS:
            raise click.UsageError(f"{text} is none of {', '.join(map(str, sorted(SCENARIOS)))}")
    return [SCENARIOS[number] for number in sorted({int(text) for text in asked})]


def _tell(side: str, one: Scenario, finding: Finding) -> None:
    word = click.style(f"{finding.outcome.value.upper():<7}", fg=COLORS[finding.outcome], bold=True)
    click.echo(f"{one.number:>3}  {side:<20} {word} {finding.words}")


@click.command()
@click.argument("numbers", nargs=-1)
def main(numbers: tuple[str, ...]) -> None:
    """Show known bugs of Java's controller on a real one (red) and on ours (green).

    NUMBERS are rows of docs/known-java-bugs.md, or "all"; without any, what can be shown is
    listed. Needs Java (tried with 17) and Maven, which fetches RocketMQ at first. Ends with 0 when
    every bug was seen on Java's controller and not on ours, with 1 when one was not, with 2 for
    wrong usage, with 3 without Java.
    """
    if not numbers:
        click.echo(listing())
        return
    scenarios = chosen(numbers)
    for one in scenarios:
        click.echo(heading(one))
    click.echo()
    begun = time.monotonic()
    try:
        found = play_all(scenarios, _tell)
    except JavaUnavailable as error:
        click.echo(f"needs a real RocketMQ: {error}", err=True)
        sys.exit(NO_JAVA)
    missed = [number for number, both in sorted(found.items()) if not is_shown(*both)]
    click.echo(f"\n{len(found) - len(missed)} of {len(found)} shown in {seconds_since(begun)}")
    if missed:
        click.echo(f"not shown: {', '.join(map(str, missed))}")
        sys.exit(NOT_SHOWN)


if __name__ == "__main__":
    main(prog_name="bin/reproduce")
