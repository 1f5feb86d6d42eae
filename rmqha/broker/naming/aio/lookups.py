"""Looks up name servers and controllers again and again: by DNS, or at an address server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence

from rmqha.base.errors import LookupFailed
from rmqha.broker.common.settings import BrokerConfig
from rmqha.broker.naming.address_list import AddressList, listed_in
from rmqha.remoting.address import format_address, parse_address
from rmqha.runtime.aio.tasks import Tasks
from rmqha.runtime.logs import Logger
from rmqha.runtime.ports import Clock, Names

LOOKUP_TIMEOUT_MS = 5_000
FIRST_MS_MAX = 3_000
"""So long a start waits for the first look-ups; who is found later is told as soon as that."""


class AddressLookup:
    """Keeps one list up to date.

    Args:
        listed: what is known.
        ask: looks a name up; may raise LookupFailed.
        on_change: told the addresses whenever there are others, and whether the same name had some
            before.
        may_shrink: see ``AddressList.found``.
    """

    def __init__(
        self,
        listed: AddressList,
        ask: Callable[[str], Awaitable[Sequence[str]]],
        clock: Clock,
        log: Logger,
        *,
        on_change: Callable[[tuple[str, ...], bool], None],
        may_shrink: Callable[[], bool] = lambda: True,
    ) -> None:
        self.listed = listed
        self._ask = ask
        self._clock = clock
        self._log = log
        self._on_change = on_change
        self._may_shrink = may_shrink
        self._due = asyncio.Event()
        self.looked = asyncio.Event()

    async def run(self) -> None:
        """Look up until it is cancelled."""
        while True:
            self._due.clear()
            await self._look()
            self.looked.set()
            timer = self._clock.call_later(self.listed.pause_ms, self._due.set)
            await self._due.wait()
            timer.cancel()

    async def _look(self) -> None:
        listed = self.listed
        known = listed.addresses
        try:
            found = await self._ask(listed.name)
        except LookupFailed as error:
            notes = listed.failed(str(error))
        else:
            notes = listed.found(found, may_shrink=self._may_shrink())
        if listed is not self.listed:
            return  # another name is looked up by now
        for note in notes:
            self._log.note(note)
        if listed.addresses != known:
            self._on_change(listed.addresses, bool(known))

    def rename(self, listed: AddressList) -> None:
        """Look another name up from here on, at once; what is known counts until it has addresses."""
        self.listed = listed
        self._due.set()


class Lookups:
    """What one broker looks up.

    Args:
        names: where; None where nothing is looked up.
        on_name_servers: told the addresses whenever there are others.
        on_controllers: likewise, and whether they are the same group as before.
        may_forget: whether fewer controllers than before may be believed.

    Attributes:
        name_servers: those that are known now.
    """

    def __init__(
        self, config: BrokerConfig, names: Names | None, clock: Clock, log: Logger, *,
        on_name_servers: Callable[[tuple[str, ...]], None],
        on_controllers: Callable[[tuple[str, ...], bool], None],
        may_forget: Callable[[], bool],
    ) -> None:  # fmt: skip
        self._names = names
        self._on_name_servers = on_name_servers
        self._on_controllers = on_controllers
        wanted = self._wanted = config.lookups
        self.name_servers = () if wanted.finds_name_servers else config.name_servers
        self._running: list[AddressLookup] = []
        self._controllers: AddressLookup | None = None
        if wanted.finds_name_servers:
            by_dns, period_ms = wanted.namesrv_by_dns, wanted.namesrv_period_ms
            listed = (
                AddressList("namesrvAddr", config.name_servers[0], period_ms)
                if by_dns
                else AddressList("rmqAddressServerDomain", wanted.address_server, period_ms)
            )
            ask = self._resolve if by_dns else self._fetch
            self._running.append(
                AddressLookup(listed, ask, clock, log, on_change=self._name_servers_found)
            )
        if wanted.controllers_by_dns:
            self._controllers = AddressLookup(
                self._behind(config.controllers[0]), self._resolve, clock, log,
                on_change=on_controllers, may_shrink=may_forget,
            )  # fmt: skip
            self._running.append(self._controllers)

    def _behind(self, name: str) -> AddressList:
        return AddressList("controllerAddr", name, self._wanted.controllers_period_ms)

    async def start(self, tasks: Tasks) -> None:
        """Begin, and wait for the first look-ups, ``FIRST_MS_MAX`` at most, whatever they bring."""
        for one in self._running:
            tasks.start(one.run(), name=f"look-up of {one.listed.key}")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_MS_MAX / 1000):
                for one in self._running:
                    await one.looked.wait()

    def controllers_named(self, addresses: tuple[str, ...]) -> None:
        """``controllerAddr`` is another one: its addresses are told, or first looked up."""
        if self._controllers is None:
            self._on_controllers(addresses, False)
        else:
            self._controllers.rename(self._behind(addresses[0]))

    def _name_servers_found(self, addresses: tuple[str, ...], _: bool) -> None:
        self.name_servers = addresses
        self._on_name_servers(addresses)

    async def _resolve(self, name: str) -> list[str]:
        host, port = parse_address(name)
        found = await self._port().resolve(host, timeout_ms=LOOKUP_TIMEOUT_MS)
        return [format_address(address, port) for address in found]

    async def _fetch(self, url: str) -> list[str]:
        return listed_in(await self._port().get(url, timeout_ms=LOOKUP_TIMEOUT_MS))

    def _port(self) -> Names:
        if self._names is None:
            raise LookupFailed("there is nobody to ask")
        return self._names
