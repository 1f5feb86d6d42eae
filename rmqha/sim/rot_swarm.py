"""Stories of bits that flip in brokers' commit logs, while producers send and a consumer pulls.

A bit flips at one byte of the confirmed log of one replica, or of several: as many as the set can
bear, so that one whole copy is left of what a CRC covers, and two that agree of what none covers. Who
has such a bit is not killed: recovery refuses a log that is damaged below what was durable.
"""

from __future__ import annotations

import asyncio
import random

from rmqha.base.errors import InvariantBroken, RmqhaError
from rmqha.base.invariants import invariant
from rmqha.ha.events import Role
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.sim.faults import WEATHERS, kinds_of
from rmqha.sim.replica_cluster import BODY_AT, ReplicaCluster, snapshot
from rmqha.sim.replica_options import PORT, QUEUES, TOPIC, ReplicaOptions
from rmqha.sim.story import Outcome, Story, plain, tell
from rmqha.store.record import check_record

FAULT_PHASE_MS = 12_000.0
SCRUB_BYTES_PER_SECOND = 256 << 10
MENDED_MS_MAX = 120_000
STEP_MS = 500
PLACE_AT, PLACE_END = 28, 36
HEAD = 20
ROT_WANTED = (
    "bit flipped on 1 of 3", "bit flipped on 2 of 3", "bit flipped on 1 of 2",
    "bit flipped outside of the CRC", "bit mended", "record served",
)  # fmt: skip
"""What a batch must hold."""
"""Where the queue's offset is in a record: no CRC covers it."""


class RotCluster(ReplicaCluster):
    """A set in whose logs bits flip.

    Attributes:
        rotten: what the byte at (host, offset) is as long as nobody has mended it.
        records: which records they are in, by the same.
    """

    def __init__(self, seed: int, options: ReplicaOptions) -> None:
        super().__init__(seed, options)
        self.rotten: dict[tuple[str, int], int] = {}
        self.records: dict[tuple[str, int], int] = {}

    def sweep(self) -> None:
        """Forget what is mended."""
        for key, value in list(self.rotten.items()):
            host, at = key
            replica = self.replicas.get(host)
            if replica is not None and replica.store.view(at, 1)[0] != value:
                del self.rotten[key], self.records[key]
                self.counts["bit mended"] += 1

    def observe(self) -> None:
        """Logs are one history; a bit that has flipped is none, and is looked for by the scrub."""
        self.sweep()
        if not self.rotten:
            super().observe()

    def _role_taken(self, host: str, role: Role, epoch: int) -> None:
        if any(one == host for one, _ in self.rotten):
            self.counts["role taken with a flipped bit"] += 1
            self.trace.say(host, f"is {role.value}", epoch=epoch)
            self.reigns += role is Role.MASTER
        else:
            super()._role_taken(host, role, epoch)

    # -- a consumer --------------------------------------------------------------------------------

    def start_consumer(self) -> None:
        """Pull from whoever is master until nobody sends any more."""
        self.loop.create_task(
            self._consume(), name="consumer", context=self._producer_context.copy()
        )

    async def _consume(self) -> None:
        dice = random.Random(self.rng.random())
        while self.producing:
            await asyncio.sleep(0.05)
            for host in self.master_hosts():
                try:
                    await self._pull(host, dice.randrange(QUEUES), dice.random())
                except InvariantBroken as error:
                    self.loop.errors.append(error)
                    return

    async def _pull(self, host: str, queue: int, share: float) -> None:
        replica = self.replicas[host]
        offset = int(replica.store.reader.max_offset(TOPIC, queue) * share)
        fields = {
            "consumerGroup": "G", "topic": TOPIC, "queueId": str(queue),
            "queueOffset": str(offset), "maxMsgNums": "8", "sysFlag": "4", "commitOffset": "0",
            "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
            "expressionType": "TAG",
        }  # fmt: skip
        command = RemotingCommand(RequestCode.PULL_MESSAGE, ext_fields=fields)
        try:
            answer = await self._client.invoke(f"{host}:{PORT}", command)
        except RmqhaError:
            return
        if answer.code == ResponseCode.SUCCESS:
            self._check_served(bytes(answer.body))
        elif answer.remark is not None and "is damaged on this broker" in answer.remark:
            self.counts["pull refused for damage"] += 1

    def _check_served(self, body: bytes) -> None:
        at = 0
        while at < len(body):
            offset = int.from_bytes(body[at + PLACE_AT : at + PLACE_END])
            head = check_record(body, at, len(body), offset, check_crc=True)
            invariant(head.size > 0, "a damaged record was served", reason=head.reason)
            at += head.size
            self.counts["record served"] += 1


class RotSwarm(Story):
    """Flips bits, and cuts and kills who has none."""

    phase_ms = FAULT_PHASE_MS

    def __init__(self, cluster: RotCluster, rng: random.Random) -> None:
        super().__init__(cluster, rng)
        self.rot = cluster
        found = kinds_of(self)
        self.kinds = {
            "flip body bit": plain(lambda: self._flip(in_head=False)),
            "flip head bit": plain(lambda: self._flip(in_head=True)),
            "kill whole broker": plain(self._kill),
            **{name: found[name] for name in ("kill controller", "cut off host", "restart",
                                              "reset connections", "heal")},
        }  # fmt: skip
        self.weights = dict.fromkeys(self.kinds, 1.0)
        self.weights |= {"flip body bit": 8.0, "restart": 3.0, "heal": 3.0}
        self.weights["flip head bit"] = 3.0 if cluster.set.replicas > 2 else 0.0

    def begin(self) -> None:
        """Start everybody, producers and a consumer."""
        self.cluster.net.weather = self.rng.choice(WEATHERS[:4])
        super().begin()
        self.rot.start_producers()
        self.rot.start_consumer()

    def _flip(self, *, in_head: bool) -> bool:
        """One record rots on some replicas; every replica holds it."""
        cluster = self.rot
        cluster.sweep()
        hosts = self.alive(cluster.broker_hosts)
        if len(hosts) < cluster.set.replicas or any(
            cluster.replicas[host].role is None for host in hosts
        ):
            return False
        record = self._record(hosts)
        if record is None or record in cluster.records.values():
            return False
        most = 1 if in_head else cluster.set.replicas - 1
        chosen = self.rng.sample(hosts, self.rng.randint(1, most))
        for host in chosen:
            at = record + (HEAD + self.rng.randrange(8) if in_head else BODY_AT)
            self._turn(host, at, record)
        kind = "outside of the CRC" if in_head else f"on {len(chosen)} of {len(hosts)}"
        cluster.counts[f"bit flipped {kind}"] += 1
        return True

    def _record(self, hosts: list[str]) -> int | None:
        """Where some message is that all have confirmed."""
        stores = [self.rot.replicas[host].store for host in hosts]
        queue = self.rng.randrange(QUEUES)
        end = stores[0].reader.max_offset(TOPIC, queue)
        if not end:
            return None
        record = stores[0].pulling.place(TOPIC, queue, self.rng.randrange(end))
        limit = min(store.limit() for store in stores)
        if record is None or record + 1024 > limit:
            return None
        return record

    def _turn(self, host: str, at: int, record: int) -> None:
        cluster = self.rot
        buffer, start = cluster.replicas[host].store.commit_log.file_of(at)
        buffer[at - start] ^= 1 << self.rng.randrange(8)
        cluster.rotten[host, at] = buffer[at - start]
        cluster.records[host, at] = record
        cluster.trace.say("sim", "flips a bit", host=host, at=at)

    def _kill(self) -> bool:
        cluster = self.rot
        cluster.sweep()
        rotten = {host for host, _ in cluster.rotten}
        whole = [host for host in self.alive(cluster.broker_hosts) if host not in rotten]
        if not whole:
            return False
        cluster.kill(self.rng.choice(whole))
        return True

    def finish(self) -> int:
        """Mend network and processes; every bit is mended then, and all logs are the same.

        Raises:
            InvariantBroken: a bit stays as it is, something is lost, or logs differ.
        """
        cluster = self.rot
        waited_ms = self.make_peace()
        cluster.producing = False
        waited_ms += self.make_peace()
        mended_ms = 0
        while cluster.rotten:
            cluster.run_for(STEP_MS)
            cluster.sweep()
            mended_ms += STEP_MS
            invariant(
                mended_ms <= MENDED_MS_MAX, "a bit that flipped was not mended",
                where=sorted(cluster.rotten),
            )  # fmt: skip
        cluster.observe()
        (host,) = cluster.master_hosts()
        master = snapshot(host, cluster.replicas[host])
        cluster.durability.check(master)
        cluster.check_logs(master)
        for other, replica in sorted(cluster.replicas.items()):
            invariant(not replica.store.mending.damaged, "damage is known that is none", host=other)
        lost = list(cluster.missing())
        invariant(not lost, "consumers do not get what was acknowledged", lost=lost[:3])
        invariant(len(cluster.acked) > 0, "nothing was ever acknowledged")
        return waited_ms


def run_rot_seed(seed: int) -> Outcome:
    """Play one seed of bits that flip.

    Raises:
        InvariantBroken: damage was served, stayed, or something was lost.
    """
    rng = random.Random(seed)
    kind = ReplicaOptions(
        replicas=rng.choice((3, 3, 2)), topics=0, scrub_bytes_per_second=SCRUB_BYTES_PER_SECOND
    )
    cluster = RotCluster(seed, kind)
    return tell(seed, RotSwarm(cluster, rng), lambda: (cluster.reigns, len(cluster.acked)))
