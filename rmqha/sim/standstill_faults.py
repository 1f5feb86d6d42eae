"""A leader that hears nobody while what it sends arrives, and clients that do not let it rest.

Drawn and played as ``faults`` says.
"""

from __future__ import annotations

from rmqha.sim.steady import ASK_EVERY_MS, HOST_NAME, SteadyClient
from rmqha.sim.story import Args, Faults, Kind, Story


class StandstillFaults(Faults):
    """What a leader could outlast that can do nothing any more."""

    def __init__(self, story: Story) -> None:
        super().__init__(story)
        self._client: SteadyClient | None = None

    def kinds(self) -> dict[str, Kind]:
        """Faults by their names."""
        return {
            "deafen": Kind(self.draw_deafen, self.deafen),
            "steady requests": Kind(self.draw_steady, self.ask),
        }

    def draw_deafen(self) -> Args | None:
        """The leader, of a group that has others."""
        return None if len(self.cluster.controller_hosts) == 1 else self.draw_steady()

    def deafen(self, host: str, every_ms: int, duration_ms: int) -> bool:
        """Of other controllers it hears nothing, and what it says they do; clients ask it on."""
        self.cluster.trace.say("sim", "deafens", host=host)
        self.cluster.counts["leader deafened"] += self.cluster.leader() == host
        for other in self.cluster.controller_hosts:
            if other != host:
                self.cluster.net.cut(other, host)
        return self.ask(host, every_ms, duration_ms)

    def draw_steady(self) -> Args | None:
        """The leader, asked more often than its heartbeat comes."""
        leader = self.cluster.leader()
        return None if leader is None else (leader, ASK_EVERY_MS, self.rng.choice((1500, 4000)))

    def ask(self, host: str, every_ms: int, duration_ms: int) -> bool:
        """Clients read from one controller for a while, without waiting for answers."""
        self.cluster.trace.say("sim", "steady requests", host=host, duration_ms=duration_ms)
        if self._client is None:
            self._client = SteadyClient(self.cluster)
        self.cluster.start_task(HOST_NAME, self._client.ask(host, every_ms, duration_ms))
        return True
