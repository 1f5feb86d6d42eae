"""Who is what in a cluster, by the word of its controllers and name servers; nothing is changed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection

from msgspec import Struct

from rmqha.base.errors import LocalProtocolError, RmqhaError
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.bodies import (
    BrokerReplicasInfo,
    ClusterInfo,
    ReplicasInfo,
    SyncStateSet,
    encode_names,
)
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.frame import encode_head
from rmqha.remoting.headers import int_field, text_field
from rmqha.remoting.settings import RemotingSettings
from rmqha.runtime.ports import Clock, Network
from rmqha.testing.settings import BROKER_NAME, Plan

ASK_TIMEOUT_MS = 500
RETRY_S = 0.005


class NotYet(AssertionError):
    """Something did not come true in time."""


class RefusedForGood(NotYet):
    """A request that no master will ever take: a topic's name that cannot be, a body too large."""


class SetInfo(Struct, frozen=True):
    """A broker set by the controllers' word (1004).

    Attributes:
        master_address: None without a master.
    """

    master_id: int | None
    master_address: str | None
    master_epoch: int
    sync_state_set: frozenset[int]


class Asker:
    """Asks controllers and name servers.

    Args:
        plan: where everybody is.
        network, clock: the ports.

    Attributes:
        last_look: why no master was found when one was last looked for.
    """

    def __init__(self, plan: Plan, network: Network, clock: Clock) -> None:
        self._plan = plan
        self._broker_name = BROKER_NAME
        self.clock = clock
        self._remoting = RemotingClient(
            network, clock, RemotingSettings(connect_timeout_ms=ASK_TIMEOUT_MS)
        )
        self._leader: str | None = None
        self.last_look = "nobody was asked"

    async def ask(
        self,
        address: str,
        code: int,
        fields: dict[str, str] | None = None,
        body: bytes = b"",
        timeout_ms: int = ASK_TIMEOUT_MS,
    ) -> RemotingCommand:
        """Send one request and wait for its answer.

        Raises:
            RmqhaError: no answer.
            RefusedForGood: no connection carries such a request.
        """
        command = RemotingCommand(code, ext_fields=fields, body=body)
        try:
            return await self._remoting.invoke(address, command, timeout_ms)
        except LocalProtocolError:
            _refuse_unsendable(command)
            raise

    # -- who is what -------------------------------------------------------------------------

    async def leader(self) -> str | None:
        """Address of the controller that answers as the leader."""
        await self._ask_leader(
            RequestCode.CONTROLLER_GET_REPLICA_INFO, {"brokerName": self._broker_name}
        )
        return self._leader

    async def set_info(self) -> SetInfo | None:
        """What the controllers' leader says; None without a leader or before a broker joined."""
        fields = {"brokerName": self._broker_name}
        answer = await self._ask_leader(RequestCode.CONTROLLER_GET_REPLICA_INFO, fields)
        if answer is None or answer.code != ResponseCode.SUCCESS:
            return None
        got = answer.ext_fields
        master_id = int_field(got, "masterBrokerId", -1)
        members = SyncStateSet.decode(answer.body).broker_ids if answer.body else ()
        return SetInfo(
            master_id=None if master_id < 0 else master_id,
            master_address=text_field(got, "masterAddress", "") or None,
            master_epoch=int_field(got, "masterEpoch", 0),
            sync_state_set=frozenset(members),
        )

    async def replicas(self) -> ReplicasInfo | None:
        """Every replica by the controllers' word (1006); None without a leader or such a set."""
        code = RequestCode.CONTROLLER_GET_SYNC_STATE_DATA
        answer = await self._ask_leader(code, {}, encode_names([self._broker_name]))
        if answer is None or answer.code != ResponseCode.SUCCESS:
            return None
        return BrokerReplicasInfo.decode(answer.body).replicas_info_table.get(self._broker_name)

    async def _ask_leader(
        self, code: int, fields: dict[str, str], body: bytes = b""
    ) -> RemotingCommand | None:
        """Ask whoever led last, and then everybody at once."""
        if self._leader is not None:
            answer = await self._ask_as_leader(self._leader, code, fields, body)
            if answer is not None:
                return answer
            self._leader = None
        addresses = [one.address for one in self._plan.controllers]
        answers = await asyncio.gather(
            *(self._ask_as_leader(one, code, fields, body) for one in addresses)
        )
        for address, answer in zip(addresses, answers, strict=True):
            if answer is not None:
                self._leader = address
                return answer
        return None

    async def _ask_as_leader(
        self, address: str, code: int, fields: dict[str, str], body: bytes
    ) -> RemotingCommand | None:
        try:
            answer = await self.ask(address, code, fields, body)
        except RmqhaError:
            return None
        return None if answer.code == ResponseCode.CONTROLLER_NOT_LEADER else answer

    async def routed(self, name_server: str) -> dict[int, str]:
        """Broker ids and addresses that a name server lists; 0 is the master."""
        return await self.listed(name_server) or {}

    async def listed(self, name_server: str) -> dict[int, str] | None:
        """The same, of a name server that answers; None of one that does not."""
        try:
            answer = await self.ask(name_server, RequestCode.GET_BROKER_CLUSTER_INFO)
            if answer.code != ResponseCode.SUCCESS:
                return {}
            found = ClusterInfo.decode(answer.body).broker_addr_table.get(self._broker_name)
            return {} if found is None else dict(found.broker_addrs)
        except RmqhaError:
            return None

    async def master(self) -> str | None:
        """The master that clients find: the controllers' word, and every reachable name server's."""
        return await self.agreed_master(())

    async def agreed_master(self, answering: Collection[str]) -> str | None:
        """The same, where some name servers have to answer; others are passed over if they do not."""
        info = await self.set_info()
        if info is None or info.master_address is None:
            self.last_look = "the controllers name no master"
            return None
        servers = [one.address for one in self._plan.name_servers]
        lists = await asyncio.gather(*(self.listed(one) for one in servers))
        for server, listed in zip(servers, lists, strict=True):
            if listed is None and server not in answering:
                continue
            named = None if listed is None else listed.get(0)
            if named != info.master_address:
                says = "does not answer" if listed is None else f"lists {named or 'no master'}"
                self.last_look = f"{info.master_address} is master, {server} {says}"
                return None
        self.last_look = f"{info.master_address} is master"
        return info.master_address

    async def until(
        self,
        found: Callable[[], Awaitable[object]],
        what: str,
        timeout_s: float,
        detail: Callable[[], str] = lambda: "",
    ) -> None:
        """Ask until something holds.

        Raises:
            NotYet: it did not within ``timeout_s``.
        """
        deadline_ms = self.clock.now_ms() + timeout_s * 1000
        while not await found():
            if self.clock.now_ms() >= deadline_ms:
                raise NotYet(f"no {what} within {timeout_s:g} s{detail()}")
            await asyncio.sleep(RETRY_S)


def _refuse_unsendable(command: RemotingCommand) -> None:
    """Raise if it is the request that cannot be sent, and not the connection's moment."""
    try:
        encode_head(command, len(command.body))
    except LocalProtocolError as error:
        raise RefusedForGood(f"a request cannot be sent: {error}") from error
