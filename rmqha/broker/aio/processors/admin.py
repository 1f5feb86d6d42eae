"""What people ask a broker about itself: 25 and 26 (configuration), 28 (runtime information)."""

from __future__ import annotations

from collections.abc import Callable

from rmqha.broker.aio.processors import Broker, Handlers
from rmqha.broker.runtime_info import (
    ConfigRefused,
    Facts,
    config_text,
    read_update,
    runtime_table,
)
from rmqha.ha.events import Role
from rmqha.remoting import fastjson
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import ext_fields


class AdminProcessor:
    """Answers mqadmin.

    Args:
        used_ratio: of the disk; None where nobody can tell.
        held_pulls, waiting_sends: how many there are now.
    """

    def __init__(
        self,
        broker: Broker,
        *,
        used_ratio: Callable[[], float] | None,
        held_pulls: Callable[[], int],
        waiting_sends: Callable[[], int],
    ) -> None:
        self._broker = broker
        self._used_ratio = used_ratio
        self._held_pulls = held_pulls
        self._waiting_sends = waiting_sends
        self._boot_ms = broker.clock.wall_ms()

    def handlers(self) -> Handlers:
        """By request code."""
        return {
            RequestCode.UPDATE_BROKER_CONFIG: self.update_config,
            RequestCode.GET_BROKER_CONFIG: self.config,
            RequestCode.GET_BROKER_RUNTIME_INFO: self.runtime_info,
        }

    def config(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """26."""
        broker = self._broker
        version = fastjson.dumps(broker.topics.table.version.members()).decode()
        body = config_text(broker.config.values)
        return request.reply(ResponseCode.SUCCESS, None, ext_fields(version=version), body)

    def update_config(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """25."""
        found = read_update(request.body, self._broker.config.values)
        if isinstance(found, ConfigRefused):
            return request.reply(found.code, found.remark)
        return request.reply(ResponseCode.SUCCESS)

    def runtime_info(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """28."""
        table = runtime_table(self._facts(), self._broker.statistics)
        return request.reply(ResponseCode.SUCCESS, body=fastjson.dumps({"table": table}))

    def _facts(self) -> Facts:
        broker = self._broker
        store = broker.store
        first = store.reader.look(max(0, store.min_offset))
        return Facts(
            active=broker.role is Role.MASTER,
            boot_ms=self._boot_ms,
            now_ms=broker.clock.wall_ms(),
            min_offset=store.min_offset,
            max_offset=store.max_offset,
            flushed_offset=store.flushed_offset,
            dispatched_offset=store.dispatched_offset,
            confirm_offset=store.confirm_offset,
            used_ratio=-1.0 if self._used_ratio is None else self._used_ratio(),
            earliest_ms=-1 if first is None else first.store_timestamp,
            sends_waiting=self._waiting_sends(),
            pulls_held=self._held_pulls(),
            store_path=store.settings.store_path_commit_log,
            lease=broker.lease_facts,
        )
