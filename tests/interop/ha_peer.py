"""One replica of our own store and HA as a process, without a broker around it.

The same lines on stdin and stdout as ``java/HaPeer.java`` (``peers.py`` lists them), so that a test
drives both alike and may kill either. Run: ``python -m tests.interop.ha_peer ID key=value...``.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import random
import sys
import time
import zlib
from collections.abc import Callable

from rmqha.ha import events as ev
from rmqha.ha.aio.epoch_file import EpochFile
from rmqha.ha.aio.service import HaService
from rmqha.ha.events import PutStatus
from rmqha.ha.ha_core import HaCore
from rmqha.ha.settings import HaSettings, load_ha_settings
from rmqha.ha.state import LogFacts
from rmqha.runtime.aio.clock import SystemClock
from rmqha.runtime.aio.disk import SystemDisk, lock_first_byte
from rmqha.runtime.aio.loop import run
from rmqha.runtime.aio.net import TcpNetwork
from rmqha.runtime.aio.processor import SystemProcessor
from rmqha.runtime.logs import Logger, configure_logs
from rmqha.store import properties as props
from rmqha.store.aio.message_store import MessageStore
from rmqha.store.record import Message, pack_host
from rmqha.store.settings import load_settings

TOPIC = "HaPeer"
QUEUES = 4
BLOCK_BYTES = 4 << 20
HOST = pack_host("127.0.0.1", 1234)


def say(line: str) -> None:
    """One line to whoever drives this."""
    os.write(1, line.rstrip().encode() + b"\n")


def message(number: int, body: bytes) -> Message:
    """A message like the Java peer's."""
    properties = props.encode({"KEYS": f"k{number}", "WAIT": "true", "TAGS": f"t{number % 3}"})
    born = time.time_ns() // 1_000_000
    return Message(TOPIC, number % QUEUES, body, properties, born, HOST, HOST)


class Load:
    """Writes records of sizes that are even on a logarithmic scale until enough bytes are in."""

    def __init__(self, peer: Peer, words: list[str]) -> None:
        self._peer = peer
        self._bytes, self._low, self._high, seed, in_flight = map(int, words[:5])
        self._bytes_per_s = float(words[5]) if words[5:] else math.inf
        self._random = random.Random(seed)
        self._block = self._random.randbytes(BLOCK_BYTES)
        self._window = asyncio.Semaphore(in_flight)
        self.ended = False
        self.succeeded = self.failed = self.acked = 0
        self.last_failure: PutStatus | None = None
        self.task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        low, high = math.log(self._low), math.log(self._high)
        written = number = 0
        start_s = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            while written < self._bytes and not self.ended:
                size = round(math.exp(self._random.uniform(low, high)))
                start = self._random.randrange(BLOCK_BYTES - size)
                due_s = start_s + written / self._bytes_per_s
                if due_s > time.perf_counter():
                    await asyncio.sleep(due_s - time.perf_counter())
                await self._window.acquire()
                group.create_task(self._put(message(number, self._block[start : start + size])))
                written += size
                number += 1

    async def _put(self, one: Message) -> None:
        status, end = await self._peer.put(one)
        if status is PutStatus.PUT_OK:
            self.succeeded += 1
            if end > self.acked:
                self.acked = end
                say(f"acked {end}")
        else:
            self.failed += 1
            self.last_failure = status
        self._window.release()

    def summary(self) -> str:
        """How it went."""
        status = self.last_failure.name if self.last_failure is not None else None
        return f"succeeded={self.succeeded} failed={self.failed} acked={self.acked} status={status}"


class Peer:
    """The replica; it is its own controller, which agrees to everything while it is told to."""

    def __init__(self, broker_id: int, settings: dict[str, str]) -> None:
        store_settings = load_settings({**settings, "enableControllerMode": "true"}, user_home="/")
        self._root = store_settings.store_path_root_dir
        self._id = broker_id
        self._settings: HaSettings = load_ha_settings(settings)
        self._lock = lock_first_byte(f"{self._root}/lock")
        self._disk = SystemDisk()
        self._clock = SystemClock()
        self._logger = Logger(broker=broker_id)
        self.store = MessageStore(
            self._clock, self._disk, store_settings, self._logger, on_failed=self.ha_failed
        )
        self._agrees = True
        self._load: Load | None = None

    async def start(self) -> int:
        """Recover, and listen for slaves."""
        store = self.store
        await store.open()
        epoch_file = EpochFile(self._disk, f"{self._root}/epochFileCheckpoint")
        facts = LogFacts(
            store.file_size, store.min_offset, store.max_offset, store.flushed_offset,
            store.confirm_offset,
        )  # fmt: skip
        self._core = HaCore(
            own_id=self._id, settings=self._settings, log=facts,
            epochs=(await epoch_file.load()).epochs, now_ms=self._clock.now_ms(),
        )  # fmt: skip
        self._ha = HaService(
            core=self._core,
            log=store,
            epoch_file=epoch_file,
            settings=self._settings,
            clock=self._clock,
            network=TcpNetwork(),
            listener=self,
            logger=self._logger,
            processor=SystemProcessor(),
        )
        return await self._ha.start("127.0.0.1", self._settings.ha_listen_port)

    # -- the broker around it

    def alter_sync_state_set(self, ids: frozenset[int], epoch: int) -> None:
        """The controller agrees, or does not answer."""
        if self._agrees:
            confirmed = ev.SyncStateSetConfirmed(ids, epoch + 1)
            asyncio.get_running_loop().call_soon(self._ha.give, confirmed)

    def ha_failed(self, error: Exception) -> None:
        """A replica that cannot go on ends at once."""
        print(f"failed: {error!r}", file=sys.stderr, flush=True)
        os._exit(3)

    async def put(self, one: Message) -> tuple[PutStatus, int]:
        """As a broker does it: check, write, wait for the slaves."""
        status = self._ha.check_put()
        if status is not PutStatus.PUT_OK:
            return status, 0
        end = self.store.append(one).end
        self._ha.appended()
        return await self._ha.wait_put(end, self._ha.reign_number), end

    # -- commands

    async def answer(self, words: list[str]) -> str:
        """Carry out one line."""
        match words:
            case ["master", epoch, ids]:
                set_epoch = self._core.members.sync_state_set.epoch + 1
                if not await self._ha.change_to_master(int(epoch), _ids(ids), set_epoch):
                    raise ValueError(f"epoch {epoch} was refused")
            case ["slave", address, epoch, master_id]:
                if not await self._ha.change_to_slave(int(epoch), int(master_id), address):
                    raise ValueError(f"epoch {epoch} was refused")
            case ["set", ids]:
                known = self._core.members.sync_state_set.epoch
                self._ha.give(ev.SyncStateSetConfirmed(_ids(ids), known + 1))
            case ["agree", word]:
                self._agrees = word == "on"
            case ["put", *rest]:
                whole = Load(self, rest)
                await whole.task
                return whole.summary()
            case ["load", *rest]:
                self._load = Load(self, rest)
            case ["loaded", *now]:
                return await self._loaded(end=bool(now))
            case _:
                return await self._look(words)
        return ""

    async def _loaded(self, *, end: bool) -> str:
        load = self._load
        if load is None:
            raise ValueError("nothing was loaded")
        load.ended = load.ended or end
        if not end and not load.task.done():
            return "busy"
        await load.task
        return load.summary()

    async def _look(self, words: list[str]) -> str:
        match words:
            case ["offsets"]:
                return self._offsets()
            case ["sync"]:
                await self.store.wait_dispatched(self.store.confirm_offset)
                return ""
            case ["reach", target]:
                return await self._reach(int(target))
            case ["read"]:
                return self._read()
            case ["latency", count, size, in_flight]:
                return await self._latency(int(count), int(size), int(in_flight))
            case ["stop"]:
                await self._ha.close()
                await self.store.close()
                return ""
        raise ValueError(f"no such command: {words}")

    def _offsets(self) -> str:
        store, core = self.store, self._core
        epochs = ",".join(f"{entry.epoch}-{entry.start}" for entry in core.ha.epochs.entries)
        ids = ",".join(str(one) for one in sorted(core.members.sync_state_set.ids))
        behind = max(0, store.confirm_offset - store.dispatched_offset)
        return (
            f"min={store.min_offset} max={store.max_offset} confirm={store.confirm_offset} "
            f"behind={behind} set={ids} epochs={epochs}"
        )

    def _read(self) -> str:
        """Count and checksum of all bodies, queue by queue."""
        total = count = 0
        for queue in range(QUEUES):
            at = self.store.reader.min_offset(TOPIC, queue)
            while at < self.store.reader.max_offset(TOPIC, queue):
                found = self.store.reader.get(TOPIC, queue, at, count_max=32, bytes_max=1 << 20)
                for view in found.records:
                    record = self.store.reader.look(int.from_bytes(view[28:36]))
                    if record is None or record.queue_offset != at:
                        raise ValueError(f"queue {queue} at {at}: {record}")
                    total = zlib.crc32(record.body, total)
                    count += 1
                    at += 1
                if not found.records:
                    raise ValueError(f"queue {queue} at {at}: {found.status}")
        return f"{count} {total}"

    # -- measuring

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():  # noqa: ASYNC110 - the store offers no event for this
            await asyncio.sleep(0.001)

    async def _reach(self, target: int) -> str:
        """Nanoseconds, and bytes, from the first growth that is seen until the log ends there."""
        store, start = self.store, self.store.max_offset
        await self._until(lambda: store.max_offset != start or start >= target)
        first_seen, first = time.perf_counter_ns(), store.max_offset
        await self._until(lambda: store.max_offset >= target)
        return f"{time.perf_counter_ns() - first_seen} {store.max_offset - first}"

    async def _latency(self, count: int, size: int, in_flight: int) -> str:
        """Put-to-acknowledgement times in microseconds: p50, p99, puts per second."""
        took: list[int] = []
        wrong = 0
        left = iter(range(count))

        async def worker() -> None:
            nonlocal wrong
            for number in left:
                before = time.perf_counter_ns()
                status, _ = await self.put(message(number, bytes(size)))
                took.append(time.perf_counter_ns() - before)
                wrong += status is not PutStatus.PUT_OK

        start = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(in_flight):
                group.create_task(worker())
        seconds = time.perf_counter() - start
        if wrong:
            raise ValueError(f"{wrong} puts failed")
        took.sort()
        p50, p99 = took[count // 2] // 1000, took[count * 99 // 100] // 1000
        return f"{p50} {p99} {round(count / seconds)}"


def _ids(text: str) -> frozenset[int]:
    return frozenset(int(one) for one in text.split(","))


async def main(args: list[str]) -> None:
    """Serve lines until ``stop``; without a driver end at once, without any tidying up."""
    peer = Peer(int(args[0]), dict(arg.split("=", 1) for arg in args[1:]))
    say(f"ok {await peer.start()}")
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(lines), sys.stdin
    )
    while line := (await lines.readline()).decode():
        words = line.split()
        try:
            say(f"ok {await peer.answer(words)}")
        except Exception as error:  # noqa: BLE001 - the driver is told
            say(f"error {error!r}")
        if words == ["stop"]:
            return
    os._exit(1)


if __name__ == "__main__":
    configure_logs()
    with contextlib.suppress(KeyboardInterrupt):
        run(main(sys.argv[1:]))
