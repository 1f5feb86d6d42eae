"""Asks controllers, name servers and brokers, all at once, with a deadline for each question.

Whoever does not answer is a fact with its reason. Nothing that is asked here changes anything.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from rmqha.admin.bodies import decode_table
from rmqha.admin.commands.get_controller_config import text_of
from rmqha.base.errors import (
    ConfigInvalid,
    ConnectFailed,
    ConnectionLost,
    RemoteProtocolError,
    RequestTimeout,
)
from rmqha.client.runtime_info import broker_clock_ms
from rmqha.doctor.aio.doors import Doors
from rmqha.doctor.facts import BrokerFacts, ControllerFacts, NameServerFacts, Silent
from rmqha.doctor.reading import ha_facts, peers_of, topic_names, view_of
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.bodies import (
    BrokerReplicasInfo,
    ClusterInfo,
    EpochEntryCache,
    ReplicasInfo,
    encode_names,
)
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.runtime.ports import Clock
from rmqha.runtime.properties import parse_properties

AT_ONCE_MAX = 64
"""Nodes that are asked at the same time."""
_OF_A_BROKER = (
    RequestCode.GET_BROKER_RUNTIME_INFO,
    RequestCode.GET_BROKER_HA_STATUS,
    RequestCode.GET_BROKER_EPOCH_CACHE,
    RequestCode.GET_BROKER_CONFIG,
    RequestCode.GET_ALL_TOPIC_CONFIG,
)


class Reply(NamedTuple):
    """What came of one question: an answer, or why there is none."""

    answer: RemotingCommand | None
    silent: Silent | None

    @property
    def body(self) -> bytes:
        """The body of a good answer; empty otherwise."""
        good = self.answer is not None and self.answer.code == ResponseCode.SUCCESS
        return self.answer.body if good and self.answer is not None else b""


class Asker:
    """Asks nodes for facts.

    Args:
        client: the connections.
        clock: of this machine.
        timeout_ms: for each answer, connecting included.
        doors: finds out why who takes connections does not answer; None for not at all.
    """

    def __init__(
        self, client: RemotingClient, clock: Clock, timeout_ms: int, doors: Doors | None = None
    ) -> None:
        self._client = client
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._doors = doors
        self._turns = asyncio.Semaphore(AT_ONCE_MAX)

    async def _ask(self, address: str, code: RequestCode, body: bytes = b"") -> Reply:
        command = RemotingCommand(code, body=body)
        try:
            return Reply(await self._client.invoke(address, command, self._timeout_ms), None)
        except (ConnectFailed, ConfigInvalid) as error:
            return Reply(None, Silent(False, str(error)))
        except RequestTimeout as error:
            return Reply(None, Silent(True, str(error)))
        except (ConnectionLost, RemoteProtocolError) as error:
            return Reply(None, Silent(True, str(error), ended=True))

    async def _with_door(self, address: str, silent: Silent | None) -> Silent | None:
        """Why a node said nothing, with how it has to be spoken to if that is all.

        Not tried at one that hangs or is not there: a server that is spoken to in the wrong way ends
        the connection, or a handshake fails.
        """
        if silent is None or self._doors is None:
            return silent
        if not silent.ended and (silent.connected or not self._doors.speaks_tls):
            return silent
        return replace(silent, door=await self._doors.of(address))

    # -- controllers -----------------------------------------------------------------------------

    async def controllers(self, addresses: Iterable[str]) -> tuple[ControllerFacts, ...]:
        """Ask controllers, and the members that they name."""
        found: dict[str, ControllerFacts] = {}
        waiting = list(dict.fromkeys(addresses))
        while waiting:
            asked = await asyncio.gather(*(self._controller(one) for one in waiting))
            found |= {one.address: one for one in asked}
            named = [address for one in asked for address in one.peers.values()]
            waiting = [one for one in dict.fromkeys(named) if one not in found]
        return tuple(found.values())

    async def _controller(self, address: str) -> ControllerFacts:
        async with self._turns:
            answer, silent = await self._ask(address, RequestCode.CONTROLLER_GET_METADATA_INFO)
            if answer is None:
                return ControllerFacts(address, await self._with_door(address, silent))
            if answer.code != ResponseCode.SUCCESS:
                return ControllerFacts(address, refused=_refusal(answer), denied=_denial(answer))
            view, config = await asyncio.gather(
                self._ask(address, RequestCode.GET_CONTROLLER_VIEW),
                self._ask(address, RequestCode.GET_CONTROLLER_CONFIG),
            )
        fields = answer.ext_fields or {}
        return ControllerFacts(
            address,
            denied=_denial(view.answer, config.answer),
            leads=fields.get("isLeader") == "true",
            leader_address=fields.get("controllerLeaderAddress", ""),
            peers=peers_of(fields.get("peers", "")),
            view=view_of(view.body) if view.body else None,
            config=parse_properties(text_of(config.body)) if config.body else {},
        )

    async def sets(self, leader: str, names: Iterable[str]) -> Mapping[str, ReplicasInfo] | None:
        """Broker sets by the leader's word; None when it gives no answer."""
        body = encode_names(sorted(set(names)))
        reply = await self._ask(leader, RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body)
        if not reply.body:
            return None
        return BrokerReplicasInfo.decode(reply.body).replicas_info_table

    # -- name servers and brokers ------------------------------------------------------------------

    async def name_servers(self, addresses: Iterable[str]) -> tuple[NameServerFacts, ...]:
        """Ask each name server for its broker sets."""
        return tuple(await asyncio.gather(*map(self._name_server, dict.fromkeys(addresses))))

    async def _name_server(self, address: str) -> NameServerFacts:
        async with self._turns:
            answer, silent = await self._ask(address, RequestCode.GET_BROKER_CLUSTER_INFO)
        if answer is None:
            return NameServerFacts(address, await self._with_door(address, silent))
        if answer.code != ResponseCode.SUCCESS:
            return NameServerFacts(address, refused=_refusal(answer), denied=_denial(answer))
        return NameServerFacts(address, sets=ClusterInfo.decode(answer.body).broker_addr_table)

    async def brokers(self, listed: Mapping[str, str]) -> tuple[BrokerFacts, ...]:
        """Ask brokers, given by address with the set that each is known in."""
        return tuple(await asyncio.gather(*(self._broker(*one) for one in listed.items())))

    async def _broker(self, address: str, name: str) -> BrokerFacts:
        async with self._turns:
            asked_ms = self._clock.wall_ms()
            asked = [self._ask(address, code) for code in _OF_A_BROKER]
            replies = await asyncio.gather(*asked)
        told_ms = self._clock.wall_ms()
        if all(one.answer is None for one in replies):
            return BrokerFacts(address, name, await self._with_door(address, replies[0].silent))
        runtime_body, ha, epochs, config, topics = (one.body for one in replies)
        runtime = decode_table(runtime_body) if runtime_body else {}
        theirs_ms = broker_clock_ms(runtime)
        return BrokerFacts(
            address,
            name,
            denied=_denial(*(one.answer for one in replies)),
            runtime=runtime,
            ha=ha_facts(ha, theirs_ms) if ha else None,
            epochs=EpochEntryCache.decode(epochs) if epochs else None,
            config=parse_properties(text_of(config)) if config else {},
            topics=topic_names(topics) if topics else None,
            clock_ahead_ms=None if theirs_ms is None else _ahead_ms(theirs_ms, asked_ms, told_ms),
        )


def _ahead_ms(theirs_ms: int, asked_ms: int, told_ms: int) -> int:
    """How far a clock is ahead, at least: between question and answer any moment may be theirs."""
    return theirs_ms - min(max(theirs_ms, asked_ms), told_ms)


def _denial(*answers: RemotingCommand | None) -> str:
    """The first refusal that is for who asked; empty without one."""
    for one in answers:
        if one is not None and one.code == ResponseCode.NO_PERMISSION:
            return _refusal(one)
    return ""


def _refusal(answer: RemotingCommand) -> str:
    words = re.sub(r"\s+", " ", answer.remark or "").strip()
    return f"code {answer.code} {words}".strip()[:200]
