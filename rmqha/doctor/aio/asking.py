"""Asks controllers, name servers and brokers, all at once, with a deadline for each question.

Whoever does not answer is a fact with its reason. Nothing that is asked here changes anything.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

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
from rmqha.doctor.memory import Memory
from rmqha.doctor.reading import ha_facts, peers_of, topic_names, view_of
from rmqha.remoting.address import format_address, parse_address
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

T = TypeVar("T")

AT_ONCE_MAX = 64
"""Nodes that are asked at the same time."""
REASON_MAX = 200
"""Characters of what a node says, or of what is wrong with it."""
ANSWER_BYTES_MAX = 1 << 28
"""Of any server of RocketMQ; four bytes of text, read as a length, are more."""
_FRAME_LENGTH = re.compile(r"frame length (-?\d+) is outside")
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


class ToldSets(NamedTuple):
    """What a leader says of broker sets.

    Attributes:
        table: by name; None when it gives no answer.
        unreadable: why its answer says nothing; empty otherwise.
    """

    table: Mapping[str, ReplicasInfo] | None
    unreadable: str = ""


class _Reader:
    """Reads what one node answered; what cannot be read says nothing.

    Attributes:
        unreadable: why the first such answer says nothing; empty for none.
    """

    def __init__(self) -> None:
        self.unreadable = ""

    def read(self, code: RequestCode, body: bytes, decode: Callable[[bytes], T]) -> T | None:
        """The answer to a question; None where it says nothing."""
        try:
            return decode(body)
        except (RemoteProtocolError, ConfigInvalid) as error:
            words = f"its answer to {int(code)} ({code.name}) cannot be read: {error}"
            self.unreadable = self.unreadable or words[:REASON_MAX]
            return None


def _configuration(body: bytes) -> dict[str, str]:
    return parse_properties(text_of(body))


class Asker:
    """Asks nodes for facts.

    Args:
        client: the connections.
        clock: of this machine.
        timeout_ms: for each answer, connecting included.
        doors: finds out why who takes connections does not answer; None for not at all.

    Attributes:
        memory: of the looks for which it was used.
    """

    def __init__(
        self, client: RemotingClient, clock: Clock, timeout_ms: int, doors: Doors | None = None
    ) -> None:
        self._client = client
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._doors = doors
        self._turns = asyncio.Semaphore(AT_ONCE_MAX)
        self.memory = Memory()

    async def _ask(self, address: str, code: RequestCode, body: bytes = b"") -> Reply:
        command = RemotingCommand(code, body=body)
        try:
            return Reply(await self._client.invoke(address, command, self._timeout_ms), None)
        except (ConnectFailed, ConfigInvalid) as error:
            return Reply(None, Silent(False, _reason(address, error)))
        except RequestTimeout as error:
            return Reply(None, Silent(True, _reason(address, error)))
        except (ConnectionLost, RemoteProtocolError) as error:
            reason = _reason(address, error)
            return Reply(None, Silent(True, reason, ended=True, is_other=_is_other(error)))

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
        fields, reader = answer.ext_fields or {}, _Reader()
        seen = config_found = None
        if view.body:
            seen = reader.read(RequestCode.GET_CONTROLLER_VIEW, view.body, view_of)
        if config.body:
            config_found = reader.read(
                RequestCode.GET_CONTROLLER_CONFIG, config.body, _configuration
            )
        return ControllerFacts(
            address,
            denied=_denial(view.answer, config.answer),
            unreadable=reader.unreadable,
            leads=fields.get("isLeader") == "true",
            leader_address=fields.get("controllerLeaderAddress", ""),
            peers=peers_of(fields.get("peers", "")),
            view=seen,
            config=config_found or {},
        )

    async def sets(self, leader: str, names: Iterable[str]) -> ToldSets:
        """Broker sets by the leader's word."""
        code, reader = RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, _Reader()
        reply = await self._ask(leader, code, encode_names(sorted(set(names))))
        if not reply.body:
            return ToldSets(None)
        found = reader.read(code, reply.body, BrokerReplicasInfo.decode)
        table = None if found is None else found.replicas_info_table
        return ToldSets(table, reader.unreadable)

    # -- name servers and brokers ------------------------------------------------------------------

    async def name_servers(self, addresses: Iterable[str]) -> tuple[NameServerFacts, ...]:
        """Ask each name server for its broker sets."""
        return tuple(await asyncio.gather(*map(self._name_server, dict.fromkeys(addresses))))

    async def _name_server(self, address: str) -> NameServerFacts:
        async with self._turns:
            code, reader = RequestCode.GET_BROKER_CLUSTER_INFO, _Reader()
            answer, silent = await self._ask(address, code)
        if answer is None:
            return NameServerFacts(address, await self._with_door(address, silent))
        if answer.code != ResponseCode.SUCCESS:
            return NameServerFacts(address, refused=_refusal(answer), denied=_denial(answer))
        found = reader.read(code, answer.body, ClusterInfo.decode)
        sets = {} if found is None else found.broker_addr_table
        return NameServerFacts(address, unreadable=reader.unreadable, sets=sets)

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
        bodies = {
            code: one.body for code, one in zip(_OF_A_BROKER, replies, strict=True) if one.body
        }
        reader = _Reader()

        def of(code: RequestCode, decode: Callable[[bytes], T]) -> T | None:
            return reader.read(code, bodies[code], decode) if code in bodies else None

        runtime = of(RequestCode.GET_BROKER_RUNTIME_INFO, decode_table) or {}
        theirs_ms = broker_clock_ms(runtime)
        ha = of(RequestCode.GET_BROKER_HA_STATUS, lambda body: ha_facts(body, theirs_ms))
        epochs = of(RequestCode.GET_BROKER_EPOCH_CACHE, EpochEntryCache.decode)
        config = of(RequestCode.GET_BROKER_CONFIG, _configuration)
        topics = of(RequestCode.GET_ALL_TOPIC_CONFIG, topic_names)
        return BrokerFacts(
            address,
            name,
            denied=_denial(*(one.answer for one in replies)),
            unreadable=reader.unreadable,
            runtime=runtime,
            ha=ha,
            epochs=epochs,
            config=config or {},
            topics=topics,
            clock_ahead_ms=None if theirs_ms is None else _ahead_ms(theirs_ms, asked_ms, told_ms),
        )


def _ahead_ms(theirs_ms: int, asked_ms: int, told_ms: int) -> int:
    """How far a clock is ahead, at least: between question and answer any moment may be theirs."""
    return theirs_ms - min(max(theirs_ms, asked_ms), told_ms)


def _is_other(error: Exception) -> bool:
    """Whether what came is of another protocol; a connection that was lost says so in words only."""
    if isinstance(error, RemoteProtocolError) or "HTTP" in str(error):
        return True
    found = _FRAME_LENGTH.search(str(error))
    return found is not None and not 0 <= int(found[1]) < ANSWER_BYTES_MAX


def _reason(address: str, error: Exception) -> str:
    """What happened, with the address as it is written elsewhere: IPv6 in its brackets."""
    try:
        host, port = parse_address(address)
    except ConfigInvalid:
        return str(error)
    whole, bare = format_address(host, port), f"{host}:{port}"
    return str(error).replace(whole, bare).replace(bare, whole)


def _denial(*answers: RemotingCommand | None) -> str:
    """The first refusal that is for who asked; empty without one."""
    for one in answers:
        if one is not None and one.code == ResponseCode.NO_PERMISSION:
            return _refusal(one)
    return ""


def _refusal(answer: RemotingCommand) -> str:
    words = re.sub(r"\s+", " ", answer.remark or "").strip()
    return f"code {answer.code} {words}".strip()[:REASON_MAX]
