"""Requests to other broker sets: to the master of the moment, as name servers know it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rmqha.base.errors import ConnectFailed, ConnectionLost, RmqhaError
from rmqha.base.ids import MASTER_ID
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


class SetUnreachable(RmqhaError):
    """No name server knows a master of a broker set, or it does not answer."""


class OtherSets:
    """The way to other broker sets.

    Args:
        client: shared with the rest of the broker.
        name_servers: asked in order.
    """

    def __init__(
        self, client: RemotingClient, clock: Clock, name_servers: Sequence[str], cluster_name: str
    ) -> None:
        self._client = client
        self._clock = clock
        self._name_servers = tuple(name_servers)
        self._cluster_name = cluster_name
        self._known: dict[str, tuple[str, int]] = {}

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
        reasons: list[str] = []
        for server in self._name_servers:
            command = RemotingCommand(RequestCode.GET_BROKER_MEMBER_GROUP, ext_fields=fields)
            try:
                answer = await self._client.invoke(server, command, ROUTE_TIMEOUT_MS)
                members = as_object(fastjson.loads(answer.body)) if answer.body else {}
                group = BrokerMemberGroup.of(members.get("brokerMemberGroup"))
            except RmqhaError as error:
                reasons.append(f"{server}: {error}")
                continue
            address = group.broker_addrs.get(MASTER_ID)
            if answer.code == ResponseCode.SUCCESS and address:
                self._known[broker_name] = address, now_ms + KNOWN_MS
                return address
            reasons.append(f"{server}: knows no master")
        raise SetUnreachable(f"{broker_name}: {'; '.join(reasons) or 'no name server is known'}")
