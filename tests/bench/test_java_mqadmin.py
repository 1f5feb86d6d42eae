"""Whether the real mqadmin has carried out a command: its exit status says nothing."""

from __future__ import annotations

import pytest

from tests.bench.java_mqadmin import failure

PLAN = "The old mapping data is written to file /tmp/T-1.before\n... file /tmp/T-2.after\n"
STACK = (
    "SubCommandException: RemappingStaticTopicSubCommand command failed\n"
    "\tat some.Place(Place.java:1)\n"
    "Caused by: java.lang.RuntimeException: Mapping info should not be null in broker broker-a\n"
)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (PLAN, None),
        (PLAN + STACK, STACK.splitlines()[-1]),
        ("usage: mqadmin\n", "usage: mqadmin"),
        ("", "nothing was printed"),
    ],
)
def test_command_when_it_printed_something_then_that_tells(text: str, reason: str | None) -> None:
    """A command that failed half way has told of its plan before."""
    assert failure(text) == reason
