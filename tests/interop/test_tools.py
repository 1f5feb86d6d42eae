"""What rocketmq-exporter and rocketmq-dashboard ask in one pass, of a Java broker and of ours.

Maven has no jar of either tool. Both are made on RocketMQ's admin client, so that client is asked here
what they ask, call by call: the exporter's calls after its public source, the dashboard's after what
its pages show. All outcomes must be alike.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqha.testing.real import maven
from rmqha.testing.real.java import CLUSTER_NAME, SMALL_JVM
from rmqha.testing.real.processes import Child, wait_until
from tests.interop import required
from tests.interop.alone import Alone
from tests.interop.client_peer import ClientPeer
from tests.interop.peers import java_peer_command

PROGRAM = Path(__file__).parent / "java" / "ToolPeer.java"
SENT = 12
WAIT_S = 40.0

ODD = {"300 groups": ("[Tools, tools-readers]", "[tools-readers]")}
"""Java's answer has the topic itself among the groups that read it; PARITY has a row of it."""


class ToolPeer(ClientPeer):
    """The admin client, with a producer and a consumer beside it."""

    def __init__(self, home: Path, stage: Alone) -> None:
        super().__init__(home, name="tools")
        args = [stage.servers, stage.broker.address, CLUSTER_NAME]
        options = ("-Xmx256m", *SMALL_JVM)
        command = java_peer_command(maven.DEFAULT_VERSION, home, args, options, PROGRAM)
        self.child = Child("tools", command, home / "tools.log", piped=True)

    def outcomes(self, tool: str) -> dict[str, str]:
        """Every call of a tool, and what came of it."""
        return dict(one.split("=", 1) for one in self.ask(tool).split("\t"))


@pytest.fixture(scope="module")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ToolPeer, ToolPeer]]:
    """The client at Java's broker, and at ours; both have sent and consumed the same."""
    required.require_classpath()
    # Without its timers Java's broker cannot delete a topic (215 ends in a NullPointerException).
    settings = {"messageIndexEnable": True, "timerWheelEnable": True}
    with contextlib.ExitStack() as stack:
        found = []
        for kind in ("java", "python"):
            folder = tmp_path_factory.mktemp(kind)
            stage = stack.enter_context(Alone(kind, folder, **settings))
            found.append(stack.enter_context(ToolPeer(folder / "tools", stage)))
        for peer in found:
            peer.ask("prepare")
        for peer in found:
            wait_until(lambda peer=peer: peer.ask("consumed") == str(SENT), WAIT_S, "all consumed")
        yield found[0], found[1]


@pytest.mark.parametrize(("tool", "calls"), [("exporter", 40), ("dashboard", 25)])
def test_tool_when_it_makes_a_pass_then_ours_answers_as_javas(
    peers: tuple[ToolPeer, ToolPeer], tool: str, calls: int
) -> None:
    """The topic page was an error, charts were empty, and the exporter wrote errors by the thousand."""
    seen: list[dict[str, str]] = [{}, {}]

    def alike() -> bool:
        # Statistics and stored offsets come with their periods, at each broker at its own time.
        seen[:] = [peer.outcomes(tool) for peer in peers]
        return different() == {}

    def different() -> dict[str, tuple[str, str | None]]:
        java, ours = seen
        found = {
            name: (java[name], ours.get(name)) for name in java if java[name] != ours.get(name)
        }
        return {name: both for name, both in found.items() if ODD.get(name) != both}

    with contextlib.suppress(AssertionError):
        wait_until(alike, WAIT_S, "equal outcomes")
    assert different() == {}
    java = seen[0]
    assert len(java) >= calls
    assert sum(one.startswith("refused") for one in java.values()) <= 4, java
