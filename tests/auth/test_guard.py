"""What stands before a handler: what is refused never comes there."""

from __future__ import annotations

from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from rmqha.auth.aio.guard import Guard, Refusals
from rmqha.auth.check import Check
from rmqha.auth.refused import Reason, Refused
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.command import FLAG_ONEWAY, FLAG_RESPONSE, RemotingCommand
from rmqha.runtime.logs import STRANGERS_LINES_PER_SECOND_MAX, Logger

GOOD, BAD, PEERS = 1, 2, 60_001


class Far:
    """A connection and a log in one, and the handler behind the guard."""

    peer = "10.0.0.1:5000"

    def __init__(self) -> None:
        self.active_ms = 0
        self.sent: list[RemotingCommand] = []
        self.handled: list[RemotingCommand] = []
        self.lines: list[dict[str, Any]] = []

    def send(self, command: RemotingCommand) -> None:
        """Take an answer."""
        self.sent.append(command)

    def log(self, level: str, event: str, **facts: Any) -> None:
        """Keep a line's facts."""
        self.lines.append(facts)

    def on_commands(self, connection: Connection, commands: list[RemotingCommand]) -> None:
        """Take what has passed."""
        assert commands
        self.handled += commands

    def on_closed(self, connection: Connection, error: Exception | None) -> None:
        """Nothing to forget."""


def check(request: RemotingCommand, peer: str) -> None:
    """One code is refused."""
    if request.code != GOOD:
        raise Refused(Reason.DENIED, "no")


@given(
    st.lists(
        st.tuples(
            st.sampled_from([GOOD, BAD, PEERS]), st.sampled_from([0, FLAG_ONEWAY, FLAG_RESPONSE])
        ),
        max_size=12,
    )
)
def test_chunk_when_some_are_refused_then_only_the_others_are_handled(
    kinds: list[tuple[int, int]],
) -> None:
    """In order, and the caller's list stays as it was; who wants no answer gets none."""
    far = Far()
    refusals = Refusals(cast(Logger, far))
    guard = Guard(far, cast(Check, check), refusals, frozenset({PEERS}))
    commands = [RemotingCommand(code, number, flag) for number, (code, flag) in enumerate(kinds)]
    before = list(commands)
    guard.on_commands(cast(Connection, far), commands)
    assert commands == before
    refused = [one for one in commands if one.code == BAD and not one.is_response]
    assert far.handled == [one for one in commands if one not in refused]
    assert [(one.opaque, one.code, one.remark) for one in far.sent] == [
        (one.opaque, 16, "no") for one in refused if not one.is_oneway
    ]
    assert refusals.counts[Reason.DENIED] == len(refused)
    assert len(far.lines) == min(len(refused), STRANGERS_LINES_PER_SECOND_MAX)


def test_flood_when_it_is_refused_then_few_lines_are_made() -> None:
    """A line that is made and dropped costs more than the refusal; what was left out is told."""
    far = Far()
    guard = Guard(far, cast(Check, check), Refusals(cast(Logger, far)))
    flood = [RemotingCommand(BAD, flag=FLAG_ONEWAY)] * 1_000
    for far.active_ms in (5_000, 5_400, 5_999):
        guard.on_commands(cast(Connection, far), flood)
    assert len(far.lines) == STRANGERS_LINES_PER_SECOND_MAX
    assert not any("requests_left_out" in line for line in far.lines)
    far.active_ms = 6_000
    guard.on_commands(cast(Connection, far), flood[:2])
    told = [line.get("requests_left_out") for line in far.lines[STRANGERS_LINES_PER_SECOND_MAX:]]
    assert told == [3_000 - STRANGERS_LINES_PER_SECOND_MAX, None]
