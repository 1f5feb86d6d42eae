"""One cell: a cluster at hosts of its own, clients at work, and round after round of faults.

A round waits until all replicas are in sync, breaks something, heals it after a while, and waits until
the set is whole again. At the end everything that was acknowledged must be read, in order, and the
replicas' logs must be the same bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec

from rmqha.chaos.aio.breaker import Breaker
from rmqha.chaos.aio.disks import Disks
from rmqha.chaos.aio.judge import Clients, Judge, Say
from rmqha.chaos.aio.links import Links
from rmqha.chaos.aio.load import Load
from rmqha.chaos.aio.nodes import Kinds, Nodes
from rmqha.chaos.aio.services import SETTINGS, Services
from rmqha.chaos.aio.watch import RoutedClient, Watch, first_since
from rmqha.chaos.course import ACKS_PER_S_MIN, Course
from rmqha.chaos.outcome import Cell, Round
from rmqha.chaos.scenarios import ON_DISKS, Fault, Kind, Members, Scenario, draw
from rmqha.chaos.stages import told_by, with_stages
from rmqha.runtime.aio.clock import SystemClock
from rmqha.runtime.aio.net import TcpNetwork
from rmqha.testing.client import ClusterClient, NotYet
from rmqha.testing.histories import ClusterHistory

ACKS, ACKS_TO_FLIP = 10, 200
"""Before each round; where bits flip the log must be longer than what is left alone of it."""
PAUSE_BETWEEN_SENDS_MS = 1.0
PAUSE_BETWEEN_READS_MS = 20.0
START_S = 150.0
WHOLE_S = 120.0
SCRUBS: Mapping[str, object] = {
    "scrubPassIntervalMs": 1_000, "scrubBytesPerSecond": 64 << 20, "uncheckedTailBytes": 64 << 10,
}  # fmt: skip
"""Where bits flip: a log of minutes must be read again at once, and nothing of it counts as what is in
memory as it was written, for the bits flip there as well."""
NEEDED_S = 20.0
"""For a master and a leader that a scenario needs as its victims."""


async def play(
    name: str,
    scenarios: Sequence[Scenario],
    kinds: Kinds,
    seed: int,
    course: Course,
    folder: Path,
    say: Say,
    links: Callable[[], Links],
) -> Cell:
    """Play a cell to its end.

    Args:
        name: of the cell.
        scenarios: of its rounds, in turn.
        kinds: what the cluster is made of.
        seed: with the name and the scenarios it draws the same faults again.
        course: how many, and for how long.
        folder: for all nodes; made here.
        say: told of each round.
        links: makes the hosts.

    Raises:
        HostsUnavailable: this machine has no hosts to give.
        NotYet: the cluster never became whole in the first place.
    """
    clock = SystemClock()
    begun_ms = clock.now_ms()
    cell = begun(name, kinds, seed, course)
    kinds = _with_needs(kinds, scenarios, course)
    history = None if course.history is None else ClusterHistory(course.history, name)
    async with contextlib.AsyncExitStack() as at_end:
        hosts = links()
        at_end.callback(hosts.close)
        cell.links_by = hosts.links_by
        disks = Disks() if any(one.kind in ON_DISKS for one in scenarios) else None
        if disks is not None:
            at_end.callback(disks.close)
        nodes = Nodes(folder, hosts, kinds, disks)
        at_end.callback(nodes.close)
        player = _Player(scenarios, cell, nodes, Breaker(nodes, hosts, disks), course, history, say)
        at_end.push_async_callback(player.close)
        try:
            await player.play(random.Random(f"{name} {seed}"))
        except BaseException:
            say(nodes.logs())
            raise
    cell.took_s = (clock.now_ms() - begun_ms) / 1000
    return cell


def _with_needs(kinds: Kinds, scenarios: Sequence[Scenario], course: Course) -> Kinds:
    """What must be set for these scenarios to show something; whatever was asked for goes before it."""
    if any(one.kind is Kind.FLIPPED_BITS for one in scenarios):
        kinds = msgspec.structs.replace(kinds, settings={**SCRUBS, **kinds.settings})
    if course.services:
        kinds = msgspec.structs.replace(kinds, settings={**SETTINGS, **kinds.settings})
    jumps = any(one.kind is Kind.CLOCK_JUMP for one in scenarios)
    return msgspec.structs.replace(kinds, jumps=jumps)


def begun(name: str, kinds: Kinds, seed: int, course: Course) -> Cell:
    """A cell of which nothing has been played yet."""
    first, *more = course.words
    asked = [first, *["short"] * kinds.short, *more, *_pairs(kinds.controller_settings)]
    settings = " ".join(_pairs(kinds.settings))
    return Cell(
        name, kinds.controllers, kinds.brokers, seed, kinds.replicas, ", ".join(asked), settings
    )


def _pairs(settings: Mapping[str, object]) -> list[str]:
    return [f"{key}={value}" for key, value in sorted(settings.items())]


class _Player:
    def __init__(
        self, scenarios: Sequence[Scenario], cell: Cell, nodes: Nodes, breaker: Breaker, course: Course,
        history: ClusterHistory | None, say: Say,
    ) -> None:  # fmt: skip
        self._scenarios, self._cell, self._nodes, self._breaker = scenarios, cell, nodes, breaker
        self._course, self._say = course, say
        self._clock = SystemClock()
        network = TcpNetwork()
        self._outsider = ClusterClient(nodes.plan, network, self._clock)
        self._client = RoutedClient(nodes.plan, network, self._clock, history)
        self._watch = Watch(self._outsider, nodes.name_server.address)
        self._services: Services | None = None
        if course.services:
            self._services = Services(
                self._client, network, self._clock, self._process_of, cell.seed
            )
        self._loads = [
            Load(
                self._client,
                f"chaos-{n}",
                PAUSE_BETWEEN_SENDS_MS,
                PAUSE_BETWEEN_READS_MS,
                course.batch,
            )
            for n in range(course.topics)
        ]
        clients = Clients(self._outsider, self._client, self._loads, self._services)
        self._judge = Judge(cell, nodes, clients, self._in_sync_since, say)

    def _process_of(self, address: str) -> int:
        child = self._nodes.children.get(self._nodes.addresses.get(address, ""))
        return child.pid if child is not None and child.alive else 0

    async def close(self) -> None:
        if self._services is not None:
            await self._services.close()
        await self._watch.close()
        await self._client.close()
        await self._outsider.close()

    async def play(self, rng: random.Random) -> None:
        begun_ms, begun_wall_ms = self._clock.now_ms(), self._clock.wall_ms()
        self._nodes.start()
        self._watch.start()
        await self._outsider.until(self._in_sync_since(0), "set in sync", START_S)
        for load in self._loads:
            load.start()
        if self._services is not None:
            self._services.start()
        for number in range(self._course.rounds):
            scenario = self._scenarios[number % len(self._scenarios)]
            more = ACKS_TO_FLIP if scenario.kind is Kind.FLIPPED_BITS else ACKS
            await self._loads[0].wait_for_acks(more, WHOLE_S)
            await self._wait_for_share(number)
            fault = await self._draw(scenario, rng)
            found = await self._round(number, fault, begun_ms)
            self._cell.rounds.append(found)
            self._say(f"  {number + 1}/{self._course.rounds} {_told(found)}")
            if found.whole_ms is None:
                self._cell.broken.append(f"round {number}: not whole after {WHOLE_S:g} s")
                break
            await self._clock.sleep(self._course.pause_ms)
        self._cell.flipped_bits = self._breaker.flipped
        # Not those that come of the brokers' end.
        self._cell.elections = max(0, len(self._watch.elected) - 1)
        await self._judge.judge()
        self._cell.broken += self._watch.broken
        told = [one for text in self._nodes.outputs() for one in told_by(text.splitlines())]
        rounds = self._cell.rounds
        self._cell.rounds = [with_stages(one, begun_wall_ms, told) for one in rounds]

    async def _wait_for_share(self, number: int) -> None:
        """Wait for the messages that are to be acknowledged before a round's fault."""
        goal = self._course.acknowledged_before(number)

        def lacks() -> int:
            return goal - sum(load.ledger.acknowledged for load in self._loads)

        async def there() -> bool:
            return lacks() <= 0

        wait_s = WHOLE_S + max(0, lacks()) / ACKS_PER_S_MIN
        await self._outsider.until(there, f"{goal} acknowledged messages", wait_s)

    def _in_sync_since(self, moment_ms: int) -> Callable[[], Awaitable[bool]]:
        """Whether all are in sync, by an answer to what was asked since a moment."""

        async def asked() -> bool:
            return self._watch.is_in_sync(len(self._nodes.brokers), moment_ms)

        return asked

    async def _draw(self, scenario: Scenario, rng: random.Random) -> Fault:
        brokers = tuple(one.name for one in self._nodes.brokers)
        controllers = tuple(one.name for one in self._nodes.controllers)
        drawn: list[Fault] = []

        async def there() -> bool:
            now = self._watch.now
            leader = await self._outsider.leader()
            named = {one.address: one.name for one in self._nodes.controllers}
            members = Members(
                brokers, controllers,
                self._nodes.addresses.get((now.master_address if now else None) or ""),
                named.get(leader or ""),
            )  # fmt: skip
            fault = draw(scenario, rng, members)
            if fault is not None:
                drawn.append(fault)
            return bool(drawn)

        await self._outsider.until(there, "master and leader", NEEDED_S)
        return drawn[0]

    async def _round(self, number: int, fault: Fault, begun_ms: int) -> Round:
        at_ms = self._clock.now_ms()
        if fault.kind is Kind.CUT_AND_CRASH:
            await asyncio.to_thread(self._breaker.cut_links, fault)
            await self._clock.sleep(self._course.fault_ms / 2)
        flipped = self._breaker.flipped
        await asyncio.to_thread(self._breaker.inject, fault)
        if fault.kind is Kind.FLIPPED_BITS and self._breaker.flipped == flipped:
            self._cell.broken.append(f"round {number}: there was no bit to flip")
        await self._clock.sleep(max(0, self._course.fault_ms - (self._clock.now_ms() - at_ms)))
        healed_ms = self._clock.now_ms()
        await asyncio.to_thread(self._breaker.heal, fault)
        whole_since = self._in_sync_since(self._clock.now_ms())
        whole_ms: int | None = None
        try:
            await self._outsider.until(self._served_since(healed_ms), "acknowledgement", WHOLE_S)
            await self._outsider.until(whole_since, "set in sync", WHOLE_S)
            whole_ms = self._clock.now_ms() - healed_ms
        except NotYet as error:
            self._say(f"  {error}")
        return Round(
            number, fault.text, fault.count, at_ms - begun_ms, healed_ms - at_ms,
            elected_ms=first_since(self._watch.elected, at_ms),
            routed_ms=first_since(self._watch.routed, at_ms),
            first_ack_ms=self._first_ack_since(at_ms), out_ms=self._longest_gap_ms(at_ms),
            back_ms=self._first_ack_since(healed_ms), whole_ms=whole_ms,
        )  # fmt: skip

    def _served_since(self, moment_ms: int) -> Callable[[], Awaitable[bool]]:
        async def asked() -> bool:
            return self._first_ack_since(moment_ms) is not None

        return asked

    def _first_ack_since(self, moment_ms: int) -> int | None:
        """From a moment until the first acknowledgement of what was sent after it."""
        found = [load.first_ack_after(moment_ms, "") for load in self._loads]
        times = [one.acked_ms - moment_ms for one in found if one is not None]
        return min(times, default=None)

    def _longest_gap_ms(self, since_ms: int) -> int:
        times = sorted(a.acked_ms for load in self._loads for a in load.acks_since(since_ms))
        moments = [since_ms, *times, self._clock.now_ms()]
        return max(later - before for before, later in pairwise(moments))


def _told(found: Round) -> str:
    out = f"out for {found.out_ms} ms"
    whole = "not whole" if found.whole_ms is None else f"whole {found.whole_ms} ms after healing"
    return f"{found.fault}: {out}, {whole}"
