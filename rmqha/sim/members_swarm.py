"""Stories in which controllers join and leave their group, among all the other faults.

Some controllers of the group, and some beside it that run and wait. An operator adds and removes
at any moment, asks anybody, also twice at a time, and takes no answer as a reason to stop. Disks
that lose what they held are left out: how many of them a group can bear changes with the group.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from rmqha.controller.raft.members import Member
from rmqha.controller.raft.membership import LOST
from rmqha.sim.cluster import CONTROLLER_PORT, SimCluster, SimOptions
from rmqha.sim.story import Args, Fault, Faults, Kind, Outcome
from rmqha.sim.swarm import LEASES_OFF, PARTIAL, Swarm

LOSES = ("flip bit", "wipe store", "unreadable disk", "other release")
VOTERS_LEAST = 2
"""The operator leaves so many; a group of one is left by growing it."""

LOGGED = {
    "raft_members_changing": "change begun",
    "raft_members_changed": "change committed",
    "raft_guest": "unknown node let in",
    "raft_removed": "node knows that it was removed",
    "raft_removed_leader": "leader removed",
}

HAPPENINGS = frozenset(
    {
        *LOGGED.values(), "change refused", "change taken back", "change of unknown outcome",
        "founder gone", "group by snapshot", "joined by a vote", "log truncated",
        "snapshot installed",
    }
)  # fmt: skip


class MemberFaults(Faults):
    """An operator who changes the group."""

    def kinds(self) -> dict[str, Kind]:
        """Faults by their names."""
        return {
            "add controller": Kind(self.draw, self.add),
            "remove controller": Kind(self.draw, self.remove),
            "replace controller": Kind(self.draw_two, self.replace),
            "grab the group": Kind(self.draw_grab, self.grab),
            "wipe member": Kind(self.a_controller, self.wipe),
        }

    def draw(self) -> Args | None:
        """Whom to ask, mostly the leader, and about whom."""
        hosts = self.cluster.controller_hosts
        leader = self.cluster.leader()
        asked = leader if leader is not None and self.rng.random() < 0.9 else self.rng.choice(hosts)
        return (asked, self.rng.choice(hosts))

    def draw_two(self) -> Args | None:
        """The same, and somebody for somebody else."""
        asked, joins = self.draw() or ("", "")
        return (asked, joins, self.rng.choice(self.cluster.controller_hosts))

    def add(self, asked: str, host: str) -> bool:
        """A controller shall join."""
        return self._change(asked, host, joins=True)

    def remove(self, asked: str, host: str) -> bool:
        """A controller shall leave."""
        return len(self._group(asked)) > VOTERS_LEAST and self._change(asked, host, joins=False)

    def replace(self, asked: str, joins: str, leaves: str) -> bool:
        """Both at once, for who does not wait for an answer."""
        added = joins != leaves and self.add(asked, joins)
        return added and self.remove(asked, leaves)

    def draw_grab(self) -> Args | None:
        """The leader and some others, on one side of a cut."""
        leader = self.cluster.leader()
        if leader is None:
            return None
        others = [host for host in self.cluster.controller_hosts if host != leader]
        return (leader, *self.rng.sample(others, self.rng.randint(0, len(others) - 1)))

    def grab(self, leader: str, *inside: str) -> bool:
        """A leader is told to take in all who stay with it and to leave out all others, at a time.

        Then they are parted. If it could do so, both sides would have a majority.
        """
        cluster = self.cluster
        if leader not in cluster.listening:
            return False
        for host in cluster.controller_hosts:
            joins = host in inside
            if host != leader and joins != (f"n{host[1:]}" in self._group(leader)):
                self._change(leader, host, joins=joins)
        for one in (leader, *inside):
            for other in self.story.everyone():
                if other not in (leader, *inside):
                    cluster.net.cut(one, other)
                    cluster.net.cut(other, one)
        return True

    def wipe(self, host: str) -> bool:
        """A voter's disk is replaced, when all know the same group and it can bear that.

        Until that one has caught up no other is wiped, and the operator changes nothing (``_change``):
        of a group of three, one of them without its log, nobody may be removed.
        """
        cluster = self.cluster
        if cluster.damaged or not self._can_spare(host):
            return False
        cluster.trace.say("sim", "wipes the store", host=host)
        cluster.kill(host)
        cluster.damaged.add(host)
        cluster.disks[host].wipe()
        return True

    def _can_spare(self, host: str) -> bool:
        """Whether so many others live and know the same group, committed, that a majority is left."""
        cores = [self.cluster.controllers[one].raft.core for one in sorted(self.cluster.listening)]
        leader = next((one.node for one in cores if one is not None and one.is_ready), None)
        if leader is None or f"n{host[1:]}" not in leader.voters or leader.leaving:
            return False
        nodes = [one.node for one in cores if one is not None and one.node.id in leader.voters]
        others = [node for node in nodes if node.id != f"n{host[1:]}" and node.may_vote]
        same = all(one.group == leader.group and not one.group_uncommitted for one in nodes)
        return same and leader.voters == leader.members and len(others) > len(leader.voters) // 2

    def _group(self, asked: str) -> tuple[str, ...]:
        return self.cluster.group(asked) if asked in self.cluster.listening else ()

    def _change(self, asked: str, host: str, *, joins: bool) -> bool:
        cluster = self.cluster
        if asked not in cluster.listening or cluster.damaged:
            return False
        service = cluster.controllers[asked]
        member = Member(f"n{host[1:]}", host, CONTROLLER_PORT)
        cluster.trace.say("sim", "adds" if joins else "removes", host=host, asks=asked)

        async def change() -> None:
            answer = await service.raft.change_members(member, joins=joins)
            cluster.counts["change refused"] += answer not in ("", LOST)
            cluster.counts["change of unknown outcome"] += answer == LOST

        cluster.start_task(asked, change())
        return True


class MembersSwarm(Swarm):
    """A swarm with an operator who changes the group."""

    with_ambushes = False  # they know groups that stay
    awaited = (*PARTIAL, "deafen")

    def __init__(
        self, cluster: SimCluster, rng: random.Random, script: tuple[Fault, ...] | None = None
    ) -> None:
        super().__init__(cluster, rng, script)
        for name in LOSES:
            del self.kinds[name]
        self.kinds |= MemberFaults(self).kinds()
        self.weights |= {
            "add controller": 6,
            "remove controller": 5,
            "replace controller": 3,
            "grab the group": 4,
        }
        if cluster.options.snapshot_chunk_bytes < SimOptions().snapshot_chunk_bytes:
            self.weights |= {"deafen": 2, "steady requests": 1, "wipe member": 6}

    def finish(self) -> int:
        """Count what the group has become, then peace."""
        settled_ms = super().finish()
        leader = self.cluster.leader()
        group = self.cluster.group(leader) if leader is not None else ()
        founders = {f"n{host[1:]}" for host in self.cluster.founders}
        self.cluster.counts["founder gone"] += len(founders - set(group))
        self.cluster.counts["joined by a vote"] += len(set(group) - founders)
        return settled_ms


def make_members_swarm(seed: int, script: tuple[Fault, ...] | None = None) -> MembersSwarm:
    """A seed's story, before it is told."""
    rng = random.Random(seed)
    options = SimOptions(
        controllers=rng.choice((1, 2, 3, 3, 3, 4)),
        spare_controllers=rng.choice((1, 2, 3)),
        broker_sets=1,
        replicas=2,
        snapshot_every=rng.choice((8, 8, 25)),
        trailing_entries=rng.choice((0, 3, 20)),
        wal_segment_bytes=rng.choice((300, 1000, 6000)),
        entries_per_request_max=rng.choice((1, 3, 512)),
        heartbeat_timeout_ms=4000,
        moving=True,
    )
    if seed % 5 == 0 or seed % 7 in (0, 2):
        # The other seeds keep the stories that they had before there was this: some name a bug.
        later = random.Random(f"later options {seed}")
        chunk_bytes = later.choice((40, 200, 5000))
        leases = later.random() >= LEASES_OFF
        options = replace(options, snapshot_chunk_bytes=chunk_bytes, lease_reads=leases)
    cluster = SimCluster(seed, options)
    cluster.logged.append(lambda event, facts: count(cluster, event, facts))
    return MembersSwarm(cluster, rng, script)


def count(cluster: SimCluster, event: str, facts: Mapping[str, object]) -> None:
    """What a node's log line tells of the group."""
    if event in LOGGED:
        cluster.counts[LOGGED[event]] += 1
    if event == "raft_members_taken_back":
        cluster.counts["change taken back"] += 1
    if event == "raft_members_loaded":
        cluster.counts["group by snapshot"] += 1


def run_members_seed(seed: int, script: tuple[Fault, ...] | None = None) -> Outcome:
    """Play one seed to its end.

    Raises:
        InvariantBroken: a safety property broke, or the cluster did not recover.
    """
    return make_members_swarm(seed, script).tell(seed)


def missing_happenings(counts: Mapping[str, int], faults: Iterable[str]) -> list[str]:
    """What did not occur."""
    wanted = [*HAPPENINGS, *(f"fault: {name}" for name in faults)]
    return sorted(name for name in wanted if not counts.get(name))
