"""Two broker sets whose masters are killed while logical queues move between them."""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from msgspec import to_builtins

from rmqha.admin.commands import remapping_static_topic, update_static_topic
from rmqha.admin.report import Report
from rmqha.admin.spec import Here
from rmqha.base.errors import RmqhaError
from rmqha.client.exchange import Exchange, Unreachable
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.settings import RemotingSettings
from rmqha.runtime.aio.clock import SystemClock
from rmqha.runtime.aio.net import TcpNetwork
from rmqha.testing.loop_thread import LoopThread
from rmqha.testing.real.cluster import FAST_BROKER, Cluster
from rmqha.testing.real.java import JavaBroker
from rmqha.testing.real.name_servers import PythonNameServer
from rmqha.testing.real.processes import allocate_ports, tails_on_failure, wait_until
from rmqha.testing.real.python import PythonBroker
from tests.bench.java_mqadmin import JavaMqadmin
from tests.bench.remap_outcome import Outcome, table
from tests.bench.static_ledger import judge
from tests.bench.static_load import StaticLoad
from tests.bench.tables import machine, write_json

TOPIC = "Remapped"
NAMES = ("broker-a", "broker-b")
MOVES = (("broker-b",), ("broker-a",), NAMES)
CONTROLLERS = {"rmqha": "rmqha", "java": "dledger"}
CALLS = 10
"""Requests of a remap, about; those of the last one tell better."""
KILL_DELAY_S = 0.02
"""A kill comes up to so much later, so that requests are under way as well."""
AGAIN_S = 0.2
HEAL_S = 75.0
MASTER_S = 60.0
GO_ON_S = 30.0


def make_sets(kind: str, replicas: int, folder: Path) -> dict[str, Cluster]:
    """Two broker sets with the same controllers and name server, not started."""
    found: dict[str, Cluster] = {}
    for name in NAMES:
        one = Cluster(folder / name, CONTROLLERS[kind], brokers=0, broker_name=name)
        if kind == "rmqha":
            server = PythonNameServer(one.folder / "namesrv", allocate_ports()[0])
            one.name_server = server  # type: ignore[assignment]  # same interface
        if found:
            one.name_server = found[NAMES[0]].name_server
            one.controllers = found[NAMES[0]].controllers
        for number in range(1, replicas + 1):
            if kind == "rmqha":
                one.brokers.append(PythonBroker.of(one, number, **FAST_BROKER))
            else:
                one.add_broker()
        found[name] = one
    return found


class Story:
    """One run.

    Args:
        sets: started.
        options: of the command line.
        java: the real mqadmin, to be used instead of ours.
    """

    def __init__(
        self,
        sets: Mapping[str, Cluster],
        options: argparse.Namespace,
        java: JavaMqadmin | None = None,
    ) -> None:
        self._sets, self._options, self._java = sets, options, java
        self._rng = random.Random(options.seed)
        self._thread = LoopThread("producers and readers")
        # Planning long histories must not stop those whose pauses are measured.
        self._operator = LoopThread("mqadmin")
        self._outcome = Outcome()
        self._calls, self._calls_now = CALLS, 0
        self._before_call = 0
        self._kill: JavaBroker | None = None
        self._server = sets[NAMES[0]].name_server.address

    def run(self) -> Outcome:
        """Remap, kill, and judge."""
        begun = time.monotonic()
        try:
            self._client = self._operator.call(_make_client())
            self._operator.call(self._create())
            load = StaticLoad(
                self._thread.call(_make_client()), self._server, TOPIC, self._options.queues,
                self._options.pause_ms / 1000,
            )  # fmt: skip
            self._thread.call(load.start())
            self._remaps(load, begun)
            for one in self._sets.values():
                self._outcome.counts["replicas that hung"] += one.wait_in_sync_or_restart(HEAL_S)
            found = self._thread.call(load.stop())
        finally:
            self._operator.close()
            self._thread.close()
        if self._options.plant:
            del found[0][len(found[0]) // 2]
        self._outcome.read = judge(load.ledger, found)
        self._outcome.live = judge(load.ledger, load.live)
        self._outcome.acknowledged = load.ledger.acknowledged
        self._outcome.counts += load.counts
        self._outcome.took_s = time.monotonic() - begun
        return self._outcome

    def _remaps(self, load: StaticLoad, begun: float) -> None:
        options, counts = self._options, self._outcome.counts
        with_kill = {
            int((number + 0.5) * options.remaps / options.failovers)
            for number in range(options.failovers)
        }
        for number in range(options.remaps):
            if time.monotonic() - begun > options.minutes * 60:
                counts["remaps for which there was no time"] += options.remaps - number
                return
            if number in with_kill:
                self._with_kill(number, load)
            else:
                moment = time.monotonic()
                self._remap(number)
                self._outcome.remap_s.append(time.monotonic() - moment)
                self._thread.call(asyncio.sleep(options.settle_ms / 1000))
                pause_s = self._thread.call(_pause(load, moment))
                self._outcome.pauses_s.append(pause_s)
            if number % 10 == 9 or number in with_kill:
                self._say(number + 1, load)

    def _with_kill(self, number: int, load: StaticLoad) -> None:
        """One remap, in the middle of which a master is killed."""
        name = self._rng.choice(NAMES)
        one, counts = self._sets[name], self._outcome.counts
        for cluster in self._sets.values():
            counts["replicas that hung"] += cluster.wait_in_sync_or_restart(HEAL_S)
        before = one.controllers.wait_for_master(name)
        broker = one.broker(before.master_id)
        self._before_call, self._kill = self._rng.randrange(self._calls) + 1, broker
        moment = time.monotonic()
        # The remap is repeated beside this; whoever was killed comes back when another one reigns.
        command = asyncio.run_coroutine_threadsafe(self._until_done(number), self._operator.loop)
        try:
            wait_until(lambda: self._kill is None or command.done(), MASTER_S, "the kill")
            counts["failovers inside a remap"] += self._kill is None
            if self._kill is not None:
                self._kill = None
                broker.child.kill()
            counts["failovers"] += 1
            wait_until(lambda: not broker.child.alive, MASTER_S, "its end")
            one.controllers.wait_for_master(
                name, other_than=before.master_id, timeout_s=MASTER_S
            )  # fmt: skip
            broker.start()
        finally:
            command.result()
        pause_s = self._thread.call(_pause(load, moment))
        self._outcome.failover_pauses_s.append(pause_s)

    def _remap(self, number: int) -> None:
        self._operator.call(self._until_done(number))

    async def _until_done(self, number: int) -> None:
        """Type the same command until it succeeds."""
        counts = self._outcome.counts
        deadline = time.monotonic() + self._options.patience
        while True:
            try:
                await self._move(MOVES[number % len(MOVES)])
            except RmqhaError as error:
                counts["commands that were repeated"] += 1
                if time.monotonic() > deadline:
                    print(f"  remap {number} never got through: {error}", flush=True)
                    counts["remaps that never got through"] += 1
                    return
                await asyncio.sleep(AGAIN_S)
            else:
                counts["remaps"] += 1
                return

    async def _create(self) -> None:
        queues = self._options.queues
        if self._java is not None:
            await self._type("updateStaticTopic", "-qn", str(queues), "-b", NAMES[0])
            return
        await self._carry_out(
            update_static_topic.run(
                (self._server,), TOPIC, queues, (NAMES[0],), (), None, False, False, _here()
            )
        )

    async def _move(self, names: tuple[str, ...]) -> None:
        if self._java is not None:
            await self._type("remappingStaticTopic", "-b", ",".join(names))
            return
        await self._carry_out(
            remapping_static_topic.run(
                (self._server,), TOPIC, names, (), None, False, False, _here()
            )
        )

    async def _type(self, command: str, *words: str) -> None:
        """Have the real mqadmin do it, and kill at some moment of the time that it may take."""
        assert self._java is not None
        loop = asyncio.get_running_loop()
        kill = loop.create_task(self._kill_after(self._rng.uniform(0.0, self._java.last_s)))
        try:
            await loop.run_in_executor(None, self._java.run, command, TOPIC, *words)
        finally:
            kill.cancel()

    async def _kill_after(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        if self._kill is not None:
            broker, self._kill = self._kill, None
            await asyncio.get_running_loop().run_in_executor(None, broker.child.kill)

    async def _carry_out(self, exchange: Exchange[Report]) -> None:
        self._calls_now = 0
        report = await self._drive(exchange)
        while report.then is not None:
            report = await self._drive(report.then)
        if report.failures:
            raise report.failures[0]
        self._calls = self._calls_now

    async def _drive(self, exchange: Exchange[Report]) -> Report:
        """Carry out an exchange, and kill before the call that was chosen."""
        answer, error = None, None
        try:
            while True:
                call = exchange.send(answer) if error is None else exchange.throw(error)  # type: ignore[arg-type]  # the first is None
                answer, error = None, None
                self._calls_now += 1
                await self._perhaps_kill()
                try:
                    answer = await self._client.invoke(call.address, call.command, call.timeout_ms)
                except RmqhaError as raised:
                    error = Unreachable(str(raised))
        except StopIteration as end:
            found: Report = end.value
            return found

    async def _perhaps_kill(self) -> None:
        if self._kill is None:
            return
        self._before_call -= 1
        if self._before_call > 0:
            return
        broker, self._kill = self._kill, None
        delay_s = self._rng.choice((0.0, self._rng.uniform(0.0, KILL_DELAY_S)))
        loop = asyncio.get_running_loop()
        if delay_s:
            loop.call_later(delay_s, lambda: loop.run_in_executor(None, broker.child.kill))
        else:
            await loop.run_in_executor(None, broker.child.kill)

    def _say(self, done: int, load: StaticLoad) -> None:
        counts = self._outcome.counts
        print(
            f"  {done} remaps, {counts['failovers']} failovers, "
            f"{load.ledger.acknowledged} acknowledged, "
            f"{counts['commands that were repeated']} commands repeated",
            flush=True,
        )


async def _make_client() -> RemotingClient:
    return RemotingClient(TcpNetwork(), SystemClock(), RemotingSettings())


async def _pause(load: StaticLoad, begun: float) -> float:
    """The longest pause of a queue since a moment, when all have gone on since."""
    ended = time.monotonic()
    while time.monotonic() - ended < GO_ON_S:
        if all(moments and moments[-1] > ended for moments in load.acked_at.values()):
            break
        await asyncio.sleep(0.01)
    return load.longest_pause_s(begun, time.monotonic())


def _here() -> Here:
    return Here(int(time.time() * 1000), random.getrandbits(64))


def _story(
    sets: Mapping[str, Cluster], options: argparse.Namespace, folder: Path, *, is_real: bool
) -> Outcome:
    if not is_real:
        return Story(sets, options).run()
    with JavaMqadmin(folder / "mqadmin", sets[NAMES[0]].name_server.address) as java:
        return Story(sets, options, java).run()


def run(options: argparse.Namespace) -> int:
    """Run all kinds and print the table; the exit status, 1 if ours has lost anything."""
    outcomes: dict[str, Outcome] = {}
    for kind in options.kinds.split(","):
        print(f"{kind}:", flush=True)
        folder = Path(tempfile.mkdtemp(prefix=f"bench-remaps-{kind}-", dir=options.folder))
        sets = make_sets(kind, options.replicas, folder)
        is_real = kind == "java" and options.mqadmin == "java"
        children = [child for one in sets.values() for child in one.children]
        try:
            with tails_on_failure(lambda: children):  # noqa: B023 - used within the turn
                sets[NAMES[0]].start()
                sets[NAMES[1]].join_all()
                outcomes[kind] = _story(sets, options, folder, is_real=is_real)
        finally:
            for one in reversed(sets.values()):
                one.close()
            if not options.keep:
                shutil.rmtree(folder, ignore_errors=True)
        for example in (*outcomes[kind].read.examples, *outcomes[kind].live.examples):
            print(f"  {example}")
    print(f"\n{machine()}; {options.replicas} replicas a set, {options.queues} logical queues\n")
    print(table(outcomes))
    if options.json:
        raw = {kind: to_builtins(one) for kind, one in outcomes.items()}
        write_json(Path(options.json), {"machine": machine(), "outcomes": raw})
    return int(not all(one.is_clean for kind, one in outcomes.items() if kind == "rmqha"))
