"""Stories of replicas whose services are used all along: sets of two to five, learners among them.

The faults are those of ``replica_swarm``. What the services have promised must have come when all is
mended (``verify/services.py``).
"""

from __future__ import annotations

import asyncio
import contextvars
import random

from rmqha.base.errors import ConnectFailed
from rmqha.base.ids import ConnectionId
from rmqha.base.invariants import invariant
from rmqha.broker.aio.replica import BrokerReplica
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.settings import RemotingSettings
from rmqha.sim.clock import SimClock
from rmqha.sim.loop import HOST
from rmqha.sim.replica_cluster import ASKED, NOT_ASKED, ReplicaCluster, records_in_log, snapshot
from rmqha.sim.replica_options import NAME, PORT, ReplicaOptions
from rmqha.sim.replica_swarm import ReplicaSwarm
from rmqha.sim.service_lives import (
    LEVELS,
    TIMER_PRECISION_MS,
    Process,
    ServiceLives,
)
from rmqha.sim.service_reads import PRODUCERS, first_stored, stored_in
from rmqha.sim.service_reads import SERVED as SERVED_TOPIC
from rmqha.sim.story import Outcome, tell
from rmqha.verify.deliveries import check_once

TRANSACTIONS = "10.0.2.2"
LOOK_S = 0.1
CONNECT_MS = 500
HELD_SHARE = 0.25
MARKED_SHARE = 0.4
"""Longer records change where files end and what seeds tell: the others are as they were."""
HELD_AFTER_S = 0.2, 1.0, 3.0
HELD_S = 0.05, 0.4, 3.0
LOCK_S = 5.0
LATE_MS = 3_000
"""In peace: a half message is asked about every 400 ms, and services look every 100 ms. In honest stories
the last message came within 0.41 s in the worst of twelve."""
BEAT_S, SILENCE_S = 0.5, 2.0
"""A producer shows itself so often, and takes a master that says nothing for so long for another."""

SERVED = (
    "delayed message acknowledged", "timer acknowledged", "half message left open",
    "half message asked about", "transaction committed", "transaction rolled back",
    "message popped", "pop acknowledged", "invisible time changed", "queue locked",
    "messages read in order", "services checked",
)  # fmt: skip
"""What is to happen in every batch of stories."""

SERVICE_SETS = (
    "set of 2", "set of 3", "set of 4", "set of 5", "learners", "minInSyncReplicas of 2",
    "set that waits for two", "set with Java's rule", "watched set", "mastership_handed_over",
    "acknowledged and lost by Java's rule", "holders counted", "learners looked for",
    "fault: stalled master", "dispatcher held back", "popped message consumed", ASKED, NOT_ASKED,
    "pop judged for visibility", "changed time known", "delivery judged",
    "delivered again by a later reign", "messages counted", "messages with key and tag",
)  # fmt: skip
"""And what kinds of sets it is to happen in, and to them."""


class ServiceCluster(ReplicaCluster):
    """A broker set with clients of all services.

    Attributes:
        services: the clients.
        marked: their messages have keys, tags and properties.
    """

    group_share = 0.0

    def __init__(self, seed: int, options: ReplicaOptions) -> None:
        super().__init__(seed, options)
        self.marked = random.Random(f"marks in {seed}").random() < MARKED_SHARE
        self.counts["messages with key and tag"] += self.marked
        dice = random.Random(f"services of {seed}")  # of their own: other stories stay as they are
        self.services = ServiceLives(
            NAME, self._ask_process, self.loop.time, dice, lambda what: self.counts.update([what]),
            reigns=lambda: self.reigns, marked=self.marked,
        )  # fmt: skip
        self.attempts.repeated.add(SERVED_TOPIC)
        self._held_dice = random.Random(f"dispatchers of {seed}")
        self._asked_context = contextvars.copy_context()
        self._asked_context.run(HOST.set, TRANSACTIONS)
        self._asked_network = self.net.boot(TRANSACTIONS, self._asked_context)
        self._asked: Connection | None = None
        self._asked_at: Process | None = None
        self._heard_s = self._beaten_s = 0.0

    def _properties(self, host: str) -> dict[str, str]:
        return {
            **super()._properties(host),
            "messageDelayLevel": LEVELS,
            "timerPrecisionMs": str(TIMER_PRECISION_MS),
            "timerFlushIntervalMs": "300",
            "flushDelayOffsetInterval": "300",
            "transactionTimeOut": "400",
            "transactionCheckInterval": "400",
            "transactionCheckMax": "1000",
        }

    def start_producers(self) -> None:
        """Send until ``producing`` is taken back."""
        super().start_producers()
        for name, work in self.services.tasks(lambda: not self.producing):
            task = self.loop.create_task(
                self._alive(work), name=name, context=self._producer_context.copy()
            )
            self._living.append(task)
        if self.set.held_dispatcher:
            self._living.append(self.loop.create_task(self._hold_dispatchers(), name="held"))
        self.loop.create_task(
            self._be_asked(), name="transaction checks", context=self._asked_context.copy()
        )

    async def _hold_dispatchers(self) -> None:
        """Queues that lag behind the log, as on a disk without room for their files, or while old ones
        are deleted, which holds the same lock."""
        dice = self._held_dice
        while self.producing:
            await asyncio.sleep(dice.choice(HELD_AFTER_S))
            masters = self.master_hosts()
            if not masters:
                continue
            store = self.replicas[masters[0]].store
            lock = store.dispatcher.lock
            try:
                async with asyncio.timeout(LOCK_S):
                    await lock.acquire()
            except TimeoutError:  # of a process that was killed while it held the lock
                continue
            await asyncio.sleep(dice.choice(HELD_S))
            self.counts["dispatcher held back"] += store.dispatched_offset < store.confirm_offset
            lock.release()

    def _process(self) -> Process | None:
        masters = self.master_hosts()
        return (masters[0], self.boots[masters[0]]) if masters else None

    async def _ask_process(
        self, command: RemotingCommand
    ) -> tuple[RemotingCommand | None, Process]:
        process = self._process()
        if process is None:
            return None, ("", 0)
        answer, _ = await self._ask_master(command)
        return (answer if self._process() == process else None), process

    def finish_services(self, master: str) -> None:
        """Let all come that was promised; raises InvariantBroken as ``ServiceLives.finish``."""
        reigning = self.replicas[master]
        work = self.services.finish(
            lambda: first_stored(reigning), lambda: reigning.services.transactions.waiting,
            LATE_MS,
        )  # fmt: skip
        task = self.loop.create_task(work, context=self._producer_context.copy())
        while not task.done():
            self.run_for(LOOK_S * 1000)
        task.result()
        self._check_deliveries(reigning)

    def _check_deliveries(self, master: BrokerReplica) -> None:
        """All that consumers can read is as it was sent, and once of each reign.

        Raises:
            InvariantBroken: see ``verify/deliveries.py``.
        """
        starts = [*self.reign_starts]
        if master.ha_core is not None:
            starts += [entry.start for entry in master.ha_core.ha.epochs.entries]
        found = list(stored_in(master, SERVED_TOPIC))
        for one in found:
            one.check(marked=self.marked)
        firsts: dict[bytes, int] = {}
        for record in records_in_log(snapshot(NAME, master)):
            firsts.setdefault(bytes(record.body), record.physical_offset)
        known = check_once((one.delivered(firsts) for one in found), starts)
        self.counts["delivery judged"] += known
        self.counts["delivered again by a later reign"] += len(found) - known

    # -- check backs ---------------------------------------------------------------------------------

    async def _be_asked(self) -> None:
        """Be a producer of the master, whoever that is, and answer what it asks."""
        while not self.loop.errors:
            await asyncio.sleep(LOOK_S)
            process, now_s = self._process(), self.loop.time()
            known = self._asked is not None and not self._asked.is_closing
            known = known and self._asked_at == process and now_s - self._heard_s < SILENCE_S
            if process is not None and not known:
                await self._introduce(process)
            elif known and now_s - self._beaten_s > BEAT_S:
                self._beat()

    async def _introduce(self, process: Process) -> None:
        if self._asked is not None:
            self._asked.close()
        connection = self._asked = Connection(
            ConnectionId(next(self.ids)), SimClock(self.loop), RemotingSettings(),
            on_commands=self._heard, on_closed=lambda one, error: None,
        )  # fmt: skip
        self._asked_at = process
        try:
            await self._asked_network.connect(
                process[0], PORT, lambda: connection, timeout_ms=CONNECT_MS
            )
        except ConnectFailed:
            connection.close()
            self._asked = None
            return
        self._heard_s = self.loop.time()
        self._beat()

    def _beat(self) -> None:
        self._beaten_s = self.loop.time()
        body = b'{"clientID":"p","producerDataSet":[{"groupName":"%s"}],"consumerDataSet":[]}'
        if self._asked is not None:
            self._asked.send(
                RemotingCommand(RequestCode.HEART_BEAT, 1, body=body % PRODUCERS.encode())
            )

    def _heard(self, connection: Connection, commands: list[RemotingCommand]) -> None:
        if connection is self._asked:
            self._heard_s = self.loop.time()
        for command in commands:
            if command.code == RequestCode.CHECK_TRANSACTION_STATE and not command.is_response:
                self.loop.create_task(
                    self._alive(self.services.answer_check(command)), name="check answered",
                    context=self._producer_context.copy(),
                )  # fmt: skip


class ServiceSwarm(ReplicaSwarm):
    """Plays the same faults, and looks at what the services have promised."""

    def __init__(self, cluster: ServiceCluster, rng: random.Random) -> None:
        super().__init__(cluster, rng)
        self.served = cluster

    def finish(self) -> int:
        """As without services; then everything that they have promised comes.

        Raises:
            InvariantBroken: see ``verify/services.py``.
        """
        waited_ms = super().finish()
        cluster = self.served
        (host,) = cluster.master_hosts()
        lost = cluster.services.forget_lost(cluster.replicas[host])
        cluster.counts["acknowledged and lost by Java's rule"] += lost
        invariant(
            lost == 0 or not cluster.set.survives, "an acknowledged message is gone", lost=lost
        )
        cluster.finish_services(host)
        return waited_ms


def service_options(seed: int) -> ReplicaOptions:
    """The kind of set of a seed."""
    dice = random.Random(f"set of {seed}")
    replicas = dice.choice((2, 3, 3, 4, 5))
    learners = dice.choice((0, 0, 1)) if replicas > 2 else 0
    # Of more than two, inSyncReplicas=2 promises nothing: a third may be elected alone.
    rules = ("all", "all", "java", "two") if replicas - learners == 2 else ("all", "all", "java")
    rule = dice.choice(rules)
    return ReplicaOptions(
        replicas=replicas,
        sync_flush=dice.random() < 0.5,
        all_ack=rule == "all",
        in_sync=1 if rule == "java" else 2,
        learners=learners,
        min_in_sync=dice.choice((1, 1, 2)) if rule == "all" else 1,
        producers=1,
        topics=1,
        watched=dice.random() < 0.5,
        held_dispatcher=random.Random(f"dispatchers in {seed}").random() < HELD_SHARE,
    )


def run_service_seed(seed: int, options: ReplicaOptions | None = None) -> Outcome:
    """Play one seed of services.

    Raises:
        InvariantBroken: as ``run_replica_seed``.
    """
    kind = options or service_options(seed)
    cluster = ServiceCluster(seed, kind)
    cluster.counts[f"set of {kind.replicas}"] += 1
    cluster.counts["learners"] += kind.learners
    cluster.counts["minInSyncReplicas of 2"] += kind.min_in_sync > 1
    cluster.counts["set that waits for two"] += not kind.all_ack and kind.survives
    cluster.counts["set with Java's rule"] += not kind.survives
    cluster.counts["watched set"] += kind.watched
    swarm = ServiceSwarm(cluster, random.Random(seed))
    return tell(seed, swarm, lambda: (cluster.reigns, len(cluster.acked)))
