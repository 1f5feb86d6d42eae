"""Requests to other broker sets: to the master of the moment, as name servers know it.

Name servers also know which sets have a topic, and which of them leads a logical queue of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from rmqha.base.errors import ConnectFailed, ConnectionLost, RmqhaError
from rmqha.base.ids import MASTER_ID
from rmqha.client.logical import leaders
from rmqha.client.routes import TopicRoute
from rmqha.remoting import fastjson
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.bodies import BrokerMemberGroup
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import ext_fields
from rmqha.remoting.values import as_object
from rmqha.runtime.ports import Clock

ROUTE_TIMEOUT_MS = 1_000
KNOWN_MS = 30_000
"""How long a master is taken for one without asking again; it tells when it is none any more."""

NOT_A_MASTER = frozenset({ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE})
"""What slaves, and replicas without a role, answer; a busy master is asked once more for nothing."""

PLACES_KEPT_MAX = 4_096
"""Topics of which it is remembered where they are."""


Found = TypeVar("Found")


class SetUnreachable(RmqhaError):
    """No name server knows a master of a broker set, or it does not answer."""


class TopicPlaces(NamedTuple):
    """Where a topic is.

    Attributes:
        leaders: the set that leads each logical queue; none for an ordinary topic.
        names: every set that has the topic.
    """

    leaders: Mapping[int, str]
    names: tuple[str, ...]


class OtherSets:
    """The way to other broker sets.

    Args:
        client: shared with the rest of the broker.
        name_servers: those that are known now; asked in order.
    """

    def __init__(
        self, client: RemotingClient, clock: Clock, name_servers: Callable[[], Sequence[str]],
        cluster_name: str,
    ) -> None:  # fmt: skip
        self._client = client
        self._clock = clock
        self._name_servers = name_servers
        self._cluster_name = cluster_name
        self._known: dict[str, tuple[str, int]] = {}
        self._places: dict[str, tuple[TopicPlaces, int]] = {}

    async def ask(
        self,
        broker_name: str,
        code: int,
        fields: Mapping[str, str],
        body: bytes = b"",
        *,
        timeout_ms: int,
    ) -> RemotingCommand:
        """Ask a set's master; when it is none any more, whoever is it now.

        A request that was sent and not answered is not sent again: it may have been done.

        Raises:
            SetUnreachable: nobody to ask, or no answer.
        """
        for is_last in (False, True):
            address = await self._master_of(broker_name)
            command = RemotingCommand(code, ext_fields=dict(fields), body=body)
            try:
                answer = await self._client.invoke(address, command, timeout_ms)
            except (ConnectFailed, ConnectionLost) as error:
                self._known.pop(broker_name, None)
                if is_last or isinstance(error, ConnectionLost):
                    raise SetUnreachable(f"{broker_name} at {address}: {error}") from error
                continue
            except RmqhaError as error:
                raise SetUnreachable(f"{broker_name} at {address}: {error}") from error
            if is_last or answer.code not in NOT_A_MASTER:
                return answer
            self._known.pop(broker_name, None)
        raise AssertionError("the last round returns or raises")

    async def _master_of(self, broker_name: str) -> str:
        now_ms = self._clock.now_ms()
        known = self._known.get(broker_name)
        if known is not None and known[1] > now_ms:
            return known[0]
        fields = ext_fields(clusterName=self._cluster_name, brokerName=broker_name)

        def read(answer: RemotingCommand) -> str | None:
            members = as_object(fastjson.loads(answer.body)) if answer.body else {}
            return BrokerMemberGroup.of(members.get("brokerMemberGroup")).broker_addrs.get(
                MASTER_ID
            )

        code = RequestCode.GET_BROKER_MEMBER_GROUP
        address = await self._told(broker_name, code, fields, read, "knows no master")
        self._known[broker_name] = address, now_ms + KNOWN_MS
        return address

    async def places(self, topic: str) -> TopicPlaces:
        """Where a topic is; what was found is remembered until it is forgotten, 30 s at most.

        Raises:
            SetUnreachable: no name server knows it.
        """
        now_ms = self._clock.now_ms()
        known = self._places.get(topic)
        if known is not None and known[1] > now_ms:
            return known[0]

        def read(answer: RemotingCommand) -> TopicPlaces | None:
            route = TopicRoute.decode(answer.body)
            led = {number: name for (_, number), name in leaders(route).items()}
            return TopicPlaces(led, tuple(group.broker_name for group in route.groups))

        fields = ext_fields(topic=topic, acceptStandardJsonOnly=True)
        code = RequestCode.GET_ROUTEINFO_BY_TOPIC
        found = await self._told(topic, code, fields, read, "knows no route")
        if len(self._places) >= PLACES_KEPT_MAX:
            self._places.clear()
        self._places[topic] = found, now_ms + KNOWN_MS
        return found

    def forget_places(self, topic: str) -> None:
        """What is remembered of a topic has turned out to be wrong."""
        self._places.pop(topic, None)

    async def _told(
        self, what: str, code: int, fields: dict[str, str],
        read: Callable[[RemotingCommand], Found | None], lacks: str,
    ) -> Found:  # fmt: skip
        """The first name server's answer that has it; raises SetUnreachable."""
        reasons: list[str] = []
        for server in tuple(self._name_servers()):
            command = RemotingCommand(code, ext_fields=fields)
            try:
                answer = await self._client.invoke(server, command, ROUTE_TIMEOUT_MS)
                found = read(answer) if answer.code == ResponseCode.SUCCESS else None
            except RmqhaError as error:
                reasons.append(f"{server}: {error}")
                continue
            if found:
                return found
            reasons.append(f"{server}: {lacks}")
        raise SetUnreachable(f"{what}: {'; '.join(reasons) or 'no name server is known'}")
