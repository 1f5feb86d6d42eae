"""Asks controllers, name servers and brokers, all at once, with a deadline for each question.

Whoever does not answer is a fact with its reason. Nothing that is asked here changes anything.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

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
    """

    def __init__(self, client: RemotingClient, clock: Clock, timeout_ms: int) -> None:
        self._client = client
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._turns = asyncio.Semaphore(AT_ONCE_MAX)

    async def _ask(self, address: str, code: RequestCode, body: bytes = b"") -> Reply:
        command = RemotingCommand(code, body=body)
        try:
            return Reply(await self._client.invoke(address, command, self._timeout_ms), None)
        except (ConnectFailed, ConfigInvalid) as error:
            return Reply(None, Silent(False, str(error)))
        except (ConnectionLost, RequestTimeout, RemoteProtocolError) as error:
            return Reply(None, Silent(True, str(error)))

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
                return ControllerFacts(address, silent)
            if answer.code != ResponseCode.SUCCESS:
                return ControllerFacts(address, refused=_refusal(answer))
            view, config = await asyncio.gather(
                self._ask(address, RequestCode.GET_CONTROLLER_VIEW),
                self._ask(address, RequestCode.GET_CONTROLLER_CONFIG),
            )
        fields = answer.ext_fields or {}
        return ControllerFacts(
            address,
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
            return NameServerFacts(address, silent)
        if answer.code != ResponseCode.SUCCESS:
            return NameServerFacts(address, refused=_refusal(answer))
        return NameServerFacts(address, sets=ClusterInfo.decode(answer.body).broker_addr_table)

    async def brokers(self, listed: Mapping[str, str]) -> tuple[BrokerFacts, ...]:
        """Ask brokers, given by address with the set that each is known in."""
        return tuple(await asyncio.gather(*(self._broker(*one) for one in listed.items())))

    async def _broker(self, address: str, name: str) -> BrokerFacts:
        async with self._turns:
            asked = [self._ask(address, code) for code in _OF_A_BROKER]
            replies = await asyncio.gather(*asked)
        told_ms = self._clock.wall_ms()
        if all(one.answer is None for one in replies):
            return BrokerFacts(address, name, replies[0].silent)
        runtime_body, ha, epochs, config, topics = (one.body for one in replies)
        runtime = decode_table(runtime_body) if runtime_body else {}
        theirs_ms = broker_clock_ms(runtime)
        return BrokerFacts(
            address,
            name,
            runtime=runtime,
            ha=ha_facts(ha, theirs_ms) if ha else None,
            epochs=EpochEntryCache.decode(epochs) if epochs else None,
            config=parse_properties(text_of(config)) if config else {},
            topics=topic_names(topics) if topics else None,
            clock_ahead_ms=None if theirs_ms is None else theirs_ms - told_ms,
        )


def _refusal(answer: RemotingCommand) -> str:
    words = re.sub(r"\s+", " ", answer.remark or "").strip()
    return f"code {answer.code} {words}".strip()[:200]
