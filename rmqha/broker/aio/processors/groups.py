"""Subscription groups: 200, 201, 207, 225 and 352."""

from __future__ import annotations

from collections.abc import Callable

from rmqha.base.errors import DiskFailed, RemoteProtocolError
from rmqha.broker.aio.processors import Broker, Handlers, unwritable
from rmqha.broker.bodies import json_array, read_object
from rmqha.broker.groups import GROUPS_MAX, GroupConfig
from rmqha.broker.pull import SUBSCRIPTION_GROUP_NOT_EXIST
from rmqha.broker.send import INVALID_PARAMETER
from rmqha.ha.events import Role
from rmqha.remoting import fastjson
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import bool_field, text_field


class GroupProcessor:
    """Administration of groups, and their copy for slaves."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> Handlers:
        """By request code."""
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.put,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self.put_list,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.all_groups,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self.delete,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self.one,
        }

    def _refused(self, request: RemotingCommand) -> RemotingCommand | None:
        if self._broker.role is Role.MASTER:
            return unwritable(self._broker, request)
        return request.reply(ResponseCode.SYSTEM_ERROR, "groups are changed at the master only")

    def put(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """200."""
        try:
            groups = [GroupConfig.of(read_object(request.body, "a subscription group"))]
        except RemoteProtocolError as error:
            return request.reply(INVALID_PARAMETER, str(error))
        return self._put_all(connection, request, groups)

    def put_list(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """225: all of them, or none."""
        try:
            members = read_object(request.body, "a list of subscription groups")
            groups = [
                GroupConfig.of(one)
                for one in json_array(members.get("groupConfigList", ""), "groupConfigList")
            ]
        except RemoteProtocolError as error:
            return request.reply(INVALID_PARAMETER, str(error))
        return self._put_all(connection, request, groups)

    def _put_all(
        self, connection: Connection, request: RemotingCommand, groups: list[GroupConfig]
    ) -> RemotingCommand | None:
        refused = self._refused(request)
        if refused is not None:
            return refused
        table = self._broker.groups.table
        new = {group.name for group in groups} - table.groups.keys()
        if len(table.groups) + len(new) > GROUPS_MAX:
            return request.reply(ResponseCode.SYSTEM_ERROR, f"more than {GROUPS_MAX} groups")
        wall_ms = self._broker.clock.wall_ms()
        before = {group.name: table.get(group.name) for group in groups}
        changes = [table.put(group, wall_ms) for group in groups]
        if any(table.get(group.name) != group for group in groups):
            return request.reply(ResponseCode.SYSTEM_ERROR, "there is no room for more groups")
        if not any(changes):
            return request.reply(ResponseCode.SUCCESS)
        self._keep(connection, request, before)
        return None

    def _keep(
        self, connection: Connection, request: RemotingCommand,
        before: dict[str, GroupConfig | None], then: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        """Answer once the change is on disk; what cannot be written is as it was before."""
        groups = self._broker.groups
        groups.changed()

        async def keep() -> None:
            answer = request.reply(ResponseCode.SUCCESS)
            try:
                await groups.file.save()
                then()
            except DiskFailed as error:
                for name, group in before.items():
                    if group is None:
                        groups.table.delete(name, self._broker.clock.wall_ms())
                    else:
                        groups.table.put(group, self._broker.clock.wall_ms())
                remark = f"nothing is changed: {error}"
                answer = request.reply(ResponseCode.SYSTEM_ERROR, remark)
            if not request.is_oneway:
                connection.send(answer)

        self._broker.answers.start(keep(), connection, request, name="groups changed")

    def all_groups(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """201."""
        body = fastjson.dumps(self._broker.groups.table.members())
        return request.reply(ResponseCode.SUCCESS, body=body)

    def one(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """352."""
        name = text_field(request.ext_fields, "group", "")
        group = self._broker.groups.find(name, may_write=self._broker.role is Role.MASTER)
        if group is None:
            return request.reply(
                SUBSCRIPTION_GROUP_NOT_EXIST, f"No group in this broker. group: {name}"
            )
        return request.reply(ResponseCode.SUCCESS, body=fastjson.dumps(group.members()))

    def delete(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """207."""
        refused = self._refused(request)
        if refused is not None:
            return refused
        broker = self._broker
        name = text_field(request.ext_fields, "groupName", "")
        wanted = bool_field(request.ext_fields, "cleanOffset")

        def forget() -> None:
            if wanted and broker.offsets.table.forget_group(name):
                broker.offsets.changed()

        before = broker.groups.table.get(name)
        if not broker.groups.table.delete(name, broker.clock.wall_ms()):
            forget()
            return request.reply(ResponseCode.SUCCESS)
        self._keep(connection, request, {name: before}, forget)
        return None
