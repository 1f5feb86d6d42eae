"""Requests 400, 401 and 402: brokers assign queues, and remember which groups pop."""

from __future__ import annotations

from collections import OrderedDict

from rmqha.base.errors import DiskFailed, RemoteProtocolError, RmqhaError
from rmqha.broker.common.aio.config_file import ConfigFile
from rmqha.broker.common.aio.ports import Handlers, unwritable
from rmqha.broker.common.json_members import MessageQueue, json_object
from rmqha.broker.groups.aio.ports import Broker
from rmqha.broker.groups.request_modes import (
    AssignmentRequest,
    RequestMode,
    RequestModes,
    assign,
    assignment_body,
    route_queues,
)
from rmqha.remoting import fastjson
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand

ROUTE_FRESH_MS = 5_000
ROUTES_MAX = 10_000
"""Topics whose routes are kept; the one that was asked for longest ago makes room."""


class AssignmentProcessor:
    """Answers consumers that leave the rebalance to brokers.

    Args:
        modes, file: what operators have set, and where it is kept.
        client: the way to the name servers.
    """

    def __init__(
        self, broker: Broker, modes: RequestModes, file: ConfigFile, client: RemotingClient
    ) -> None:
        self._broker = broker
        self._modes = modes
        self._file = file
        self._client = client
        self._routes: OrderedDict[str, tuple[int, list[MessageQueue]]] = OrderedDict()

    def handlers(self) -> Handlers:
        """By request code."""
        return {
            RequestCode.QUERY_ASSIGNMENT: self.query,
            RequestCode.SET_MESSAGE_REQUEST_MODE: self.set_mode,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self.all_modes,
        }

    def all_modes(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer with all modes (402)."""
        return request.reply(ResponseCode.SUCCESS, body=fastjson.dumps(self._modes.members()))

    def set_mode(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """401; the answer waits for the file."""
        try:
            mode = RequestMode.of(fastjson.loads(bytes(request.body)))
        except RemoteProtocolError as error:
            return request.reply(ResponseCode.SYSTEM_ERROR, str(error))
        broker = self._broker
        if broker.topics.table.get(mode.topic) is None:
            return request.reply(ResponseCode.TOPIC_NOT_EXIST, f"topic[{mode.topic}] not exist")
        refused = unwritable(broker, request)
        if refused is not None:
            return refused
        before = self._modes.known(mode.topic, mode.group)
        refusal = self._modes.put(mode)
        if refusal is not None:
            return request.reply(refusal.code, refusal.remark)
        self._file.changed()
        work = self._saved(connection, request, mode, before)
        broker.answers.start(work, connection, request, name="request modes")
        return None

    async def _saved(
        self, connection: Connection, request: RemotingCommand, mode: RequestMode,
        before: RequestMode | None,
    ) -> None:  # fmt: skip
        """Answer when the file holds it; what cannot be written is as it was before."""
        answer = request.reply(ResponseCode.SUCCESS)
        try:
            await self._file.save()
        except DiskFailed as error:
            self._modes.take_back(mode, before)
            answer = request.reply(ResponseCode.SYSTEM_ERROR, f"nothing is changed: {error}")
        if not request.is_oneway:
            connection.send(answer)

    def query(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """Answer which queues a client consumes (400)."""
        try:
            asked = AssignmentRequest.decode(bytes(request.body))
        except RemoteProtocolError as error:
            return request.reply(ResponseCode.SYSTEM_ERROR, str(error))
        known = self._routes.get(asked.topic)
        if known is not None and self._broker.clock.now_ms() - known[0] < ROUTE_FRESH_MS:
            return request.reply(ResponseCode.SUCCESS, body=self._assigned(asked, known[1]))
        work = self._answer(connection, request, asked)
        self._broker.answers.start(work, connection, request, name="assignment")
        return None

    async def _answer(
        self, connection: Connection, request: RemotingCommand, asked: AssignmentRequest
    ) -> None:
        queues = await self._queues(asked.topic)
        if not request.is_oneway:
            body = self._assigned(asked, queues)
            connection.send(request.reply(ResponseCode.SUCCESS, body=body))

    def _assigned(self, asked: AssignmentRequest, queues: list[MessageQueue]) -> bytes:
        mode = self._modes.find(asked.topic, asked.group)
        clients = self._broker.consumers.client_ids(asked.group)
        return assignment_body(assign(asked, mode, queues, clients), mode.mode)

    async def _queues(self, topic: str) -> list[MessageQueue]:
        """The topic's queues on all brokers, by the first name server that answers."""
        broker = self._broker
        for server in broker.name_servers:
            fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
            command = RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields=fields)
            try:
                answer = await self._client.invoke(server, command)
                if answer.code == ResponseCode.TOPIC_NOT_EXIST:
                    return []
                if answer.code != ResponseCode.SUCCESS:
                    continue
                value = json_object(fastjson.loads(bytes(answer.body)), "a route")
                return self._remember(topic, route_queues(topic, value))
            except RmqhaError:
                continue
        own = broker.topics.table.get(topic)
        config = broker.config
        if own is None or config.name_servers or config.lookups.finds_name_servers:
            # Without an answer, or a name server yet, clients keep what they have.
            return []
        return [
            MessageQueue(topic, config.broker_name, queue) for queue in range(own.read_queue_nums)
        ]

    def _remember(self, topic: str, queues: list[MessageQueue]) -> list[MessageQueue]:
        self._routes[topic] = self._broker.clock.now_ms(), queues
        self._routes.move_to_end(topic)
        if len(self._routes) > ROUTES_MAX:
            self._routes.popitem(last=False)
        return queues
