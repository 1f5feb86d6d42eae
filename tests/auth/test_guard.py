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
from rmqha.runtime.logs import Logger

GOOD, BAD, PEERS = 1, 2, 60_001


class Far:
    """A connection and a log in one, and the handler behind the guard."""

    peer = "10.0.0.1:5000"

    def __init__(self) -> None:
        self.sent: list[RemotingCommand] = []
        self.handled: list[RemotingCommand] = []
        self.lines = 0

    def send(self, command: RemotingCommand) -> None:
        """Take an answer."""
        self.sent.append(command)

    def log(self, level: str, event: str, **facts: Any) -> None:
        """Count a line."""
        self.lines += 1

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
    assert far.lines == len(refused), "the log itself keeps them few, see test_logs"
