"""What can be done to controllers and brokers: how each fault is drawn, and how it is played.

``draw_*`` choose with the story's random numbers; the methods they belong to do what their
arguments say and choose nothing, so that a script can repeat them.
"""

from __future__ import annotations

import contextlib

from rmqha.base.errors import DiskFailed
from rmqha.base.ids import NO_TERM, Term
from rmqha.controller.raft.events import Received
from rmqha.controller.raft.messages import TERM_JUMP_MAX, TERM_MAX, VoteRequest
from rmqha.sim.clock import SimClock
from rmqha.sim.cluster import CLOCK_DRIFT
from rmqha.sim.disk_faults import DiskFaults
from rmqha.sim.net import Weather
from rmqha.sim.story import Args, Faults, Kind, Story

WEATHERS = (
    Weather(),
    Weather(0.1, 5.0),
    Weather(0.2, 20.0, loss=0.01),
    Weather(0.1, 2.0, loss=0.03, retransmit_ms=250.0),
    Weather(0.1, 2.0, loss=0.3, retransmit_ms=40.0),
    Weather(0.1, 2.0, loss=0.8, retransmit_ms=20.0),
)
TRANSFER_MS = 1000
FORGED_JUMPS = (TERM_JUMP_MAX + 1, 1 << 40, TERM_MAX)


def kinds_of(story: Story) -> dict[str, Kind]:
    """All kinds of faults for a cluster of controllers and scripted brokers."""
    return {
        **ProcessFaults(story).kinds(),
        **NetworkFaults(story).kinds(),
        **DiskFaults(story).kinds(),
        **ClockFaults(story).kinds(),
    }


class ProcessFaults(Faults):
    """Processes that die, stand still, end in order, or hand over."""

    def kinds(self) -> dict[str, Kind]:
        """Faults by their names."""
        cluster, story = self.cluster, self.story

        def living_controller() -> Args | None:
            return self.one_of(story.alive(cluster.controller_hosts))

        def living_broker() -> Args | None:
            return self.one_of(story.alive(cluster.broker_hosts))

        return {
            "kill controller": Kind(living_controller, self.kill),
            "power cut controller": Kind(living_controller, self.power_cut),
            "kill broker": Kind(living_broker, self.kill),
            "power cut broker": Kind(living_broker, self.power_cut),
            "kill leader": Kind(self.draw_leader, self.kill),
            "kill leader and master": Kind(self.draw_leader_and_master, self.kill_all),
            "kill minority": Kind(self.draw_minority, self.kill_all),
            "blackout": Kind(lambda: tuple(story.alive(cluster.controller_hosts)), self.blackout),
            "pause": Kind(self.draw_pause, self.pause),
            "transfer leadership": Kind(self.draw_transfer, self.transfer),
            "stop in order": Kind(self.draw_stop, self.stop_in_order),
            "restart": Kind(self.draw_restart, self.restart),
        }

    def kill(self, host: str) -> bool:
        """Kill one process, as SIGKILL does."""
        return self.kill_all(host)

    def kill_all(self, *hosts: str) -> bool:
        """Kill several processes at one moment."""
        found = [host for host in hosts if host in self.cluster.clocks]
        for host in found:
            self.cluster.kill(host)
        return bool(found)

    def power_cut(self, host: str) -> bool:
        """What was not synced is gone in part."""
        return self.blackout(host)

    def blackout(self, *hosts: str) -> bool:
        """Power fails for all controllers at once."""
        found = [host for host in hosts if host in self.cluster.clocks]
        for host in found:
            self.cluster.kill(host, power=True)
        return bool(found)

    def draw_minority(self) -> Args | None:
        """As many controllers as the group can spare."""
        hosts = self.cluster.controller_hosts
        chosen = self.rng.sample(hosts, (len(hosts) - 1) // 2)
        return tuple(host for host in chosen if host in self.cluster.clocks) or None

    def draw_leader(self) -> Args | None:
        """The leader, if there is one."""
        leader = self.cluster.leader()
        return None if leader is None else (leader,)

    def draw_leader_and_master(self) -> Args | None:
        """Both, if both are there."""
        masters = self.cluster.master_hosts()
        leader = self.cluster.leader()
        return (leader, self.rng.choice(masters)) if leader is not None and masters else None

    def draw_pause(self) -> Args | None:
        """Anybody, shorter or longer than an election takes."""
        found = self.one_of(self.story.alive(self.story.everyone()))
        leader = self.cluster.leader()
        if leader is not None and self.rng.random() < 0.5:
            found = (leader,)
        return None if found is None else (*found, self.rng.choice((60, 120, 200, 500, 2500)))

    def pause(self, host: str, duration_ms: int) -> bool:
        """SIGSTOP, and SIGCONT after a while."""
        if host not in self.cluster.clocks or self.cluster.loop.is_paused(host):
            return False
        self.cluster.pause(host)
        self.cluster.loop.call_later(duration_ms / 1000, self.cluster.resume, host)
        return True

    def draw_transfer(self) -> Args | None:
        """The leader, and whom it shall hand over to (nobody in particular: an empty string)."""
        leader = self.cluster.leader()
        if leader is None or len(self.cluster.controller_hosts) == 1:
            return None
        others = [f"n{h[1:]}" for h in self.cluster.controller_hosts if h != leader]
        return (leader, self.rng.choice(("", "", *others)))

    def transfer(self, leader: str, target: str) -> bool:
        """Ask the leader to hand over."""
        cluster = self.cluster
        service = cluster.controllers.get(leader)
        if service is None or not service.raft.leads():
            return False
        cluster.trace.say("sim", "asks for a transfer", leader=leader, target=target or "any")

        async def hand_over() -> None:
            if await service.raft.transfer_leadership(target or None, TRANSFER_MS):
                cluster.counts["transfer done"] += 1

        self.cluster.start_task(leader, hand_over())
        return True

    def draw_stop(self) -> Args | None:
        """A controller that runs, the leader more often than not."""
        if self.rng.random() < 0.6 and (leader := self.draw_leader()) is not None:
            return leader
        return self.one_of(sorted(self.cluster.listening))

    def stop_in_order(self, host: str) -> bool:
        """SIGTERM: hand over, flush, close, end."""
        cluster = self.cluster
        service = cluster.controllers.get(host)
        if service is None or host not in cluster.listening:
            return False
        cluster.trace.say("sim", "stops in order", host=host)
        cluster.listening.discard(host)

        async def stop() -> None:
            with contextlib.suppress(DiskFailed):
                await service.stop()
            if cluster.controllers.get(host) is service:
                cluster.loop.call_soon(cluster.kill, host)

        cluster.start_task(host, stop())
        return True

    def draw_restart(self) -> Args | None:
        """One who is down, or all who are."""
        down = [host for host in self.story.everyone() if host not in self.cluster.clocks]
        down = [host for host in down if host not in self.cluster.refused]
        if not down:
            return None
        return tuple(self.rng.sample(down, self.rng.choice((1, 1, len(down)))))

    def restart(self, *hosts: str) -> bool:
        """Start who is down."""
        down = [host for host in hosts if host not in self.cluster.clocks]
        down = [host for host in down if not self.cluster.disks[host].mood.failing]
        for host in down:
            self.cluster.boot(host)
        return bool(down)


class NetworkFaults(Faults):
    """Cuts of many shapes, resets, and weather."""

    def kinds(self) -> dict[str, Kind]:
        """Faults by their names."""
        story = self.story
        return {
            "cut off host": Kind(lambda: self.one_of(story.everyone()), self.cut_off),
            "cut one way": Kind(lambda: tuple(self.rng.sample(story.everyone(), 2)), self.one_way),
            "lag": Kind(self.draw_lag, self.lag),
            "forged term": Kind(self.draw_forged, self.forge),
            "split": Kind(self.draw_split, self.split),
            "bridge": Kind(self.draw_bridge, self.bridge),
            "ring": Kind(self.draw_ring, self.ring),
            "reset connections": Kind(
                lambda: tuple(self.rng.sample(story.everyone(), 2)), self.reset
            ),
            "mute leader": Kind(self.draw_mute, self.mute),
            "weather": Kind(lambda: (self.rng.randrange(len(WEATHERS)),), self.weather),
            "heal": Kind(lambda: () if self._is_hurt() else None, self.heal),
        }

    def _is_hurt(self) -> bool:
        return bool(self.cluster.net.cuts or self.cluster.net.lags)

    def _part(self, one: str, other: str) -> None:
        self.cluster.net.cut(one, other)
        self.cluster.net.cut(other, one)

    def cut_off(self, victim: str) -> bool:
        """A host that nobody hears and that hears nobody."""
        self.cluster.trace.say("sim", "cut off", host=victim)
        for other in self.story.everyone():
            if other != victim:
                self._part(victim, other)
        return True

    def one_way(self, source: str, target: str) -> bool:
        """Nothing passes from source to target."""
        self.cluster.trace.say("sim", "cut one way", source=source, target=target)
        self.cluster.net.cut(source, target)
        return True

    def draw_lag(self) -> Args:
        """One direction between two hosts."""
        way = self.rng.sample(self.story.everyone(), 2)
        return (*way, self.rng.choice((20, 80, 150, 250, 400)))

    def lag(self, source: str, target: str, ms: int) -> bool:
        """All from source to target takes longer: answers are late, or all that is asked."""
        self.cluster.trace.say("sim", "lag", source=source, target=target, ms=ms)
        self.cluster.net.lags[source, target] = float(ms)
        return True

    def draw_forged(self) -> Args | None:
        """A controller that votes, in whose name it is asked, and for how far a term."""
        hosts = self.cluster.controller_hosts
        ready = [host for host in hosts if self._votes(host)]
        if not ready or len(hosts) == 1:
            return None
        target, sender = self.rng.choice(ready), self.rng.choice(hosts)
        if sender == target:
            return None
        return (target, f"n{sender[1:]}", self.rng.choice(FORGED_JUMPS))

    def _votes(self, host: str) -> bool:
        service = self.cluster.controllers.get(host)
        core = None if service is None else service.raft.core
        listens = host in self.cluster.listening and not self.cluster.loop.is_paused(host)
        return listens and core is not None and core.node.may_vote

    def forge(self, target: str, sender: str, jump: int) -> bool:
        """Bad memory, or bad people: a request to vote in a term that no election has opened.

        It comes as from a leader that hands over, which no node may ignore for its lease's sake,
        with a log that nobody votes for. A node that does not vote would believe any term.
        """
        if not self._votes(target):
            return False
        raft = self.cluster.controllers[target].raft
        term = 0 if raft.core is None else min(TERM_MAX, raft.core.node.term + jump)
        self.cluster.trace.say("sim", "forges a term", target=target, sender=sender, term=term)
        request = VoteRequest(Term(term), sender, 0, NO_TERM, True)
        context = self.cluster.net.contexts[target].copy()
        self.cluster.loop.call_soon(raft.give, Received(request), context=context)
        return True

    def draw_split(self) -> Args:
        """One side of two; brokers and controllers in both."""
        hosts = self.story.everyone()
        inside = sorted(self.rng.sample(hosts, self.rng.randint(1, len(hosts) - 1)))
        leader = self.cluster.leader()
        if leader is not None and self.rng.random() < 0.5:
            # The old leader with few controllers and most brokers: stale answers would show here.
            others = [h for h in self.cluster.controller_hosts if h != leader]
            inside = sorted({leader, *self.cluster.broker_hosts[::2]} - set(others))
        return tuple(inside)

    def split(self, *inside: str) -> bool:
        """Two halves that cannot speak to each other."""
        self.cluster.trace.say("sim", "split", inside=" ".join(inside))
        for one in inside:
            for other in self.story.everyone():
                if other not in inside:
                    self._part(one, other)
        return True

    def draw_bridge(self) -> Args | None:
        """Living controllers in a row; the middle one is the bridge."""
        alive = self.story.alive(self.cluster.controller_hosts)
        return tuple(self.rng.sample(alive, len(alive))) if len(alive) > 2 else None

    def bridge(self, *row: str) -> bool:
        """Two halves that only talk through one node."""
        middle = len(row) // 2
        self.cluster.trace.say("sim", "bridge", row=" ".join(row))
        for one in row[:middle]:
            for other in row[middle + 1 :]:
                self._part(one, other)
        return True

    def draw_ring(self) -> Args | None:
        """Controllers in a circle; with three, any two would be neighbours."""
        hosts = self.cluster.controller_hosts
        return tuple(self.rng.sample(hosts, len(hosts))) if len(hosts) > 3 else None

    def ring(self, *circle: str) -> bool:
        """Each sees a majority, and each another one (Jepsen's majorities ring)."""
        size = len(circle)
        near = size // 4
        self.cluster.trace.say("sim", "ring", circle=" ".join(circle))
        for at, one in enumerate(circle):
            for step in range(near + 1, size - near):
                self._part(one, circle[(at + step) % size])
        return True

    def reset(self, one: str, other: str) -> bool:
        """A middlebox resets what two hosts have open."""
        self.cluster.trace.say("sim", "reset", one=one, other=other)
        self.cluster.net.reset_between(one, other)
        return True

    def draw_mute(self) -> Args | None:
        """Draw the leader, to be muted."""
        leader = self.cluster.leader()
        return None if leader is None else (leader,)

    def mute(self, leader: str) -> bool:
        """The leader's connections to other controllers break, and new ones cannot be made."""
        self.cluster.trace.say("sim", "mute", host=leader)
        for other in self.cluster.controller_hosts:
            if other != leader:
                self.cluster.net.reset_between(leader, other)
                self._part(leader, other)
        return True

    def weather(self, number: int) -> bool:
        """Delays and losses of another kind."""
        self.cluster.trace.say("sim", "weather", number=number)
        self.cluster.net.weather = WEATHERS[number]
        return True

    def heal(self) -> bool:
        """All cuts are mended, and no way is slower than others."""
        if not self._is_hurt():
            return False
        self.cluster.trace.say("sim", "heal")
        self.cluster.net.heal()
        return True


class ClockFaults(Faults):
    """Clocks that are set, and clocks that run fast or slow."""

    def kinds(self) -> dict[str, Kind]:
        """Faults by their names."""
        rng = self.rng
        jumps = (-3_600_000, -500, 500, 3_600_000)

        def host() -> Args | None:
            return self.one_of(self.story.alive(self.story.everyone()))

        def with_one(*choices: float) -> Args | None:
            found = host()
            return None if found is None else (*found, rng.choice(choices))

        return {
            "wall clock jump": Kind(lambda: with_one(*jumps), self.jump),
            "clock rate": Kind(
                lambda: with_one(1 - CLOCK_DRIFT, 1.0, 1 + CLOCK_DRIFT), self.set_rate
            ),
        }

    def _clock(self, host: str) -> SimClock | None:
        return self.cluster.clocks.get(host)

    def jump(self, host: str, by_ms: int) -> bool:
        """The wall clock is set; it decides nothing."""
        clock = self._clock(host)
        if clock is None:
            return False
        clock.wall_offset_ms += by_ms
        self.cluster.trace.say("sim", "sets the wall clock", host=host, by_ms=by_ms)
        return True

    def set_rate(self, host: str, rate: float) -> bool:
        """The monotonic clock runs at another rate, within the drift that leases allow."""
        clock = self._clock(host)
        if clock is None:
            return False
        clock.set_rate(rate)
        self.cluster.trace.say("sim", "changes a clock's rate", host=host, rate=rate)
        return True
