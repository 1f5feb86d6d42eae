"""Subscription groups: 200, 201, 207, 225 and 352."""

from __future__ import annotations

from rmqha.base.errors import RemoteProtocolError
from rmqha.broker.common.aio.ports import Handlers, unwritable
from rmqha.broker.common.json_members import json_array, read_object
from rmqha.broker.common.refusal import Refusal
from rmqha.broker.topics.aio.ports import (
    ACCOUNTS_FIELD,
    TABLE_FIELD,
    TABLE_WANTED,
    Broker,
    table_for,
)
from rmqha.broker.topics.group_table import GroupConfig, changed_group
from rmqha.broker.topics.metadata import Change
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
        """Create or change a group (200)."""
        try:
            groups = [GroupConfig.of(read_object(request.body, "a subscription group"))]
        except RemoteProtocolError as error:
            return request.reply(ResponseCode.INVALID_PARAMETER, str(error))
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
            return request.reply(ResponseCode.INVALID_PARAMETER, str(error))
        return self._put_all(connection, request, groups)

    def _put_all(
        self, connection: Connection, request: RemotingCommand, groups: list[GroupConfig]
    ) -> RemotingCommand | None:
        refused = self._refused(request)
        if refused is not None:
            return refused
        get = self._broker.groups.table.get
        changed: list[GroupConfig] = []
        for group in groups:
            after = changed_group(get(group.name), group)
            if isinstance(after, Refusal):
                return request.reply(after.code, after.remark)
            if get(group.name) != after:
                changed.append(after)
        return self._broker.metadata.change(connection, request, Change(groups=tuple(changed)))

    def all_groups(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer with all groups (201), and to a slave that has no accounts yet with those."""
        metadata = self._broker.metadata
        table = table_for(
            self._broker, request, applied=lambda: metadata.groups_applied,
            passed=metadata.group_members, whole=self._broker.groups.table.members,
        )  # fmt: skip
        if table is None:
            return request.reply(ResponseCode.SYSTEM_ERROR, "this broker is no master")
        if text_field(request.ext_fields, TABLE_FIELD, "") == TABLE_WANTED:
            refusal = self._broker.rights.refusal_of_users(connection, request)
            if refusal is not None:
                return request.reply(refusal.code, refusal.remark)
            table = {**table, ACCOUNTS_FIELD: metadata.account_members()}
        return request.reply(ResponseCode.SUCCESS, body=fastjson.dumps(table))

    def one(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer with one group (352)."""
        name = text_field(request.ext_fields, "group", "")
        group = self._broker.groups.find(name, may_write=self._broker.role is Role.MASTER)
        if group is None:
            return request.reply(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"No group in this broker. group: {name}"
            )
        return request.reply(ResponseCode.SUCCESS, body=fastjson.dumps(group.members()))

    def delete(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """Delete a group (207)."""
        refused = self._refused(request)
        if refused is not None:
            return refused
        broker = self._broker
        name = text_field(request.ext_fields, "groupName", "")
        ended = (name,) if broker.groups.table.get(name) is not None else ()
        forgotten: tuple[str, ...] = ()
        if bool_field(request.ext_fields, "cleanOffset") and broker.metadata.topics_of(name):
            forgotten = (name,)
        change = Change(ended_groups=ended, forgotten_groups=forgotten)
        return broker.metadata.change(connection, request, change)
