"""1008 to brokers: one way, each broker by itself, a newer one replaces one that waits."""

from __future__ import annotations

from rmqha.auth.registered import ProvenAddresses
from rmqha.base.errors import RmqhaError
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.command import RemotingCommand
from rmqha.runtime.aio.tasks import Tasks
from rmqha.runtime.logs import Logger

NOTIFY_TIMEOUT_MS = 3000


class Notifier:
    """Tells brokers their roles without ever making an election wait.

    A broker that cannot be reached learns its role with its next poll (1004, every 5 s).

    Args:
        client: signs nothing by itself.
        proven: the brokers that are sent a signature.
    """

    def __init__(self, client: RemotingClient, proven: ProvenAddresses, log: Logger) -> None:
        self._client = client
        self._proven = proven
        self._log = log
        self._tasks = Tasks(log)
        self._newest: dict[str, tuple[dict[str, str], bytes]] = {}
        self.sent = 0
        self.failed = 0

    def notify(self, address: str, ext_fields: dict[str, str], body: bytes) -> None:
        """Send NOTIFY_BROKER_ROLE_CHANGED to a broker's registered address."""
        waiting = address in self._newest
        self._newest[address] = (ext_fields, body)
        if not waiting:
            self._tasks.start(self._send(address), name=f"notify {address}")

    async def _send(self, address: str) -> None:
        try:
            ext_fields, body = self._newest[address]
            while True:
                command = RemotingCommand(
                    RequestCode.NOTIFY_BROKER_ROLE_CHANGED, ext_fields=ext_fields, body=body
                )
                self._proven.sign(address, command)
                try:
                    await self._client.invoke_oneway(address, command, NOTIFY_TIMEOUT_MS)
                except RmqhaError as error:
                    self.failed += 1
                    self._log.log(
                        "warning", "broker_not_notified", address=address, reason=str(error)
                    )
                else:
                    self.sent += 1
                    self._log.log("info", "broker_notified", address=address, **ext_fields)
                if self._newest[address] == (ext_fields, body):
                    return
                ext_fields, body = self._newest[address]
        finally:
            self._newest.pop(address, None)

    async def close(self) -> None:
        """Give up what has not been sent."""
        await self._tasks.close()
