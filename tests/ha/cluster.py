"""Replicas on one virtual clock: real cores, real parsers, byte pipes with random chunks.

The controller is played by the test: it elects, and answers alterations as a real one does.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from dataclasses import dataclass, field

from rmqha.base.errors import RemoteProtocolError
from rmqha.base.invariants import invariant
from rmqha.base.machine import Note, Ticked
from rmqha.ha import events as ev
from rmqha.ha.epochs import EpochCache, format_epochs, load_epochs
from rmqha.ha.events import PutStatus, Role, describe
from rmqha.ha.frames import MasterFrameParser, SlaveFrameParser, TransferHeader, encode_ack
from rmqha.ha.ha_core import HaCore
from rmqha.ha.settings import HaSettings
from rmqha.ha.state import LogFacts
from rmqha.verify.durability import DurabilityProperty
from rmqha.verify.logs import ConfirmProperty, LogSnapshot, check_confirmed, check_epochs
from tests.ha.memory_log import MemoryLog


@dataclass
class Pipe:
    """A connection: bytes each way, split anywhere when they arrive."""

    slave: int
    slave_life: int
    slave_conn: int
    master: int
    master_life: int
    master_conn: int
    to_master: bytearray = field(default_factory=bytearray)
    to_slave: bytearray = field(default_factory=bytearray)
    parser: MasterFrameParser = field(default_factory=MasterFrameParser)
    master_parser: SlaveFrameParser = field(default_factory=SlaveFrameParser)
    header: TransferHeader | None = None
    got: int = 0
    open: bool = True


class Replica:
    """One process: a core, a log, an epoch file."""

    def __init__(self, cluster: Cluster, broker_id: int, log: MemoryLog) -> None:
        self.cluster = cluster
        self.id = broker_id
        self.log = log
        self.epoch_file: bytes | None = None
        self.life = 0
        self.up = False
        self.lane: deque[ev.Effect] = deque()
        self.puts: dict[int, tuple[int, bytes]] = {}
        self.done: dict[int, PutStatus] = {}
        self.alters: list[ev.AlterSyncStateSet] = []
        self.roles: list[ev.Effect] = []
        self.settings = cluster.settings
        self.reign = 0
        self.flush_due_ms: int | None = None
        self.lost_power = False
        self.is_torn = False
        self.unflushed: list[tuple[int, int, int]] = []
        self._tokens = 0

    def start(self) -> None:
        self.life += 1
        self.up = True
        self.lane.clear()
        self.flush_due_ms = None
        self.alters.clear()
        self.unflushed.clear()
        log = self.log
        facts = LogFacts(
            log.file_size, log.min_offset, log.max_offset, log.flushed_offset, log.confirm_offset
        )
        epochs = load_epochs(self.epoch_file, None).epochs if self.epoch_file else EpochCache()
        self.core = HaCore(
            own_id=self.id,
            settings=self.settings,
            log=facts,
            epochs=epochs,
            now_ms=self.cluster.now_ms,
        )

    def give(self, event: ev.Event) -> None:
        """One step, its effects carried out."""
        if not self.up:
            return
        self.cluster.line(f"{self.id} < {describe(event)}")
        for effect in self.core.step(self.cluster.now_ms, event):
            self.cluster.line(f"{self.id} > {describe(effect)}")
            self.cluster.carry_out(self, effect)
        self.cluster.watch(self)

    def put(self, body: bytes, *, flushed: bool = True) -> PutStatus | int:
        """A producer's put: a status when it is refused, else the token to look for.

        With SYNC_FLUSH whoever puts waits for the own disk before the others; unless ``flushed``
        the slaves may have it first, until somebody calls ``flush``.
        """
        status = self.core.check_put()
        if status is not PutStatus.PUT_OK:
            return status
        self._tokens += 1
        token = self._tokens
        offset, record = self.log.append(body)
        self.puts[token] = (offset, record)
        self.give(ev.Appended(self.log.max_offset))
        if not self.core.ha.settings.ack_flushed_data:
            self.give(ev.PutWaited(token, offset + len(record), self.core.reign_number))
            return token
        self.unflushed.append((token, offset + len(record), self.core.reign_number))
        if flushed:
            self.flush()
        return token

    def flush(self) -> None:
        """The disk has all of the log; whoever waited for that waits for the others now."""
        waiting, self.unflushed = self.unflushed, []
        self.give(ev.Flushed(self.log.flush_now()))
        for token, end, reign in waiting:
            self.cluster.counts["a put outlived its reign"] += reign != self.core.reign_number
            self.give(ev.PutWaited(token, end, reign))

    def _is_flushing(self) -> bool:
        """Whether the disk is busy: a flush takes ``flush_ms``, and what is behind it waits as well."""
        if not isinstance(self.lane[0], ev.Flush) or not self.cluster.flush_ms:
            return False
        if self.flush_due_ms is None:
            self.flush_due_ms = self.cluster.now_ms + self.cluster.flush_ms
        if self.cluster.now_ms < self.flush_due_ms:
            return True
        self.flush_due_ms = None
        return False

    def run_lane(self) -> bool:
        """Carry out one effect that waits."""
        if not self.lane or not self.up or self._is_flushing():
            return False
        effect, log = self.lane.popleft(), self.log
        match effect:
            case ev.CutInvalidTail(seq):
                end = log.valid_end(max(log.dispatched_offset, log.min_offset, 0), log.max_offset)
                log.truncate_now(end)
                self.is_torn = False
                self.give(ev.TailCut(seq, log.max_offset))
            case ev.TruncateLog(seq, offset):
                self.cluster.counts["a log was cut"] += offset < log.max_offset
                if self.cluster.keeps_confirmed:
                    # Consumers may have read it, from whoever said so.
                    confirm = log.confirm_offset
                    invariant(offset >= confirm, "a log is cut below its confirmOffset",
                              replica=self.id, offset=offset, confirm_offset=confirm)  # fmt: skip
                log.truncate_now(offset)
                self.give(ev.LogTruncated(seq, log.max_offset))
            case ev.WriteEpochs(seq, entries):
                self.epoch_file = format_epochs(entries)
                self.give(ev.EpochsWritten(seq))
            case ev.WaitDispatched(seq, _):
                log._dispatch()
                log.rebuild_now()
                self.give(ev.DispatchReached(seq))
            case ev.Flush(_):
                self.give(ev.Flushed(log.flush_now()))
            case _:
                raise AssertionError(effect)
        return True

    def snapshot(self) -> LogSnapshot:
        log = self.log
        return LogSnapshot(
            str(self.id),
            log.min_offset,
            log.max_offset,
            log.confirm_offset,
            [tuple(entry) for entry in self.core.ha.epochs.entries],
            log.read,
        )


class Cluster:
    """A broker set."""

    def __init__(
        self,
        count: int = 3,
        *,
        settings: HaSettings | None = None,
        file_size: int = 1 << 20,
        seed: int = 0,
        flush_ms: int = 0,
    ) -> None:
        self.settings = settings or HaSettings(all_ack_in_sync_state_set=True)
        self.rng = random.Random(seed)
        self.flush_ms = flush_ms
        self.now_ms = 0
        self.lines: list[str] = []
        self.pipes: list[Pipe] = []
        self.cut: set[int] = set()
        self.durability = DurabilityProperty()
        self.confirm = ConfirmProperty()
        self.mutant: str | None = None
        self.epoch = 0
        self.set_epoch = 0
        self.sync_state_set: frozenset[int] = frozenset()
        self.master: int | None = None
        self.answer_alters = True
        self.check_properties = True
        self.keeps_confirmed = False
        self.counts: Counter[str] = Counter()
        self._conns = 1000
        self.replicas: dict[int, Replica] = {}
        for broker_id in range(1, count + 1):
            self.replicas[broker_id] = Replica(self, broker_id, MemoryLog(file_size))
            self.replicas[broker_id].start()

    def __getitem__(self, broker_id: int) -> Replica:
        return self.replicas[broker_id]

    def line(self, text: str) -> None:
        self.lines.append(f"[{self.now_ms:6}] {text}")

    # -- the controller ------------------------------------------------------------------------

    def elect(self, master: int, *, members: frozenset[int] | None = None) -> None:
        """A new epoch; every replica that is up is told."""
        self.epoch += 1
        self.set_epoch += 1
        self.master = master
        self.counts["a master that lost power was elected"] += self.replicas[master].lost_power
        self.replicas[master].lost_power = False
        self.sync_state_set = members or frozenset({master})
        for broker_id in sorted(self.replicas):
            self.tell(broker_id)
        self.settle()

    def tell(self, broker_id: int) -> None:
        replica = self.replicas[broker_id]
        if not replica.up or broker_id in self.cut or self.master is None:
            return
        master = self.replicas[self.master]
        if master.lost_power:
            if master.up and self.master not in self.cut:
                self.elect_heir()
            return
        if broker_id == self.master:
            replica.give(ev.ChangedToMaster(self.epoch, self.sync_state_set, self.set_epoch))
        else:
            replica.give(ev.ChangedToSlave(self.epoch, self.master, f"r{self.master}:1"))

    def alter(self, replica: Replica, effect: ev.AlterSyncStateSet) -> None:
        """As the controller does: compare the epoch and the master, then apply."""
        if effect.epoch != self.set_epoch or replica.id != self.master:
            replica.give(ev.AlterRefused())
            return
        self.set_epoch += 1
        self.sync_state_set = effect.ids
        replica.give(ev.SyncStateSetConfirmed(effect.ids, self.set_epoch))

    # -- effects ---------------------------------------------------------------------------------

    def carry_out(self, replica: Replica, effect: ev.Effect) -> None:  # noqa: C901 - one case an effect
        match effect:
            case Note():
                pass
            case ev.SetConfirmOffset(offset):
                replica.log.set_confirm_offset(offset)
            case ev.SendToSlave(conn, data):
                self._to_slave(replica, conn, data)
            case ev.SendBatch(conn, header, offset, length):
                self._to_slave(
                    replica,
                    conn,
                    header + bytes(replica.log.view(offset, length) if length else b""),
                )
            case ev.CloseSlave(conn):
                for pipe in self._of_master(replica, conn):
                    self.close(pipe, skip_master=True)
            case ev.Connect():
                self._connect(replica, effect)
            case ev.SendToMaster(conn, data):
                self._to_master(replica, conn, data)
            case ev.SendAck(conn, offset):
                self._to_master(replica, conn, encode_ack(offset))
            case ev.CloseMaster(conn):
                for pipe in self._of_slave(replica, conn):
                    self.count_partial(pipe)
                    self.close(pipe, skip_slave=True)
            case ev.AlterSyncStateSet():
                replica.alters.append(effect)
            case ev.PutCompleted(token, status):
                replica.done[token] = status
                if status is PutStatus.PUT_OK:
                    self.durability.put_ok(*replica.puts[token])
            case ev.RoleChanged() | ev.RoleRefused():
                replica.reign += 1
                replica.roles.append(effect)
            case _:
                replica.lane.append(effect)

    def _of_master(self, replica: Replica, conn: int) -> list[Pipe]:
        key = (replica.id, replica.life, conn)
        return [p for p in self.pipes if p.open and (p.master, p.master_life, p.master_conn) == key]

    def _of_slave(self, replica: Replica, conn: int) -> list[Pipe]:
        key = (replica.id, replica.life, conn)
        return [p for p in self.pipes if p.open and (p.slave, p.slave_life, p.slave_conn) == key]

    def _to_slave(self, replica: Replica, conn: int, data: bytes) -> None:
        for pipe in self._of_master(replica, conn):
            pipe.to_slave += data

    def _to_master(self, replica: Replica, conn: int, data: bytes) -> None:
        for pipe in self._of_slave(replica, conn):
            pipe.to_master += data

    def _connect(self, replica: Replica, effect: ev.Connect) -> None:
        target = self.replicas[int(effect.address[1:].split(":")[0])]
        if not target.up or target.id in self.cut or replica.id in self.cut:
            replica.give(ev.MasterClosed(effect.conn, "refused"))
            return
        self._conns += 1
        pipe = Pipe(replica.id, replica.life, effect.conn, target.id, target.life, self._conns)
        self.pipes.append(pipe)
        target.give(ev.SlaveConnected(self._conns, f"r{replica.id}"))
        replica.give(ev.MasterConnected(effect.conn))

    def count_partial(self, pipe: Pipe) -> None:
        """What has arrived of a body is part of the log."""
        replica, header, got = self.replicas[pipe.slave], pipe.header, pipe.got
        pipe.header, pipe.got = None, 0
        if header is not None and got and replica.up and replica.life == pipe.slave_life:
            replica.log.received(header.offset, got)
            replica.give(ev.BodyReceived(pipe.slave_conn, header.offset, got))

    def close(self, pipe: Pipe, *, skip_master: bool = False, skip_slave: bool = False) -> None:
        """The connection ends; what is under way is lost."""
        if not pipe.open:
            return
        pipe.open = False
        self.pipes.remove(pipe)
        master, slave = self.replicas[pipe.master], self.replicas[pipe.slave]
        if not skip_slave and slave.up and slave.life == pipe.slave_life:
            self.count_partial(pipe)
            slave.give(ev.MasterClosed(pipe.slave_conn, "reset"))
        if not skip_master and master.up and master.life == pipe.master_life:
            master.give(ev.SlaveClosed(pipe.master_conn, "reset"))

    # -- movement --------------------------------------------------------------------------------

    def deliver(self, pipe: Pipe, limit: int) -> bool:
        """Move at most ``limit`` bytes each way."""
        if pipe.master in self.cut or pipe.slave in self.cut:
            return False
        moved = False
        if pipe.to_master:
            moved = True
            data = bytes(pipe.to_master[:limit])
            del pipe.to_master[:limit]
            try:
                frames = pipe.master_parser.feed(data)
            except RemoteProtocolError as error:
                self.line(f"parse error {error}")
                self.close(pipe)
                return True
            for frame in frames:
                self.replicas[pipe.master].give(ev.SlaveSent(pipe.master_conn, frame))
        if pipe.to_slave and pipe.open:
            moved = True
            self._feed_slave(pipe, limit)
            if pipe.open and not pipe.to_slave:
                self.replicas[pipe.master].give(ev.SlaveWritable(pipe.master_conn))
        return moved

    def _feed_slave(self, pipe: Pipe, limit: int) -> None:
        replica = self.replicas[pipe.slave]
        while limit > 0 and pipe.to_slave and pipe.open:
            parser = pipe.parser
            size = min(limit, len(pipe.to_slave), parser.body_pending or parser.wanted)
            data = bytes(pipe.to_slave[:size])
            del pipe.to_slave[:size]
            limit -= size
            if parser.body_pending and pipe.header is not None:
                header = pipe.header
                replica.log.reserve(header.offset + pipe.got, size)[:] = data
                parser.body_received(size)
                pipe.got += size
                if not parser.body_pending:
                    replica.log.received(header.offset, header.body_size)
                    pipe.header, pipe.got = None, 0
                    replica.give(ev.BodyReceived(pipe.slave_conn, header.offset, header.body_size))
                continue
            frame = parser.feed(data)
            if frame is None:
                continue
            if isinstance(frame, TransferHeader) and frame.body_size:
                pipe.header, pipe.got = frame, 0
            replica.give(ev.MasterSent(pipe.slave_conn, frame))

    def settle(self, *, chunk: int | None = None) -> None:
        """Until nothing moves without time."""
        for _ in range(100_000):
            moved = False
            for pipe in list(self.pipes):
                if pipe.open:
                    limit = chunk or self.rng.choice([1, 7, 40, 300, 100_000])
                    moved |= self.deliver(pipe, limit)
            for replica in self.replicas.values():
                moved |= replica.run_lane()
                if replica.alters and self.answer_alters and replica.id not in self.cut:
                    moved = True
                    self.alter(replica, replica.alters.pop(0))
            if not moved:
                return
        raise AssertionError("the cluster never comes to rest:\n" + "\n".join(self.lines[-40:]))

    def run(self, duration_ms: int, *, chunk: int | None = None) -> None:
        """Let time pass; every replica ticks when it asked to."""
        end = self.now_ms + duration_ms
        self.settle(chunk=chunk)
        for _ in range(100_000):
            due = [
                deadline
                for replica in self.replicas.values()
                if replica.up
                for deadline in (replica.core.next_deadline_ms, replica.flush_due_ms)
                if deadline is not None
            ]
            now = min(due, default=end)
            if now > end:
                break
            self.now_ms = max(self.now_ms, now)
            for replica in self.replicas.values():
                deadline = replica.core.next_deadline_ms if replica.up else None
                if deadline is not None and deadline <= self.now_ms:
                    replica.give(Ticked())
            self.settle(chunk=chunk)
            if self.now_ms >= end:
                break
        else:
            raise AssertionError("time does not pass:\n" + "\n".join(self.lines[-40:]))
        self.now_ms = end

    def crash(self, broker_id: int, *, power: bool = False) -> None:
        """kill -9, or a power cut that also loses what was not flushed."""
        replica = self.replicas[broker_id]
        replica.up = False
        for pipe in list(self.pipes):
            if broker_id in (pipe.master, pipe.slave):
                self.close(pipe)
        before = replica.log.max_offset
        replica.log.crash(power=power)
        if replica.log.max_offset < before:
            who = "master" if broker_id == self.master else "slave"
            self.counts[f"power took bytes of a {who}"] += power
        if power:
            replica.is_torn = True
            replica.lost_power = broker_id == self.master

    def restart(self, broker_id: int) -> None:
        """It comes up, knows nothing, and is told by the controller."""
        self.replicas[broker_id].start()
        self.tell(broker_id)

    def elect_heir(self) -> None:
        """A master that lost power has another member elected, or itself anew if it is alone.

        It never goes on in its epoch (ADR 0013); while all other members are away it waits.
        """
        heirs = [
            one for one in sorted(self.sync_state_set - {self.master})
            if self.replicas[one].up and one not in self.cut
        ]  # fmt: skip
        if heirs:
            self.counts["an heir was elected"] += 1
            self.elect(heirs[0])
        elif self.sync_state_set == {self.master}:
            self.elect(next(iter(self.sync_state_set)))

    # -- properties --------------------------------------------------------------------------------

    def watch(self, replica: Replica) -> None:
        core = replica.core
        if not self.check_properties:
            return
        if not replica.is_torn:
            # After a power cut the file knows more than the log, until the log's end is known.
            check_epochs(replica.snapshot())
        all_ack = self.settings.all_ack_in_sync_state_set
        union = core.members.sync_state_set.union if core.is_serving and all_ack else ()
        acks = core.members.acks()
        self.confirm.observe(
            f"{replica.id}/{replica.life}",
            replica.reign if core.is_serving else None,
            core.ha.log.confirm_offset,
            core.ha.log.max_offset,
            {member: acks.get(member) for member in union if member != replica.id},
        )
        assert core.role is Role.MASTER or not core.members.waits

    def verify(self) -> None:
        """Properties of the whole set."""
        snapshots = [one.snapshot() for one in self.replicas.values()]
        check_confirmed(snapshots)
        if self.master is not None and self.replicas[self.master].up:
            self.durability.check(self.replicas[self.master].snapshot())
