"""What a probe on the broker's own connections leaves behind."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from rmqha.base.errors import ConnectionLost
from rmqha.controller.aio import prober
from rmqha.controller.metadata.probe_messages import PeersHeard, Probe, ProbeAnswered
from rmqha.remoting.command import RemotingCommand
from rmqha.runtime.aio.tasks import Tasks
from rmqha.runtime.logs import Logger


class Away:
    """A client and a clock: nobody listens, and time passes at once."""

    async def invoke(self, *_: object) -> RemotingCommand:
        """Never answered."""
        raise ConnectionLost("nobody is there")

    async def sleep(self, _: float) -> None:
        """Over already."""

    def sign(self, *_: object) -> None:
        """Nothing."""


class Connection:
    """One that a broker opened, with what was sent on it."""

    is_closing = False

    def __init__(self, number: int) -> None:
        self.id, self.sent = number, list[RemotingCommand]()

    def send(self, command: RemotingCommand) -> None:
        """Keep it."""
        self.sent.append(command)


async def test_probes_when_nobody_answers_then_the_newest_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Brokers that hang answer none of them, and are asked for as long as they hang."""
    most = 3
    monkeypatch.setattr(prober, "SENT_MAX", most)
    connections = {number: Connection(number) for number in range(2 * most)}
    heard: list[ProbeAnswered | PeersHeard] = []
    away, log = cast(Any, Away()), Logger()
    asks = prober.Prober(
        cast(Any, SimpleNamespace()), away, None, away, away, Tasks(log),
        cast(Any, connections.get), heard.append,
    )  # fmt: skip
    for number in connections:
        await asks._invoke(Probe(number, ("c", "a", 1), (number,), "h:1", 100))  # type: ignore[arg-type]  # an id is an int
    assert len(asks._sent) == most
    for connection in connections.values():
        (sent,) = connection.sent
        asks.answered(cast(Any, connection), sent)
    assert heard == [ProbeAnswered(number) for number in range(most, 2 * most)]
    assert len(asks._sent) == 0
