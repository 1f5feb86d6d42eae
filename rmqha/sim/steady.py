"""A client that asks one controller again and again, whatever becomes of its questions.

Brokers and the operator wait for an answer before they ask again, so a controller that answers
nobody is soon asked by few. Many clients together do not let it rest.
"""

from __future__ import annotations

import contextvars

from rmqha.base.errors import RmqhaError
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.settings import RemotingSettings
from rmqha.sim.clock import SimClock
from rmqha.sim.cluster import CONTROLLER_PORT, SimCluster
from rmqha.sim.loop import HOST

ASK_EVERY_MS = 20
"""More often than a leader's heartbeat: each of these reads could be taken for one."""

HOST_NAME = "a1"
SET_NAME = "set-0"
INVOKE_MS = 400


class SteadyClient:
    """Stands for many clients, on a host of its own that nothing is done to.

    Args:
        cluster: has booted.
    """

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        context = contextvars.copy_context()
        context.run(HOST.set, HOST_NAME)
        network = cluster.net.boot(HOST_NAME, context)
        self._clock = SimClock(cluster.loop)
        settings = RemotingSettings(invoke_timeout_ms=INVOKE_MS)
        self._client: RemotingClient = context.run(
            lambda: RemotingClient(network, self._clock, settings, connection_ids=cluster.ids)
        )

    async def ask(self, host: str, every_ms: int, duration_ms: int) -> None:
        """Ask one controller for the state of a set, so often and for so long."""
        end_ms = self._clock.now_ms() + duration_ms
        while self._clock.now_ms() < end_ms:
            self._cluster.start_task(HOST_NAME, self._one(host))
            await self._clock.sleep(every_ms)

    async def _one(self, host: str) -> None:
        history = self._cluster.history
        floor = history.invoked(SET_NAME)
        fields = {"brokerName": SET_NAME}
        command = RemotingCommand(RequestCode.CONTROLLER_GET_REPLICA_INFO, ext_fields=fields)
        self._cluster.counts["steady request"] += 1
        try:
            answer = await self._client.invoke(f"{host}:{CONTROLLER_PORT}", command, INVOKE_MS)
        except RmqhaError:
            return
        shown = (answer.ext_fields or {}).get("masterEpoch")
        if shown is not None:
            history.returned(SET_NAME, floor, int(shown))
