"""Remaps while somebody does not reach somebody else, and under Java's default rule of acknowledgements.

Java's rule (``allAckInSyncStateSet=false``, ``inSyncReplicas=1``) promises that a message is in its
master's log, nothing of slaves. So what was acknowledged stays as long as no master is replaced, and
where one is, as far as the log of its successor reached when that was elected. The rest may be gone,
and nothing else: what is left is there once, in order, and at the offset that was told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from rmqha.broker.aio.replica import BrokerReplica
from rmqha.ha.events import Role
from tests.broker.remap_story import MOVES, RemapStory
from tests.broker.replicas import CLIENT, NAME_SERVER

OPERATOR = "10.0.2.2"
SHORT_MS, LONG_MS, LAG_MS = 600, 3_000, 300
CALLS_MAX = 8
"""Within the patience of everybody, and beyond the heartbeat timeout and the lease."""
PERIODS = {
    "controllerHeartBeatTimeoutMills": 2_000,
    "haMaxTimeSlaveNotCatchup": 1_500,
    "slaveTimeout": 1_000,
}
JAVA_RULE = {"allAckInSyncStateSet": "false", "inSyncReplicas": 1}
ROLES = (("broker-a", "broker-b"), ("broker-b", "broker-a"), ("broker-a", "broker-b"))
"""Which set loses queues and which one gets them, for each of ``MOVES``."""
WAYS = ("both ways", "there", "back")
PARTITIONS = (
    "leaders",
    "operator and old leader",
    "operator and new leader",
    "operator and name server",
    "old leader and name server",
    "new leader and name server",
    "old leader and controllers",
    "new leader and controllers",
    "old leader and its slaves",
    "new leader and its slaves",
    "old leader and all others",
    "new leader and all others",
    "producers and old leader",
    "producers and new leader",
)


ANSWER_S = 0.1
"""An acknowledgement is on its way for no longer, nor is the news of a role that was taken up."""


class Stored(NamedTuple):
    """Where an acknowledged message was written, and when that was heard."""

    broker_name: str
    epoch: int
    physical_offset: int
    heard_s: float


class PartitionStory(RemapStory):
    """Remaps of an operator who sits at a host of his own."""

    def __init__(
        self, seed: int, controllers: Mapping[str, str] | None = None, **keys: object
    ) -> None:
        super().__init__(seed, **{**PERIODS, **keys})
        self.controller_keys = dict(controllers or {})
        self._pause_ms = 10
        producers = self._client_context
        self._operator = self._on(OPERATOR, self._make_client)
        self._operator_context, self._client_context = self._client_context, producers
        self.elected_s: dict[tuple[str, int], float] = {}
        self.stored: dict[tuple[int, int], Stored] = {}
        self._known: dict[int, BrokerReplica | None] = {}
        self._parted = 0

    # -- faults --------------------------------------------------------------------------------------

    def part(self, what: str, way: str, move: int, lasts_ms: int) -> None:
        """Nothing gets from some hosts to others, or back, for a while."""
        near, far = self._ends(what, *ROLES[move])
        if not near or not far:
            return
        self.counts[f"{what}, {way}"] += 1
        for one in near:
            for other in far:
                if way != "back":
                    self.net.cut(one, other)
                if way != "there":
                    self.net.cut(other, one)
        self._parted += 1
        self.loop.call_later(lasts_ms / 1000, self._heal)

    def _heal(self) -> None:
        self._parted -= 1
        if not self._parted:
            self.net.heal()

    def _ends(self, what: str, old: str, new: str) -> tuple[list[str], list[str]]:
        at = {"old": self._master_host(old), "new": self._master_host(new)}
        one, _, other = what.partition(" and ")
        if what == "leaders":
            return at["old"], at["new"]
        if one in ("operator", "producers"):
            near = [OPERATOR if one == "operator" else CLIENT]
            return near, [NAME_SERVER] if other == "name server" else at[other.split()[0]]
        near = at[one.split()[0]]
        slaves = [
            host for host in self.hosts_of[old if one[:3] == "old" else new] if host not in near
        ]
        brokers = [host for host in self.broker_hosts if host not in near]
        far = {
            "name server": [NAME_SERVER],
            "controllers": self.controller_hosts,
            "its slaves": slaves,
            "all others": [NAME_SERVER, *self.controller_hosts, *brokers],
        }
        return near, far[other]

    def _master_host(self, name: str) -> list[str]:
        master = self.master_of(name)
        return [] if master is None else [self.host_of(master)]

    def kill_when_held(self, name: str) -> None:
        """End a set's master as soon as its slaves hold all that it has."""
        hosts = [host for host in self.hosts_of[name] if host in self.replicas]
        ends = {self.replicas[host].store.max_offset for host in hosts}
        if self.master_of(name) is None:
            return
        if hosts == self.hosts_of[name] and len(ends) == 1:
            self.counts["masters killed whose slaves had all"] += 1
            self.kill_master(name)
        else:
            self.loop.call_later(0.001, self.kill_when_held, name)

    def kill_behind(self, name: str) -> None:
        """Cut a master off from its slaves, and end it a little later."""
        for host in self._master_host(name):
            self.counts["masters killed whose slaves lagged"] += 1
            for slave in self.hosts_of[name]:
                self.net.cut(host, slave)
            self._parted += 1
            self.loop.call_later(LAG_MS / 1000, self.kill_master, name)
            self.loop.call_later(LAG_MS / 1000, self._heal)

    # -- the story -----------------------------------------------------------------------------------

    def play(self, at_call: int, happens: Callable[[int], None]) -> None:
        """Three remaps, each with something that happens before one of its calls; and the proof."""
        self.boot_all()
        self.until(self.in_sync, "all in sync")
        self.create()
        self.counts.clear()
        self.start_producers()
        self.run_for(300)
        for move, brokers in enumerate(MOVES):
            call = 1 + (at_call - 1 + move) % CALLS_MAX
            self.remap_with(brokers, call, partial(happens, move))
            self.run_for(200)
            self.finish()
            self.until(lambda: not self._parted, "a whole network")
            self.run_for(300)
            if self.counts["masters killed whose slaves lagged"]:
                # What a set has lost may be that it leads a queue, or leads it no more.
                self.until(lambda: all(map(self.master_of, self.hosts_of)), "masters")
                self.finish()
        self.until(lambda: all(map(self.master_of, self.hosts_of)), "masters")
        self.run_for(300)
        self.stop_producers()
        self.prove()

    # -- producers -----------------------------------------------------------------------------------

    def _asked(self, queue: int, name: str) -> BrokerReplica | None:
        """Whoever took the last message, until that fails: a producer hears late of elections."""
        if queue not in self._known:
            self._known[queue] = self.master_of(name)
        return self._known[queue]

    async def _leader(self, queue: int) -> str | None:
        self._known.pop(queue, None)
        return await super()._leader(queue)

    # -- what may be lost ----------------------------------------------------------------------------

    def _took(self, queue: int, number: int, fields: Mapping[str, str]) -> None:
        super()._took(queue, number, fields)
        message_id = fields["msgId"]
        host = ".".join(str(int(message_id[at : at + 2], 16)) for at in range(0, 8, 2))
        epoch = max(epoch for one, role, epoch in self.roles if one == host and role is Role.MASTER)
        (name,) = [name for name, hosts in self.hosts_of.items() if host in hosts]
        at = Stored(name, epoch, int(message_id[16:], 16), self.loop.time())
        self.stored[(queue, number)] = at

    def _role_taken(self, host: str, role: Role, epoch: int) -> None:
        super()._role_taken(host, role, epoch)
        if role is Role.MASTER:
            name = self.replicas[host].config.broker_name
            self.elected_s[(name, epoch)] = self.loop.time()
            self.counts["masters elected"] += 1

    def _may_be_lost(self, queue: int, number: int) -> bool:
        """By Java's rule: when its master was replaced, the successor's log ended before it.

        What was acknowledged later stays: the write lease was over, so it was not told at all.
        """
        if self.keys.get("inSyncReplicas") != 1:
            return False
        at = self.stored[(queue, number)]
        master = self.master_of(at.broker_name)
        assert master is not None
        assert master.ha_core is not None
        lost = any(
            one.epoch > at.epoch
            and one.start <= at.physical_offset
            and at.heard_s <= self.elected_s[(at.broker_name, one.epoch)] + ANSWER_S
            for one in master.ha_core.ha.epochs.entries
        )
        self.counts["acknowledged and lost"] += lost
        return lost
