"""The cluster's verbs in its event loop; ``cluster.RmqCluster`` is what tests see."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self

from msgspec import structs

from rmqha.remoting.bodies import ReplicaIdentity, ReplicasInfo
from rmqha.runtime.aio.clock import SystemClock
from rmqha.runtime.aio.net import TcpNetwork
from rmqha.runtime.aio.tls import Tls
from rmqha.runtime.logs import Logger
from rmqha.testing.client import ClusterClient, SetInfo
from rmqha.testing.histories import ClusterHistory
from rmqha.testing.links import LinkedNetwork, Links
from rmqha.testing.nodes import Node, tell_roles
from rmqha.testing.settings import Plan, refuse_misspelt, refuse_pages, refuse_strangers
from rmqha.testing.sites import KINDS, InProcessSite, ProcessSite, Settings, Site
from rmqha.testing.traffic import TIMEOUT_S, AioMessages, raise_first

CLIENT = "client"

Target = Node | str


def _tls(plan: Plan) -> Tls | None:
    """The client's certificates: those of the nodes."""
    return Tls(plan.tls, Logger()) if plan.is_tls else None


class AioCluster(AioMessages):
    """Nodes, links between them, and a client.

    Args:
        site: where nodes run.
        history: takes what its client sends and reads.
    """

    def __init__(self, site: Site, history: ClusterHistory | None = None) -> None:
        self._site = site
        self.plan: Plan = site.plan
        self.nodes: dict[str, Node] = {one.name: site.node(one) for one in site.plan.places}
        self._client_links = Links()
        network = LinkedNetwork(TcpNetwork(_tls(site.plan)), self._client_links)
        super().__init__(ClusterClient(site.plan, network, SystemClock(), history))
        self._cut: set[frozenset[str]] = set()

    @classmethod
    async def make(
        cls,
        folder: Path,
        *,
        counts: tuple[int, int, int],
        processes: bool,
        seed: int,
        settings: Settings,
        node_settings: Mapping[str, Mapping[str, object]] | None = None,
        tls: Mapping[str, str] | None = None,
        history: Path | None = None,
    ) -> Self:
        """Prepare a cluster; nothing runs yet.

        Args:
            folder: for files.
            counts: of controllers, name servers and replicas.
            processes: whether each node has a process of its own.
            seed: for random choices.
            settings: for controllers, name servers and brokers.
            node_settings: for single nodes, by their names.
            tls: keys about TLS, of everybody.
            history: the file that takes what the client sends and reads.

        Raises:
            ValueError: a count that cannot be, a key that is misspelt, or one that only processes
                serve.
        """
        if not all(type(count) is int for count in counts):
            raise ValueError(
                f"controllers, namesrv, replicas = {counts}: not all are whole numbers"
            )
        if counts[0] < 1 or counts[1] < 0 or counts[2] < 0:
            raise ValueError(f"controllers, namesrv, replicas = {counts}: too few")
        for kind, given in zip(KINDS, settings, strict=True):
            refuse_misspelt(kind, given)
        single = node_settings or {}
        for given in () if processes else (*settings, *single.values()):
            refuse_pages(given)
        refuse_strangers(single, dict(zip(KINDS, counts, strict=True)))
        site: Site = (ProcessSite if processes else InProcessSite)(
            folder, counts, settings, seed, tls or {}
        )
        site.plan = structs.replace(site.plan, node_settings=single)
        return cls(site, None if history is None else ClusterHistory(history, str(folder)))

    def of_kind(self, kind: str) -> list[Node]:
        """All nodes of a kind."""
        return [node for node in self.nodes.values() if node.place.kind == kind]

    def node(self, target: Target) -> Node:
        """A node by its name.

        Raises:
            KeyError: there is none.
        """
        if isinstance(target, Node):
            return target
        if target not in self.nodes:
            raise KeyError(f"no node {target!r}; there are {', '.join(self.nodes)}")
        return self.nodes[target]

    # -- life --------------------------------------------------------------------------------

    async def start(self, timeout_s: float = TIMEOUT_S) -> None:
        """Start everything and wait until all is well."""
        for kind in ("controller", "namesrv"):
            await self._site.load(kind)
            await asyncio.gather(*(node.start() for node in self.of_kind(kind)))
        await asyncio.gather(self._site.load("broker"), self.wait_for_leader(timeout_s))
        await self._start_brokers(timeout_s)
        if self.of_kind("broker"):
            await self.wait_in_sync(None, timeout_s)

    async def _start_brokers(self, timeout_s: float) -> None:
        """One after another, so that ``broker-0`` has the id 1: ids go by who asks first."""
        for number, node in enumerate(self.of_kind("broker")):
            await node.start()

            async def has_its_id(wanted: int = number + 1) -> bool:
                return len(await self._known()) >= wanted

            await self.client.until(has_its_id, f"id for {node.name}", timeout_s, self._failures)

    async def _known(self) -> list[ReplicaIdentity]:
        found = await self.replicas()
        return [] if found is None else [*found.in_sync_replicas, *found.not_in_sync_replicas]

    async def close(self) -> None:
        """End everything that runs."""
        try:
            await self.close_client()
        finally:
            for node in self.nodes.values():
                node.is_stopped = False
            try:
                kills = (node.kill() for node in self.nodes.values())
                failed = await asyncio.gather(*kills, return_exceptions=True)
                # A connection over a cut link would keep its end until the link is mended.
                self._cut.clear()
                await self._apply_cuts()
            finally:
                await self._site.close()
            raise_first(failed)

    # -- breaking ----------------------------------------------------------------------------

    async def kill(self, target: Target) -> Node:
        """See ``RmqCluster``, as for all verbs here."""
        node = self.node(target)
        await node.kill()
        return node

    async def shut_down(self, target: Target) -> Node:
        """End a node in order."""
        node = self.node(target)
        await node.shut_down()
        return node

    async def restart(self, target: Target) -> Node:
        """Start a node again."""
        node = self.node(target)
        await node.shut_down()
        await node.start()
        if node.place.kind == "namesrv":
            await self._wait_listed(node)
        return node

    async def _wait_listed(self, server: Node) -> None:
        """Wait until a name server lists the master, while there is one that can tell it so."""

        async def lists() -> bool:
            info = await self.client.set_info()
            master = self._at(None if info is None else info.master_address)
            if (
                master is None
                or not self._serves(master)
                or not self._serves(server)
                or self._are_apart(master.name, server.name)
            ):
                return True
            listed = await self.client.listed(server.address)
            return listed is not None and listed.get(0) == master.address

        what = f"master in the list of {server.name}"
        await self.client.until(lists, what, TIMEOUT_S, self._failures)

    async def stop(self, target: Target) -> Node:
        """Make a node hang."""
        node = self.node(target)
        await node.stop()
        return node

    async def cont(self, target: Target) -> Node:
        """Let a node go on."""
        node = self.node(target)
        await node.cont()
        return node

    async def slow_disk(self, target: Target, delay_ms: float = 100.0) -> Node:
        """Make a disk slow."""
        if not 0 <= delay_ms < math.inf:
            raise ValueError(f"a disk cannot be slower by {delay_ms} ms")
        node = self.node(target)
        await node.slow_disk(delay_ms)
        return node

    async def partition(self, a: Target | Sequence[Target], b: Target | Sequence[Target]) -> None:
        """Cut links between nodes."""
        pairs = [(one, other) for one in self._names(a) for other in self._names(b)]
        for one, other in pairs:
            if one == other:
                raise ValueError(f"{one} cannot be cut off from itself")
        self._cut.update(map(frozenset, pairs))
        await self._apply_cuts()

    async def isolate(self, target: Target) -> None:
        """Cut every link of a node."""
        name = self.node(target).name
        await self.partition(name, [one for one in (*self.nodes, CLIENT) if one != name])

    def _names(self, targets: Target | Sequence[Target]) -> list[str]:
        if isinstance(targets, str | Node):
            targets = [targets]
        return [CLIENT if one == CLIENT else self.node(one).name for one in targets]

    async def _apply_cuts(self) -> None:
        self._client_links.cut(self._ports_cut_from(CLIENT))
        for name, node in self.nodes.items():
            await node.cut(self._ports_cut_from(name))

    def _ports_cut_from(self, name: str) -> Iterable[int]:
        for pair in self._cut:
            for other in pair - {name} if name in pair else ():
                if other != CLIENT:
                    yield from self.nodes[other].place.ports

    async def heal(self, *, restart: bool = True, timeout_s: float = TIMEOUT_S) -> None:
        """Mend every link and disk."""
        self._cut.clear()
        await self._apply_cuts()
        for node in self.nodes.values():
            await node.slow_disk(0)
            if node.is_stopped:
                await node.cont()
        if not restart:
            return
        await asyncio.gather(*(n.start() for n in self.nodes.values() if not n.is_alive))
        if self.of_kind("broker"):
            await self.wait_in_sync(len(self.of_kind("broker")), timeout_s)

    # -- looking -----------------------------------------------------------------------------

    def _at(self, address: str | None) -> Node | None:
        return next((one for one in self.nodes.values() if one.address == address), None)

    async def master(self) -> Node | None:
        """Whom clients find."""
        return self._at(await self._find_master())

    async def _find_master(self) -> str | None:
        """Its address; a name server that should answer and does not is no reason to find one."""
        servers = [one.address for one in self.of_kind("namesrv") if self._serves(one)]
        return await self.client.agreed_master(servers)

    async def leader(self) -> Node | None:
        """Who leads the controllers."""
        return self._at(await self.client.leader())

    async def set_info(self) -> SetInfo | None:
        """The controllers' word."""
        return await self.client.set_info()

    async def replicas(self) -> ReplicasInfo | None:
        """Every replica by the controllers' word."""
        found = await self.client.replicas()
        tell_roles(self.nodes.values(), await self.client.leader(), found)
        return found

    async def look(self) -> None:
        """Ask the controllers once, so that nodes show their roles."""
        await self.replicas()

    def _are_apart(self, one: str, other: str) -> bool:
        return frozenset((one, other)) in self._cut

    def _serves(self, node: Node) -> bool:
        """Whether the client can ask it."""
        return node.is_alive and not node.is_stopped and not self._are_apart(node.name, CLIENT)

    async def wait_for_master(
        self, other_than: Target | None = None, timeout_s: float = TIMEOUT_S
    ) -> Node:
        """Wait for one."""
        unwanted = None if other_than is None else self.node(other_than)
        found: list[Node] = []

        async def there() -> bool:
            node = await self.master()
            if node is None or node is unwanted or not self._serves(node):
                return False
            found.append(node)
            return True

        await self.client.until(there, "master", timeout_s, self._unfound)
        await self.look()
        return found[-1]

    async def wait_for_leader(self, timeout_s: float = TIMEOUT_S) -> Node:
        """Wait for one."""
        found: list[Node] = []

        async def there() -> bool:
            node = await self.leader()
            if node is None or not node.is_alive or node.is_stopped:
                return False
            found.append(node)
            return True

        await self.client.until(there, "controller leader", timeout_s, self._failures)
        return found[-1]

    async def wait_in_sync(self, count: int | None = None, timeout_s: float = TIMEOUT_S) -> SetInfo:
        """Wait for the SyncStateSet, and for clients to find its master."""
        last: list[SetInfo | None] = [None]

        async def whole() -> bool:
            info = last[0] = await self.client.set_info()
            if info is None or not await self._are_members(info.sync_state_set, count):
                return False
            return await self._find_master() == info.master_address is not None

        def detail() -> str:
            return f"; the controllers say {last[0]}{self._unfound()}"

        await self.client.until(whole, "whole SyncStateSet", timeout_s, detail)
        assert last[0] is not None
        await self.look()
        return last[0]

    async def _are_members(self, members: frozenset[int], count: int | None) -> bool:
        """Whether the set is of all brokers that serve; of so many, and none that does not."""
        brokers = self.of_kind("broker")
        serving = [one for one in brokers if one.is_alive and not one.is_stopped]
        if len(members) != (len(serving) if count is None else count):
            return False
        await self.look()  # for their ids
        if count is None:
            return members == {one.broker_id for one in serving}
        return members.isdisjoint(one.broker_id for one in brokers if one not in serving)

    def _unfound(self) -> str:
        """What the last look for a master saw, and what has failed."""
        return f"; {self.client.last_look}{self._failures()}"

    def _failures(self) -> str:
        failed = [f"{one.name}: {one.failure}" for one in self.nodes.values() if one.failure]
        return "; ".join(["", *failed])
