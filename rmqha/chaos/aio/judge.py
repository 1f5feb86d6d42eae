"""The end of a cell: all is read back, everybody is stopped, and what is wrong is put into the cell."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from rmqha.base.errors import RmqhaError
from rmqha.chaos.aio.load import Load
from rmqha.chaos.aio.nodes import Nodes
from rmqha.chaos.aio.reread import read_again
from rmqha.chaos.aio.same_bytes import equal_bytes, used_end
from rmqha.chaos.aio.services import Services
from rmqha.chaos.outcome import Cell
from rmqha.remoting.broker_figures import read_figures
from rmqha.remoting.codes import RequestCode
from rmqha.testing.client import ClusterClient, NotYet
from rmqha.testing.settings import Place
from rmqha.testing.workload import stop_all

DRAIN_S = 60.0
SERVED_S = 60.0
"""Until each service was used in a set that is whole."""
SYNC_AGAIN_S = 120.0
MENDED_S = 30.0
"""Until the replicas' logs are the same; after bits of them flipped they have to mend each other's."""
LOOK_S = 0.5
REFUSED_TOLD = 3
"""Of places that a broker does not give out."""

Say = Callable[[str], None]


class Clients(NamedTuple):
    """Who has used the cluster, and who may ask it.

    Attributes:
        outsider: asks the controllers.
        client: believes the name server.
        services: None where none were used.
    """

    outsider: ClusterClient
    client: ClusterClient
    loads: Sequence[Load]
    services: Services | None


class Judge:
    """Ends one cell.

    Args:
        cell: gets what was found.
        nodes, clients: of the cell.
        is_in_sync: whether all replicas are, by an answer to what was asked since a moment.
        say: told of what a broker does not give out.
    """

    def __init__(
        self, cell: Cell, nodes: Nodes, clients: Clients,
        is_in_sync: Callable[[int], Callable[[], Awaitable[bool]]], say: Say,
    ) -> None:  # fmt: skip
        self._cell, self._nodes, self._say = cell, nodes, say
        self._outsider, self._client, self._loads, self._services = clients
        self._clock = clients.outsider.clock
        self._is_in_sync = is_in_sync

    async def judge(self) -> None:
        """Read everything back, stop everybody, and compare the logs."""
        cell = self._cell
        is_whole = bool(cell.rounds) and cell.rounds[-1].whole_ms is not None
        if self._services is not None:
            await self._services.finish(SERVED_S if is_whole else 0.0)
            cell.broken += self._services.broken
            cell.services = dict(sorted(self._services.happened.items()))
        cell.broken += await stop_all(self._loads, DRAIN_S)
        for load in self._loads:
            ledger = load.ledger
            cell.acknowledged += ledger.acknowledged
            cell.refused += ledger.refused
            cell.duplicates += ledger.duplicates
            cell.consumed += ledger.consumed
            cell.damaged += ledger.damaged
            cell.lost += [f"{load.topic} {number}" for number in ledger.lost]
            cell.broken += load.broken()
        if is_whole:
            await self._wait_for_sync()
            await self._read_again()
            await self._compare()
        cell.broken += self._nodes.ends()

    async def _wait_for_sync(self) -> None:
        """A set that was whole after its last round still is, or is again in time."""
        asked = self._is_in_sync(self._clock.now_ms())
        try:
            await self._outsider.until(asked, "set in sync at the end", SYNC_AGAIN_S)
        except NotYet as error:
            self._cell.broken.append(str(error))

    async def _read_again(self) -> None:
        """All of it once more, at the master: what was read along may have broken since then."""
        master = await self._client.master()
        for load in self._loads:
            found = await read_again(
                self._outsider, self._clock, master or "", load.topic, load.ledger.ends
            )
            # What the consumer was given damaged is so in the end as well, or was mended meanwhile.
            self._cell.damaged += max(0, found.damaged - load.ledger.damaged)
            if found.deleted:
                self._cell.broken.append(
                    f"{load.topic}: the broker deleted its {found.deleted} oldest messages, which"
                    " therefore count as lost; its disk was full, or it keeps files for too short"
                )
            for told in found.refused[:REFUSED_TOLD]:
                self._say(f"  {master} does not give out {told}")
            known = set(self._cell.lost)
            numbers = (n for n in range(load.ledger.acknowledged) if n not in found.whole)
            gone = (f"{load.topic} {number}" for number in numbers)
            self._cell.lost += [one for one in gone if one not in known]

    async def _compare(self) -> None:
        """Have the logs become the same, and be that still when the brokers have ended.

        Brokers end one after another, and whoever is left may write something: what they had when all
        were the same is compared, and no more.
        """
        end: int | None = None
        try:
            end = await self._common_end()
        except ValueError as error:
            self._cell.broken.append(str(error))
        for place in self._nodes.brokers:
            await asyncio.to_thread(self._nodes.children[place.name].terminate)
        if end is None:
            return
        try:
            self._cell.bytes_equal = await asyncio.to_thread(self._equal_bytes, end)
        except ValueError as error:
            self._cell.broken.append(f"after the brokers' end: {error}")

    async def _common_end(self) -> int:
        """Wait until all logs end at one place and hold the same up to it, and tell the place."""
        until_ms = self._clock.now_ms() + MENDED_S * 1000
        while True:
            try:
                ends = {place.name: await self._end(place) for place in self._nodes.brokers}
                if len(set(ends.values())) != 1:
                    raise ValueError(f"the logs of replicas in sync end at {ends}")
                end = ends.popitem()[1]
                await asyncio.to_thread(self._equal_bytes, end)
                return end
            except ValueError:
                if self._clock.now_ms() >= until_ms:
                    raise
            await self._clock.sleep(LOOK_S * 1000)

    async def _end(self, place: Place) -> int:
        """Where a replica's log ends; raises ValueError if it does not say."""
        if self._nodes.erase_what_they_cut:
            return await asyncio.to_thread(used_end, self._nodes.commit_log(place.name))
        try:
            answer = await self._outsider.ask(place.address, RequestCode.GET_BROKER_RUNTIME_INFO)
            end = read_figures(bytes(answer.body)).max_offset
        except RmqhaError as error:
            raise ValueError(f"{place.name} does not say where its log ends: {error}") from error
        if end is None:
            raise ValueError(f"{place.name} does not say where its log ends")
        return end

    def _equal_bytes(self, end: int) -> int:
        logs = [self._nodes.commit_log(place.name) for place in self._nodes.brokers]
        return min(equal_bytes(logs[0], other, end) for other in logs[1:])
