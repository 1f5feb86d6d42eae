"""The same shells on the simulated network, disk and clock: nothing in them knows the difference."""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Coroutine
from typing import Any

import pytest

from rmqha.ha import events as ev
from rmqha.ha.aio.epoch_file import EpochFile
from rmqha.ha.aio.service import HaService
from rmqha.ha.events import PutStatus
from rmqha.ha.ha_core import HaCore
from rmqha.ha.settings import HaSettings
from rmqha.ha.state import LogFacts
from rmqha.runtime.logs import Logger
from rmqha.sim.clock import SimClock
from rmqha.sim.disk import SimDisk
from rmqha.sim.loop import HOST, SimLoop
from rmqha.sim.net import SimNet
from rmqha.verify.durability import DurabilityProperty
from rmqha.verify.logs import LogSnapshot, check_converged
from tests.ha.memory_log import MemoryLog

pytestmark = pytest.mark.slow

PORT = 10912
SETTINGS = HaSettings(all_ack_in_sync_state_set=True, ack_flushed_data=True)


class Host:
    """One machine; its log and disk outlive its processes."""

    def __init__(self, sim: Sim, broker_id: int) -> None:
        self.sim = sim
        self.id = broker_id
        self.name = f"h{broker_id}"
        self.log = MemoryLog(20_000)
        self.disk = SimDisk(random.Random(broker_id))
        self.service: HaService

    async def boot(self) -> None:
        sim = self.sim
        context = contextvars.copy_context()
        context.run(HOST.set, self.name)
        self.network = sim.net.boot(self.name, context)
        self.clock = SimClock(sim.loop, offset_ms=self.id * 1_000)
        await sim.loop.create_task(self._start(), context=context)
        self.context = context

    async def _start(self) -> None:
        log, epoch_file = self.log, EpochFile(self.disk, "/store/epochFileCheckpoint")
        core = HaCore(
            own_id=self.id,
            settings=SETTINGS,
            log=LogFacts(
                log.file_size,
                log.min_offset,
                log.max_offset,
                log.flushed_offset,
                log.confirm_offset,
            ),
            epochs=(await epoch_file.load()).epochs,
            now_ms=self.clock.now_ms(),
        )
        self.core = core
        self.service = HaService(
            core=core,
            log=log,
            epoch_file=epoch_file,
            settings=SETTINGS,
            clock=self.clock,
            network=self.network,
            listener=self,
            logger=Logger(broker=self.id),
        )
        await self.service.start("0.0.0.0", PORT)

    def on_host(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        return self.sim.loop.create_task(work, context=self.context.copy())

    def crash(self, *, power: bool) -> None:
        self.clock.dead = True
        self.sim.net.kill(self.name, power=power)
        self.sim.loop.end_host(self.name)
        if power:
            self.disk.power_cut()
        self.log.crash(power=power)

    def alter_sync_state_set(self, ids: frozenset[int], epoch: int) -> None:
        self.sim.loop.call_later(0.005, self.sim.alter, self, ids, epoch)

    def ha_failed(self, error: Exception) -> None:
        raise AssertionError(f"{self.name} failed") from error

    def snapshot(self) -> LogSnapshot:
        entries = [tuple(entry) for entry in self.core.ha.epochs.entries]
        log = self.log
        return LogSnapshot(
            self.name, log.min_offset, log.max_offset, log.confirm_offset, entries, log.read
        )


class Sim:
    """Three hosts, and a controller that never fails."""

    def __init__(self, seed: int) -> None:
        self.loop = SimLoop()
        self.rng = random.Random(seed)
        self.net = SimNet(self.loop, self.rng)
        self.hosts = {broker_id: Host(self, broker_id) for broker_id in (1, 2, 3)}
        self.epoch = self.set_epoch = self.master = 0
        self.ids: frozenset[int] = frozenset()
        self.durability = DurabilityProperty()

    def alter(self, host: Host, ids: frozenset[int], epoch: int) -> None:
        if host.clock.dead:
            return
        if epoch != self.set_epoch or host.id != self.master:
            host.service.give(ev.AlterRefused())
            return
        self.set_epoch += 1
        self.ids = ids
        host.service.give(ev.SyncStateSetConfirmed(ids, self.set_epoch))

    async def elect(self, master: int) -> None:
        self.epoch += 1
        self.set_epoch += 1
        self.master, self.ids = master, frozenset({master})
        for broker_id in self.hosts:
            self.tell(broker_id)

    def tell(self, broker_id: int) -> None:
        host = self.hosts[broker_id]
        if host.clock.dead:
            return
        if broker_id == self.master:
            host.on_host(host.service.change_to_master(self.epoch, self.ids, self.set_epoch))
        else:
            address = f"h{self.master}:{PORT}"
            host.on_host(host.service.change_to_slave(self.epoch, self.master, address))

    async def put(self, body: bytes) -> PutStatus:
        host = self.hosts[self.master]
        status = host.service.check_put()
        if host.clock.dead or status is not PutStatus.PUT_OK:
            return PutStatus.SERVICE_NOT_AVAILABLE
        offset, record = host.log.append(body)
        host.log.flush_now()
        host.service.appended()
        status = await host.on_host(
            host.service.wait_put(offset + len(record), host.service.reign_number)
        )
        if status is PutStatus.PUT_OK:
            self.durability.put_ok(offset, record)
        return status


async def history(sim: Sim) -> int:
    """Puts go on while machines lose power, processes die and connections are reset."""
    for host in sim.hosts.values():
        await host.boot()
    await sim.elect(1)
    await asyncio.sleep(1)
    puts: list[asyncio.Task[PutStatus]] = []
    for number in range(150):
        size = sim.rng.randint(1, 3_000)
        puts.append(sim.loop.create_task(sim.put(b"%d " % number + b"." * size)))
        await asyncio.sleep(sim.rng.uniform(0, 0.05))
        fate = sim.rng.random()
        slave = sim.rng.choice([one for one in sim.hosts if one != sim.master])
        if fate < 0.03:
            sim.hosts[slave].crash(power=sim.rng.random() < 0.5)
            await asyncio.sleep(sim.rng.uniform(0, 1))
            await sim.hosts[slave].boot()
            sim.tell(slave)
        elif fate < 0.06:
            sim.net.reset_between(f"h{sim.master}", f"h{slave}")
        elif fate < 0.08:
            old = sim.master
            candidates = sorted(sim.ids - {old})
            sim.hosts[old].crash(power=sim.rng.random() < 0.5)
            if candidates:
                await sim.elect(sim.rng.choice(candidates))
            await sim.hosts[old].boot()
            sim.tell(old)
        elif fate < 0.10:
            sim.net.cut(f"h{slave}", f"h{sim.master}")
            await asyncio.sleep(sim.rng.uniform(0, 2))
            sim.net.heal()
    await asyncio.sleep(30)
    assert await sim.put(b"last") is PutStatus.PUT_OK
    await asyncio.sleep(7)
    # Who waited at a process that was killed waits for ever.
    ended, _ = await asyncio.wait(puts, timeout=1)
    master = sim.hosts[sim.master]
    sim.durability.check(master.snapshot())
    for host in sim.hosts.values():
        if host is not master:
            check_converged(master.snapshot(), host.snapshot())
        await host.on_host(host.service.close())
    return sum(1 for one in ended if one.result() is PutStatus.PUT_OK)


@pytest.mark.sim
@pytest.mark.parametrize("seed", range(60))
def test_acknowledged_records_survive(seed: int) -> None:
    """Real shells, real parsers, a disk that forgets: no acknowledged record is ever lost."""
    sim = Sim(seed)
    asyncio.set_event_loop(sim.loop)
    try:
        acknowledged = sim.loop.run_until_complete(history(sim))
    finally:
        asyncio.set_event_loop(None)
        sim.loop.close()
    assert acknowledged > 20
    assert sim.loop.errors == []
