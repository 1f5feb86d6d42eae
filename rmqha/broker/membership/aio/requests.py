"""Requests about roles and replication: 1008, 1007, 907, 906."""

from __future__ import annotations

from typing import Protocol

from rmqha.broker.common.aio.ports import Broker, Handlers
from rmqha.broker.membership.ha_status import epoch_cache, ha_status
from rmqha.ha.events import Role
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import ext_fields

NOT_STARTED = "this broker has no id of its controllers yet"


class Member(Broker, Protocol):
    """A broker that belongs to a set."""

    def notified(self, request: RemotingCommand) -> None:
        """A controller sent 1008."""


class ReplicationProcessor:
    """Answers controllers, other replicas and mqadmin."""

    def __init__(self, broker: Member) -> None:
        self._broker = broker

    def handlers(self) -> Handlers:
        """By request code."""
        return {
            RequestCode.NOTIFY_BROKER_ROLE_CHANGED: self.notify_role,
            RequestCode.GET_BROKER_EPOCH_CACHE: self.epochs,
            RequestCode.GET_BROKER_HA_STATUS: self.status,
            RequestCode.EXCHANGE_BROKER_HA_INFO: self.exchange,
        }

    def notify_role(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """1008: whatever it says, the answer is success."""
        self._broker.notified(request)
        return request.reply(ResponseCode.SUCCESS)

    def epochs(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer with the epochs of this replica (1007)."""
        broker = self._broker
        if not broker.config.controllers:
            return request.reply(ResponseCode.SYSTEM_ERROR, "this request only for controllerMode ")
        if broker.ha_core is None:
            return request.reply(ResponseCode.SYSTEM_ERROR, NOT_STARTED)
        config = broker.config
        body = epoch_cache(broker.ha_core, config.cluster_name, config.broker_name)
        return request.reply(ResponseCode.SUCCESS, body=body)

    def status(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer how replication stands (907)."""
        broker = self._broker
        if broker.ha_core is None:
            return request.reply(ResponseCode.SYSTEM_ERROR, NOT_STARTED)
        body = ha_status(broker.ha_core, broker.clock.now_ms(), broker.clock.wall_ms())
        return request.reply(ResponseCode.SUCCESS, body=body)

    def exchange(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """906: only a master has an address to give. What others claim of theirs is not believed:
        the controllers and the name servers say who is master."""
        broker = self._broker
        if broker.role is not Role.MASTER:
            return request.reply(ResponseCode.SUCCESS)
        fields = ext_fields(
            masterHaAddress=broker.config.ha_address,
            masterFlushOffset=broker.store.flushed_offset,
            masterAddress=broker.config.address,
        )
        return request.reply(ResponseCode.SUCCESS, None, fields)
