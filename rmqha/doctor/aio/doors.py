"""Why a server that takes connections does not answer: it may only be spoken to in the wrong way.

Tried when it has given no answer, and never instead of asking it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rmqha.base.errors import ConfigInvalid, ConnectFailed, RmqhaError
from rmqha.doctor.facts import Door
from rmqha.remoting.address import parse_address
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.command import RemotingCommand
from rmqha.runtime.ports import Network


class Doors:
    """Finds out how a server has to be spoken to.

    Attributes:
        speaks_tls: whether servers are spoken to by TLS, as a rule.

    Args:
        speaks_tls: as above.
        secure: makes a network that speaks TLS and looks at nobody's certificate; made when it is
            needed, for that takes longer than a look.
        plain: a client without TLS.
        timeout_ms: for each try.
    """

    def __init__(
        self, *, speaks_tls: bool, secure: Callable[[], Network], plain: RemotingClient,
        timeout_ms: int,
    ) -> None:  # fmt: skip
        self.speaks_tls = speaks_tls
        self._make_secure = secure
        self._secure: Network | None = None
        self._plain = plain
        self._timeout_ms = timeout_ms

    async def of(self, address: str) -> Door | None:
        """How it has to be spoken to; None when that is not why it is silent."""
        if await self._takes_tls(address):
            return Door.CERTIFICATE if self.speaks_tls else Door.TLS
        if self.speaks_tls and await self._answers_plain(address):
            return Door.PLAIN
        return None

    async def close(self) -> None:
        """Close the connections of the tries."""
        await self._plain.close()

    async def _takes_tls(self, address: str) -> bool:
        """Whether a handshake succeeds; one who asks for a certificate may part only then."""
        if self._secure is None:
            self._secure = self._make_secure()
        try:
            host, port = parse_address(address)
            transport = await self._secure.connect(
                host, port, asyncio.Protocol, timeout_ms=self._timeout_ms
            )
        except (ConnectFailed, ConfigInvalid):
            return False
        transport.abort()  # at once: the loop may end before the other side takes leave
        return True

    async def _answers_plain(self, address: str) -> bool:
        """Whether it answers anything at all; a refusal will do."""
        question = RemotingCommand(RequestCode.CONTROLLER_GET_METADATA_INFO)
        try:
            await self._plain.invoke(address, question, self._timeout_ms)
        except RmqhaError:
            return False
        return True
