"""Real replicas of one broker set beside the controllers: stores, replication, acknowledged puts.

Nothing here is scripted but the producers: the hosts run ``BrokerReplica`` and
``ControllerService`` as processes do, on simulated disks, clocks and networks. The properties of
``verify`` look at them from outside.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

from msgspec import Struct

from rmqha.base.errors import DiskFailed, InvariantBroken, RmqhaError
from rmqha.base.invariants import invariant
from rmqha.broker.aio.replica import BrokerReplica
from rmqha.broker.common.settings import load_config
from rmqha.controller.aio.service import ControllerService
from rmqha.ha.events import Role
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.settings import RemotingSettings
from rmqha.sim.calm import Calm
from rmqha.sim.clock import SimClock
from rmqha.sim.cluster import SimCluster, SimOptions
from rmqha.sim.disk import SimDisk
from rmqha.sim.group_life import GROUP, GroupLife
from rmqha.sim.group_life import QUEUE as GROUP_QUEUE
from rmqha.sim.loop import HOST
from rmqha.sim.replica_options import (
    NAME,
    PORT,
    QUEUES,
    TOPIC,
    ReplicaOptions,
    begun_store,
    properties_of,
    send_fields,
)
from rmqha.sim.stalls import SimWatch
from rmqha.sim.topic_lives import TopicLife, tables_of
from rmqha.sim.topic_offsets import Reigning, stored_offsets
from rmqha.store.aio.message_store import MessageStore
from rmqha.store.record import Record, check_record, decode
from rmqha.verify.client_history import Ack, Consume, End, Fail, HistoryWriter, Send
from rmqha.verify.copies import Attempts
from rmqha.verify.durability import DurabilityProperty
from rmqha.verify.leases import Leased, LeaseProperty
from rmqha.verify.logs import (
    ConfirmProperty,
    LogSnapshot,
    check_begin,
    check_confirmed,
    check_converged,
    check_epochs,
    check_one_history,
)
from rmqha.verify.offsets import Process, check_copied
from rmqha.verify.topic_lives import check_same

PRODUCER = "10.0.2.1"
BODY_AT = 88
"""Where a record's body begins, behind IPv4 hosts."""
WATCH_MS = 200
SEND_TIMEOUT_MS = 1500
UNPROBED_SHARE = 0.5
UNFLUSHED = "power cut of a broker that waits for no disk"
ASKED, NOT_ASKED = "set whose silent master is asked", "set whose silent master is not asked"
GIB = 1 << 30
PLACES = {"2 GiB": 2 * GIB, "4 GiB": 4 * GIB}
"""Where 31 and 32 bits end."""
SEND_CODE = int(RequestCode.SEND_MESSAGE_V2)


class Acked(Struct, frozen=True):
    """An acknowledged message and where the answer said that it is."""

    body: bytes
    queue_id: int
    queue_offset: int


class ReplicaCluster(SimCluster):
    """Hosts ``c0 c1 c2`` with controllers, ``10.0.0.1 ..`` with the replicas of one set.

    Args:
        seed: decides everything.
        options: the kind of set.
        history: takes what producers do, and what a consumer reads in the end.
    """

    group_share = 0.25
    """Of stories with a group that stays and commits offsets."""

    def __init__(
        self,
        seed: int,
        options: ReplicaOptions | None = None,
        history: HistoryWriter | None = None,
    ) -> None:
        super().__init__(seed, SimOptions(broker_sets=0))
        self.seed = seed
        self.set = options or ReplicaOptions()
        # Half of the stories have controllers that wait for the timeout, as an operator may want it.
        if random.Random(f"probes {seed}").random() < UNPROBED_SHARE:
            self.controller_keys["activeProbeTimeoutMillis"] = "0"
            self.counts[NOT_ASKED] += 1
        else:
            self.counts[ASKED] += 1
        self.broker_hosts = [f"10.0.0.{n}" for n in range(1, self.set.replicas + 1)]
        for host in self.broker_hosts:
            self.disks[host] = SimDisk(random.Random(self.rng.random()))
            for file in begun_store(self.set.log) if self.set.log.begin else ():
                self.disks[host].place(*file)
        self.replicas: dict[str, BrokerReplica] = {}
        self.memories = dict.fromkeys(self.broker_hosts, 0)
        self.boots = dict.fromkeys(self.broker_hosts, 0)
        self._ended_at = dict.fromkeys(self.broker_hosts, 0)
        self._watches: dict[str, SimWatch] = {}
        self.durability = DurabilityProperty()
        self.confirm = ConfirmProperty()
        self.acked: list[Acked] = []
        self._history = history
        self.reigns = 0
        self.reign_starts: list[int] = []
        self.calm = Calm(self)
        self.attempts = Attempts()
        self.leases = LeaseProperty()
        self.producing = False
        self.quiet_until_s = 0.0
        self._number = 0
        self.topic_lives: list[TopicLife] = []
        self.group_lives: list[GroupLife] = []
        self._living: list[asyncio.Task[None]] = []
        context = contextvars.copy_context()
        context.run(HOST.set, PRODUCER)
        self._producer_context = context
        self._client = context.run(self._make_client, self.net.boot(PRODUCER, context))
        self._watch = self.loop.create_task(self._observe(), name="watch")

    def _make_client(self, network: Any) -> RemotingClient:
        settings = RemotingSettings(invoke_timeout_ms=SEND_TIMEOUT_MS)
        return RemotingClient(network, SimClock(self.loop), settings, connection_ids=self.ids)

    # -- hosts -----------------------------------------------------------------------------

    def _broker(self, host: str, ports: dict[str, Any]) -> BrokerReplica:  # type: ignore[override]  # a replica in an agent's place
        self.boots[host] += 1
        self.calm.disturbed()
        watch = SimWatch(self, host, ports["clock"]) if self.set.watched else None
        if watch is not None:
            self._watches[host] = watch
        replica = self._maker(host)(
            load_config(self._properties(host), host_name=host, local_address=host, user_home="/h"),
            boot_id=f"memory-{self.memories[host]}",
            watch=watch,
            on_fatal=lambda error: self._replica_failed(host, error),
            on_role=lambda role, epoch: self._role_taken(host, role, epoch),
            **ports,
        )
        self.replicas[host] = replica
        self._watch_confirm(host, replica)
        return replica

    def _maker(self, host: str) -> Callable[..., BrokerReplica]:
        """What makes the replica of a host."""
        return BrokerReplica

    def _watch_confirm(self, host: str, replica: BrokerReplica) -> None:
        """Look at every single move: a moment later the set may be another one."""
        move = replica.store.set_confirm_offset

        def moved(offset: int) -> None:
            move(offset)
            if replica.ha_core is not None:
                self._observe_confirm(snapshot(host, replica), replica)

        setattr(replica.store, "set_confirm_offset", moved)  # noqa: B010 - methods cannot be assigned

    def _properties(self, host: str) -> dict[str, str]:
        return properties_of(
            self.set, host, self.controller_hosts, is_learner=host in self.learner_hosts
        )

    def _replica_failed(self, host: str, error: BaseException) -> None:
        self.trace.say(host, "stops itself", reason=repr(error))
        if not isinstance(error, DiskFailed) or "simulated" not in str(error):
            self.loop.errors.append(error)
        self.loop.call_soon(self.kill, host)

    def kill(self, host: str, *, power: bool = False) -> None:
        """End a host's process at once; with ``power`` its memory goes too."""
        self.calm.disturbed()
        replica = self.replicas.pop(host, None)
        if replica is not None:
            self._ended_at[host] = self._end_of(host, replica)
        if host in self._watches:
            self._watches.pop(host).close()
        if power and host in self.memories and host in self.clocks:
            self.memories[host] += 1
            self.counts[UNFLUSHED] += not self.set.sync_flush
        super().kill(host, power=power)

    @property
    def learner_hosts(self) -> list[str]:
        """Those that never join the SyncStateSet."""
        return self.broker_hosts[self.set.replicas - self.set.learners :]

    def _end_of(self, host: str, replica: BrokerReplica) -> int:
        """The end of a replica's log; of its life before as long as it is still being opened."""
        return self._ended_at[host] if replica.ha_core is None else replica.store.max_offset

    def _logged(self, host: str, event: str, facts: dict[str, object]) -> None:
        super()._logged(host, event, facts)
        if event == "log_truncated" and self.set.log.file_bytes == GIB:
            self.counts["log cut in a file of 1 GiB"] += 1

    def count_offsets(self, store: MessageStore) -> None:
        """Count what the log of the set has passed, for coverage."""
        for name, place in PLACES.items():
            if store.min_offset < place < store.max_offset:
                self.counts[f"log passed {name}"] += 1
        if self.set.log.file_bytes == GIB:
            self.counts["log in files of 1 GiB"] += 1

    def master_hosts(self) -> list[str]:
        """Hosts whose replica serves as a master."""
        return [host for host, one in sorted(self.replicas.items()) if one.role is Role.MASTER]

    def member_hosts(self) -> frozenset[str]:
        """Hosts of the SyncStateSet, as a controller that leads has it; none where nobody leads."""
        leader = self.leader()
        one = self.controllers[leader].machine.state.sets.get(NAME) if leader else None
        if one is None:
            return frozenset()
        return frozenset(
            replica.address.partition(":")[0]
            for broker_id, replica in one.replicas.items()
            if broker_id in one.sync_state_set
        )

    def missed_hosts(self) -> list[str]:
        """Hosts of replicas that are down, and that no controller takes for alive."""
        alive = {
            identity[2]
            for host, service in self.controllers.items()
            for identity in service.machine.liveness.living(self.clocks[host].now_ms())
        }
        known = {
            replica.address.partition(":")[0]: broker_id
            for service in self.controllers.values()
            for one in service.machine.state.sets.values()
            for broker_id, replica in one.replicas.items()
        }
        return [
            host
            for host in self.broker_hosts
            if host in known and known[host] not in alive and host not in self.clocks
        ]

    def close(self) -> None:
        """Stop everything and free the loop."""
        self.producing = False
        self._watch.cancel()
        super().close()

    # -- producers ---------------------------------------------------------------------------

    def start_producers(self) -> None:
        """Send until ``producing`` is taken back."""
        self.producing = True
        for number in range(self.set.topics):
            dice = random.Random(self.rng.random())
            life = TopicLife(
                f"Life{number}", self._ask_master, dice, self.counts, self.reigning, self.loop.time
            )
            self.topic_lives.append(life)
            task = self.loop.create_task(
                self._alive(life.run(lambda: not self.producing)), name=life.name,
                context=self._producer_context.copy(),
            )  # fmt: skip
            self._living.append(task)
        if random.Random(f"groups {self.seed}").random() < self.group_share and self.set.survives:
            self._start_group()
        for number in range(self.set.producers):
            self.loop.create_task(
                self._produce(), name=f"producer {number}", context=self._producer_context.copy()
            )

    async def _alive(self, work: Awaitable[None]) -> None:
        """A task's error would wait for somebody to ask for it."""
        try:
            await work
        except InvariantBroken as error:
            self.loop.errors.append(error)

    def _start_group(self) -> None:
        """A group that stays, with dice of its own: other stories stay as they are."""

        def end() -> int:
            return max(
                (one.queue_offset + 1 for one in self.acked if one.queue_id == GROUP_QUEUE),
                default=0,
            )

        dice = random.Random(f"commits of {self.seed}")
        life = GroupLife(
            TOPIC, self._ask_master, dice, self.counts, self.reigning, end, self.loop.time
        )
        self.group_lives.append(life)
        work = self._alive(life.run(lambda: not self.producing))
        self._living.append(
            self.loop.create_task(work, name="group", context=self._producer_context.copy())
        )

    def reigning(self) -> Reigning | None:
        """Whom :meth:`_ask_master` asks."""
        masters = self.master_hosts()
        if not masters:
            return None
        process = self._process_of(masters[0])
        return Reigning((process, self.reigns), process, self.replicas[masters[0]])

    def _process_of(self, host: str) -> Process:
        return host, self.boots[host]

    async def _ask_master(
        self, command: RemotingCommand
    ) -> tuple[RemotingCommand | None, Callable[[], bool]]:
        """What an administrator hears of somebody who says that it is the master."""
        masters = self.master_hosts()
        if not masters:
            return None, lambda: False
        host, boot = masters[0], self.boots[masters[0]]

        def may_arrive() -> bool:
            return host in self.replicas and self.boots[host] == boot

        if command.code == SEND_CODE:
            self.attempts.sent((command.ext_fields or {})["b"], bytes(command.body))
        try:
            return await self._client.invoke(f"{host}:{PORT}", command), may_arrive
        except RmqhaError:
            return None, may_arrive

    async def _produce(self) -> None:
        dice = random.Random(self.rng.random())
        while self.producing:
            await asyncio.sleep(dice.choice((0.002, 0.01, 0.05)))
            masters = self.master_hosts()
            if masters and self.loop.time() >= self.quiet_until_s:
                # Of two that both think so, one is wrong: it must not acknowledge.
                try:
                    await self._send_told(dice.choice(masters), dice.randint(1, 900))
                except InvariantBroken as error:
                    self.loop.errors.append(error)
                    return

    async def _send_told(self, host: str, size: int) -> None:
        self._number += 1
        number, start_ms = self._number, self._now_ms()
        if self._history is None:
            await self._send(host, number, size)
            return
        said = {"topic": TOPIC, "key": str(number), "start_ms": start_ms}
        self._history.add(Send, PRODUCER, **said)
        acked = await self._send(host, number, size)
        said["end_ms"] = self._now_ms()
        if acked is None:
            self._history.add(Fail, PRODUCER, **said)
        else:
            place = {"queue": acked.queue_id, "offset": acked.queue_offset}
            self._history.add(Ack, PRODUCER, broker=NAME, **said, **place)

    def _now_ms(self) -> int:
        return int(self.loop.time() * 1000)

    def note_readings(self) -> None:
        """A consumer reads everything, once nobody sends any more, for the history."""
        if self._history is None:
            return
        (host,) = self.master_hosts()
        reader, end_ms = self.replicas[host].store.reader, self._now_ms()
        for queue in range(QUEUES):
            place = {"topic": TOPIC, "broker": NAME, "queue": queue, "end_ms": end_ms}
            offset = max(reader.min_offset(TOPIC, queue), 0)
            while got := reader.get(TOPIC, queue, offset, count_max=1, bytes_max=4096).records:
                number, _, _ = bytes(got[0][BODY_AT:]).partition(b":")
                self._history.add(Consume, "reader", key=number.decode(), offset=offset, **place)
                offset += 1
            self._history.add(End, "reader", offset=offset, **place)

    async def _send(self, host: str, number: int, size: int) -> Acked | None:
        body = b"%d:" % number + b"x" * size
        command = RemotingCommand(SEND_CODE, ext_fields=send_fields(number), body=body)
        sent_s = self.loop.time()
        self.attempts.sent(TOPIC, body)
        try:
            answer = await self._client.invoke(f"{host}:{PORT}", command)
        except RmqhaError:
            return None
        if answer.code != ResponseCode.SUCCESS or answer.ext_fields is None:
            return None
        fields = answer.ext_fields
        offset = int(fields["msgId"][-16:], 16)
        acked = Acked(body, int(fields["queueId"]), int(fields["queueOffset"]))
        if self.set.lease:
            # A failover may lose what only the master had; an old master must add nothing to it.
            self.acked.append(acked)
            self.leases.acknowledged(host, sent_s, offset + BODY_AT, body, self._elected_log())
            return acked
        self.acked.append(acked)
        if self.set.survives:
            self.durability.put_ok(offset + BODY_AT, body)
            self._check_holders(offset)
        return acked

    def _check_holders(self, offset: int) -> None:
        """What was just acknowledged is where its rule says, be they up or down."""
        self._ended_at |= {h: self._end_of(h, one) for h, one in self.replicas.items()}
        members = set(self.broker_hosts) - set(self.learner_hosts)
        holders = [host for host in sorted(members) if self._ended_at[host] > offset]
        self.counts["holders counted"] += 1
        invariant(
            len(holders) >= self.set.holders, "fewer hold a message than its rule asks for",
            offset=offset, holders=holders, wanted=self.set.holders,
        )  # fmt: skip

    # -- properties ----------------------------------------------------------------------------

    def _observe_masters(self, host: str, service: ControllerService) -> None:
        super()._observe_masters(host, service)
        one = service.machine.state.sets.get(NAME)
        if one is not None and self.learner_hosts:
            self._check_learners(one.sync_state_set)
        if not self.set.lease or one is None or one.master_broker_id is None:
            return
        masters = [
            Leased(other, replica.replicas.place.master_epoch)
            for other, replica in sorted(self.replicas.items())
            if replica.role is Role.MASTER and replica.ha is not None and replica.ha.is_leased
        ]
        elected = self._host_of(one.master_broker_id)
        self.leases.elected(one.master_epoch, elected, self.loop.time(), masters)

    def _check_learners(self, sync_state_set: Iterable[int]) -> None:
        members = {self._host_of(one) for one in sync_state_set}
        learners = sorted(members.intersection(self.learner_hosts))
        invariant(not learners, "a learner is in the SyncStateSet", learners=learners)
        self.counts["learners looked for"] += 1

    def _host_of(self, broker_id: int) -> str:
        """The host of a broker id; empty while it is down."""
        found = [h for h, one in self.replicas.items() if one.replicas.broker_id == broker_id]
        return found[0] if found else ""

    def _elected_log(self) -> LogSnapshot | None:
        host = self.leases.master
        return snapshot(host, self.replicas[host]) if host in self.replicas else None

    def _role_taken(self, host: str, role: Role, epoch: int) -> None:
        self.trace.say(host, f"is {role.value}", epoch=epoch)
        self.calm.disturbed()
        replica = self.replicas.get(host)
        if role is Role.MASTER and replica is not None:
            self.reigns += 1
            self.reign_starts.append(replica.store.max_offset)
            if not self.set.survives:
                return
            self.durability.check(snapshot(host, replica))
            for life in self.topic_lives:
                life.check(host, replica)
            for one in self._committing:
                one.begins(self._process_of(host), replica)

    async def _observe(self) -> None:
        while not self.loop.errors:
            await asyncio.sleep(WATCH_MS / 1000)
            try:
                self.observe()
            except InvariantBroken as error:
                # A task's error would wait for somebody to ask for it.
                self.loop.errors.append(error)

    def observe(self) -> None:
        """Look at every replica that is not in the middle of a change.

        Raises:
            InvariantBroken: a property does not hold.
        """
        self.calm.look()
        for life in self._committing:
            life.offsets.calm(self.calm.since_s, map(self._process_of, self.replicas))
        seen = [
            snapshot(host, one)
            for host, one in sorted(self.replicas.items())
            if one.role is not None and one.ha_core is not None and one.ha_core.is_settled
        ]
        for one in seen:
            check_epochs(one)
        check_one_history(seen)
        if self._all_acknowledge:
            check_confirmed(seen)

    def _observe_confirm(self, seen: LogSnapshot, replica: BrokerReplica) -> None:
        core = replica.ha_core
        assert core is not None
        reign, acks = None, {}
        if replica.role is Role.MASTER:
            reign = (self.boots[seen.name], replica.replicas.place.master_epoch)
            if self._all_acknowledge:
                known = core.members.acks()
                union = core.members.sync_state_set.union
                acks = {one: known.get(one) for one in sorted(union) if one != core.ha.own_id}
        self.confirm.observe(seen.name, reign, seen.confirm_offset, seen.max_offset, acks)

    @property
    def _all_acknowledge(self) -> bool:
        return self.set.all_ack and not self.set.lease

    def check_logs(self, master: LogSnapshot) -> None:
        """Look at all logs, once all is well: the same bytes, and all that there ever were.

        Raises:
            InvariantBroken: they are not.
        """
        for host, replica in sorted(self.replicas.items()):
            log = snapshot(host, replica)
            check_converged(master, log)
            check_begin(log, self.set.log.begin)
            self.counts["beginnings checked"] += 1

    def check_tables(self) -> None:
        """Look at topics, groups and their messages, once all logs are the same.

        Raises:
            InvariantBroken: replicas differ.
        """
        check_same({host: tables_of(one) for host, one in self.replicas.items()})
        self.counts["tables compared"] += 1

    def _stored_offsets(self) -> tuple[dict[str, int], dict[str, dict[str, int]]]:
        """What groups have committed, at the master and at each slave."""
        pairs = [(GROUP, TOPIC), *((life.name, life.name) for life in self.topic_lives)]
        stored = {host: stored_offsets(one, pairs) for host, one in self.replicas.items()}
        (master,) = self.master_hosts()
        return stored.pop(master), stored

    def offsets_are_copied(self) -> bool:
        """Whether slaves have what their master has."""
        master, slaves = self._stored_offsets()
        return all(master.items() <= one.items() for one in slaves.values())

    @property
    def _committing(self) -> list[TopicLife | GroupLife]:
        """All who commit offsets."""
        return [*self.topic_lives, *self.group_lives]

    def check_offsets(self) -> None:
        """Look at what groups have committed, once slaves have had the time to copy it.

        Raises:
            InvariantBroken: the master has lost it, or a slave has not copied it.
        """
        self.counts["offsets compared"] += check_copied(*self._stored_offsets())
        if self.set.survives:
            for life in self._committing:
                life.offsets.check_end()

    def check_copies(self) -> None:
        """Look at all that the master's log holds.

        Raises:
            InvariantBroken: there is more of something than anybody has sent.
        """
        (master,) = self.master_hosts()
        stored = (
            (one.topic, one.body) for one in records_in_log(snapshot(master, self.replicas[master]))
        )
        self.counts["messages counted"] += self.attempts.check(stored)

    def is_settled(self) -> bool:
        """Whether one master leads, and everybody is in its set and holds its log."""
        leader = self.leader()
        if leader is None or len(self.clocks) != len(self.disks):
            return False
        one = self.controllers[leader].machine.state.sets.get(NAME)
        if one is None or len(one.sync_state_set) != self.set.replicas - self.set.learners:
            return False
        masters = self.master_hosts()
        roles = [replica.role for replica in self.replicas.values()]
        if len(masters) != 1 or None in roles:
            return False
        master = self.replicas[masters[0]]
        if master.replicas.broker_id != one.master_broker_id:
            return False
        if self.producing:
            return True
        if not all(task.done() for task in self._living):
            return False
        stores = [replica.store for replica in self.replicas.values()]
        if any(store.dispatched_offset < store.confirm_offset for store in stores):
            return False
        return len({(store.max_offset, store.confirm_offset) for store in stores}) == 1

    def missing(self) -> Iterator[Acked]:
        """Acknowledged messages that a consumer of the master does not get where they should be."""
        (host,) = self.master_hosts()
        reader = self.replicas[host].store.reader
        for one in self.acked:
            got = reader.get(TOPIC, one.queue_id, one.queue_offset, count_max=1, bytes_max=4096)
            if not got.records or one.body not in bytes(got.records[0]):
                yield one


def records_in_log(log: LogSnapshot) -> Iterator[Record]:
    """All records of a log."""
    content = memoryview(log.read(log.min_offset, log.max_offset - log.min_offset))
    at = 0
    while at < len(content):
        head = check_record(content, at, len(content), log.min_offset + at, check_crc=False)
        invariant(head.size >= 0, "a log has no whole record", offset=head.offset, why=head.reason)
        if head.size:
            yield decode(content, head)
        at += head.size or int.from_bytes(content[at : at + 4])


def snapshot(host: str, replica: BrokerReplica) -> LogSnapshot:
    """What a replica's log holds at this moment."""
    store, core = replica.store, replica.ha_core
    entries = () if core is None else core.ha.epochs.entries

    def read(at: int, size: int) -> bytes:
        found = b""
        while len(found) < size:
            part = store.readable(at + len(found), size - len(found))
            if part <= 0:
                break
            found += bytes(store.view(at + len(found), part))
        return found

    return LogSnapshot(
        name=host,
        min_offset=max(store.min_offset, 0),
        max_offset=store.max_offset,
        confirm_offset=max(store.confirm_offset, 0),
        epochs=[(entry.epoch, entry.start) for entry in entries],
        read=read,
    )
