"""Carries an exchange's calls out and hands the answers back."""

from __future__ import annotations

import asyncio

from rmqha.base.errors import ConnectFailed, ConnectionLost, RequestTimeout
from rmqha.client.exchange import Exchange, ResultT, Unreachable
from rmqha.remoting.aio.client import RemotingClient


class ExchangeClient:
    """Drives exchanges over one remoting client."""

    def __init__(self, client: RemotingClient) -> None:
        self._client = client

    async def run(self, exchange: Exchange[ResultT]) -> ResultT:
        """Carry out an exchange to its end.

        Raises:
            Refused: a peer refused.
            Unreachable: nobody answered.
            NotFound: what was named does not exist.
            RemoteProtocolError: an answer cannot be read.
        """
        try:
            call = next(exchange)
            while True:
                if call.delay_ms:
                    await asyncio.sleep(call.delay_ms / 1000)
                try:
                    answer = await self._client.invoke(call.address, call.command, call.timeout_ms)
                except (ConnectFailed, ConnectionLost, RequestTimeout) as error:
                    call = exchange.throw(Unreachable(str(error)))
                else:
                    call = exchange.send(answer)
        except StopIteration as end:
            result: ResultT = end.value
            return result
