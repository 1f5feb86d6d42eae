"""Stories of replicas to which more is sent than their disks take, with services used all along.

In the simulator a write takes no time, so nobody would ever make room (ADR 0048). Here a write is said to
have waited every now and then, and room takes as long as that disk's syncs. What services promised and
what was acknowledged must come as in ``service_swarm``; the faults are those, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
from collections.abc import AsyncIterator

from rmqha.broker.aio.replica import BrokerReplica
from rmqha.broker.send.aio.roomy_sends import TASK
from rmqha.sim.replica_options import ReplicaOptions
from rmqha.sim.service_swarm import ServiceCluster, ServiceSwarm, service_options
from rmqha.sim.story import Outcome, plain, tell
from rmqha.store.aio.room import SLOW_MS, Stretch

LITTLE_BYTES = 1, 500, 1_500
"""Room for one record, and for some."""
PRESSED_WANTED = (
    TASK, "room for services", "room for a slave", "room was not enough",
    "writes waited on a master", "writes waited on a slave", "writes trusted again", "disk behind", "fault: writes wait",
)  # fmt: skip
"""What a batch of such stories must hold, besides what ``service_swarm`` says."""


class PressedCluster(ServiceCluster):
    """A broker set that counts for whom room is made.

    Attributes:
        dice: for how much there is each time.
    """

    def __init__(self, seed: int, options: ReplicaOptions) -> None:
        super().__init__(seed, options)
        self.dice = random.Random(f"room of {seed}")

    def press(self, host: str, stall: float) -> None:
        """A write of a broker has waited for its disk, some of whose syncs take long from now on."""
        replica = self.replicas[host]
        room = replica.store.room
        if not isinstance(room.stretch, _Counted):
            self._count_room(replica)
        self.disks[host].mood.stall = stall
        is_master = host in self.master_hosts()
        self.counts[f"writes waited on a {'master' if is_master else 'slave'}"] += 1
        self.counts["disk behind"] += stall > 0
        self.trace.say("sim", "writes wait", host=host, stall=stall)
        self.net.contexts[host].copy().run(room.wrote, room.now_ms() - SLOW_MS)

    def _count_room(self, replica: BrokerReplica) -> None:
        room, counts = replica.store.room, self.counts
        make, told = room.make, room.on_changed

        async def making(length: int, *, ahead: int = 0) -> int:
            counts["room for a slave"] += not stretch.inside
            return await make(length, ahead=ahead)

        def changed() -> None:
            counts["writes trusted again"] += not room.is_short
            told()

        stretch = _Counted(self, replica)
        room.make, room.on_changed = making, changed  # type: ignore[method-assign]  # to count
        room.stretch = stretch  # type: ignore[method-assign]  # to count


class _Counted:
    """``Room.stretch`` of one replica, which counts for whom; often there is little, as at a file's end."""

    def __init__(self, cluster: PressedCluster, replica: BrokerReplica) -> None:
        self._counts, self._dice = cluster.counts, cluster.dice
        self._room = replica.store.room
        self._stretch = self._room.stretch
        self.inside = 0

    @contextlib.asynccontextmanager
    async def __call__(self, length: int, records: int = sys.maxsize) -> AsyncIterator[Stretch]:
        task = asyncio.current_task()
        is_row = task is not None and task.get_name() == TASK
        self._counts[TASK if is_row else "room for services"] += 1
        self.inside += 1
        try:
            async with self._stretch(length, records) as made:
                is_little = self._dice.random() < 0.5
                little = Stretch(self._room, self._dice.choice(LITTLE_BYTES), records)
                found = little if is_little else made
                yield found
                self._counts["room was not enough"] += found.refused > 0
        finally:
            self.inside -= 1


class PressedSwarm(ServiceSwarm):
    """Plays the same faults, and lets writes wait."""

    def __init__(self, cluster: PressedCluster, rng: random.Random) -> None:
        super().__init__(cluster, rng)
        self.pressed = cluster
        self.kinds["writes wait"] = plain(self._press)
        self.weights["writes wait"] = 6

    def _press(self) -> bool:
        hosts = [
            one for one in self.alive(self.cluster.broker_hosts) if one in self.pressed.replicas
        ]
        masters = [one for one in hosts if one in self.pressed.master_hosts()]
        if masters and self.rng.random() < 0.5:
            hosts = masters
        if hosts:
            self.pressed.press(self.rng.choice(hosts), self.rng.choice((0.0, 0.0, 0.05, 0.3)))
        return bool(hosts)


def run_pressed_seed(seed: int, options: ReplicaOptions | None = None) -> Outcome:
    """Play one seed of pressed replicas.

    Raises:
        InvariantBroken: as ``run_service_seed``.
    """
    cluster = PressedCluster(seed, options or service_options(seed))
    swarm = PressedSwarm(cluster, random.Random(seed))
    return tell(seed, swarm, lambda: (cluster.reigns, len(cluster.acked)))
