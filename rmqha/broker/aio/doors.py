"""The two ports of a broker, and who stands before its router where users must say who they are."""

from __future__ import annotations

from collections.abc import Iterator

from rmqha.auth.aio.guard import Guard, Refusals
from rmqha.broker.common.settings import BrokerConfig
from rmqha.broker.send.plain_request import decode_message
from rmqha.broker.send.signed_request import BrokerCheck, decode_signed_message
from rmqha.remoting.aio.server import RemotingServer, ServerHandler
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.repeats import HeaderCache
from rmqha.runtime.ports import Clock, Network

CLOSE_GRACE_MS = 200
HINTS = frozenset({int(RequestCode.NOTIFY_BROKER_ROLE_CHANGED)})
"""Nothing in it is believed, and controllers sign it only for whom they know: anybody may send it."""


class Doors:
    """Both ports answer alike; the second is Java's, for who must not wait behind others.

    Args:
        router: finds who answers a request.
        check: who may ask for what.
        refusals: counts what was not let in.
    """

    def __init__(
        self,
        config: BrokerConfig,
        router: ServerHandler,
        *,
        network: Network,
        clock: Clock,
        check: BrokerCheck,
        refusals: Refusals,
        connection_ids: Iterator[int],
    ) -> None:
        self._host = config.values["bindAddress"]
        if config.auth.authentication:
            router = Guard(router, check, refusals, passes=HINTS)
            headers = HeaderCache(decode_message=decode_signed_message)
        else:
            headers = HeaderCache(decode_message=decode_message)
        self.servers = {
            port: RemotingServer(
                network,
                clock,
                config.remoting,
                router,
                connection_ids=connection_ids,
                headers=headers,
                rejected=refusals.counts,
            )
            for port in (config.port, config.fast_port)
        }

    async def open(self) -> None:
        """Listen; raises OSError when a port cannot be used."""
        for port, server in self.servers.items():
            await server.start(self._host, port)

    async def close(self) -> None:
        """Listen no more; what is being sent has a moment to arrive."""
        for server in self.servers.values():
            await server.close(CLOSE_GRACE_MS)
