"""Users and their policies: 3001 to 3010.

Changes are the master's, as those of topics are. Java's brokers keep users each for itself, so its
mqadmin sends a change to slaves, too: a slave hands it to its master, signature and all, and what
is there already as it is asked for is done.

Source: AdminBrokerProcessor, AuthenticationMetadataManagerImpl and AuthorizationMetadataManagerImpl
of RocketMQ 5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rmqha.auth.accounts import (
    Account,
    PolicyType,
    UserType,
    read_policies,
    read_user,
    user_of,
)
from rmqha.auth.refused import ChangeRefused
from rmqha.auth.resources import named, parse_resource
from rmqha.auth.signature import ACCESS_KEY
from rmqha.base.errors import RemoteProtocolError, RmqhaError
from rmqha.broker.common.aio.ports import Handler, Handlers, unwritable
from rmqha.broker.common.json_members import read_object
from rmqha.broker.topics.aio.ports import Broker
from rmqha.broker.topics.metadata import Change
from rmqha.ha.events import Role
from rmqha.remoting import fastjson
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import text_field

Decide = Callable[[RemotingCommand], Change]
"""What a request changes; raises ChangeRefused, or ``_Answer`` with another code."""

FORWARD_TIMEOUT_MS = 4_000
"""mqadmin waits 5 s."""


class _Answer(RmqhaError):
    """An answer with a code of its own."""

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(remark)
        self.code = code


class AccountProcessor:
    """Administration of users.

    Args:
        client: the way to the master.
        followed: its address, while this broker is a slave.
    """

    def __init__(
        self, broker: Broker, client: RemotingClient, followed: Callable[[], str | None]
    ) -> None:
        self._broker = broker
        self._client = client
        self._followed = followed

    def handlers(self) -> Handlers:
        """By request code."""
        return {
            RequestCode.AUTH_CREATE_USER: self._changing(self._create_user),
            RequestCode.AUTH_UPDATE_USER: self._changing(self._update_user),
            RequestCode.AUTH_DELETE_USER: self._changing(self._delete_user),
            RequestCode.AUTH_GET_USER: self._asking(self._get_user),
            RequestCode.AUTH_LIST_USER: self._asking(self._list_users),
            RequestCode.AUTH_CREATE_ACL: self._changing(self._put_acl),
            RequestCode.AUTH_UPDATE_ACL: self._changing(self._put_acl),
            RequestCode.AUTH_DELETE_ACL: self._changing(self._delete_acl),
            RequestCode.AUTH_GET_ACL: self._asking(self._get_acl),
            RequestCode.AUTH_LIST_ACL: self._asking(self._list_acls),
        }

    # -- how requests are answered ---------------------------------------------------------------------

    def _changing(self, decide: Decide) -> Handler:
        def handle(connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
            broker = self._broker
            if broker.role is not Role.MASTER:
                broker.answers.start(
                    self._forward(connection, request), connection, request, name="user"
                )
                return None
            refused = unwritable(broker, request)
            if refused is not None:
                return refused
            try:
                change = decide(request)
            except RmqhaError as error:
                return _refused(request, error)
            return broker.metadata.change(connection, request, change)

        return handle

    def _asking(self, find: Callable[[RemotingCommand], Any]) -> Handler:
        def handle(_: Connection, request: RemotingCommand) -> RemotingCommand:
            try:
                found = find(request)
            except RmqhaError as error:
                return _refused(request, error)
            # Java's tools read nothing where there is nothing.
            body = fastjson.dumps(found) if found else b""
            return request.reply(ResponseCode.SUCCESS, body=body)

        return handle

    async def _forward(self, connection: Connection, request: RemotingCommand) -> None:
        master = self._followed()
        if master is None:
            remark = "users are changed at the master only, and it is not known now"
            connection.send(request.reply(ResponseCode.SYSTEM_ERROR, remark))
            return
        asked = RemotingCommand(
            request.code, version=request.version, ext_fields=request.ext_fields, body=request.body
        )
        answer = await self._client.invoke(master, asked, FORWARD_TIMEOUT_MS, sign=False)
        connection.send(request.reply(answer.code, answer.remark))

    # -- users -----------------------------------------------------------------------------------------

    def _create_user(self, request: RemotingCommand) -> Change:
        name = _username(request)
        wanted = read_user(name, _body(request, "a user"), None)
        if wanted.is_super and self._is_not_super(request):
            raise _Answer(
                ResponseCode.SYSTEM_ERROR, "The super user can only be create by super user"
            )
        old = self._broker.accounts.find(name)
        if old is None:
            return Change(accounts=(wanted,))
        if old.user_members() == wanted.user_members():
            return Change()
        raise ChangeRefused("The user is existed")

    def _update_user(self, request: RemotingCommand) -> Change:
        name, members = _username(request), _body(request, "a user")
        old = self._broker.accounts.find(name)
        if old is None:
            raise ChangeRefused("The user is not exist")
        wanted = read_user(name, members, old)
        if self._is_not_super(request):
            if named(UserType, members.get("userType")) is UserType.SUPER:
                raise _Answer(
                    ResponseCode.SYSTEM_ERROR, "The super user can only be update by super user"
                )
            if old.is_super:
                raise ChangeRefused("The super user can only be update by super user")
        return Change() if wanted == old else Change(accounts=(wanted,))

    def _delete_user(self, request: RemotingCommand) -> Change:
        name = text_field(request.ext_fields, "username", "")
        old = self._broker.accounts.find(name)
        if old is None:
            return Change()
        if old.is_super and self._is_not_super(request):
            raise ChangeRefused("The super user can only be update by super user")
        if name in self._broker.accounts.named:
            raise ChangeRefused(f"User:{name} is in the broker's settings, which make it again")
        return Change(ended_accounts=(name,))

    def _get_user(self, request: RemotingCommand) -> Any:
        account = self._broker.accounts.find(_username(request))
        return None if account is None else account.user_members()

    def _list_users(self, request: RemotingCommand) -> Any:
        wanted = text_field(request.ext_fields, "filter", "")
        found = (one for one in self._broker.accounts.all() if wanted in one.name)
        return [one.user_members() for one in found]

    def _is_not_super(self, request: RemotingCommand) -> bool:
        """Java's question; without a name authentication is off.

        So it is, whoever asks, while the first super user is made.
        """
        name, accounts = text_field(request.ext_fields, ACCESS_KEY, ""), self._broker.accounts
        if not name or not (self._broker.config.auth.authentication or accounts.has_super):
            return False
        account = self._broker.accounts.find(name)
        return account is None or not account.is_super

    # -- policies --------------------------------------------------------------------------------------

    def _put_acl(self, request: RemotingCommand) -> Change:
        """3006 and 3007: entries replace those of the same resource, in Java, too."""
        members = _body(request, "an acl")
        if not members.get("policies"):
            raise _Answer(ResponseCode.SYSTEM_ERROR, "The body of acl is null")
        subject = members.get("subject") or text_field(request.ext_fields, "subject", "")
        name = user_of(subject if isinstance(subject, str) else None)
        if name is None:
            raise ChangeRefused("The subject type is null.")
        policies = read_policies(members)
        old = self._broker.accounts.find(name)
        if old is None:
            raise ChangeRefused(f"The subject of User:{name} is not exist.")
        wanted = old.with_policies(policies)
        return Change() if wanted == old else Change(accounts=(wanted,))

    def _delete_acl(self, request: RemotingCommand) -> Change:
        fields = request.ext_fields
        old = self._subject(request)
        if not old.policies:
            raise ChangeRefused("The acl is not exist.")
        key = text_field(fields, "resource", "").strip()
        resource = parse_resource(key) if key else None
        if key and resource is None:
            # Java would take it for none, and delete all.
            raise ChangeRefused("The resource is null.")
        kind = named(PolicyType, text_field(fields, "policyType", "")) or PolicyType.CUSTOM
        wanted = old.without_policies(kind, resource)
        return Change() if wanted == old else Change(accounts=(wanted,))

    def _get_acl(self, request: RemotingCommand) -> Any:
        account = self._subject(request)
        return account.acl_members() if account.policies else None

    def _list_acls(self, request: RemotingCommand) -> Any:
        subject = text_field(request.ext_fields, "subjectFilter", "")
        resource = text_field(request.ext_fields, "resourceFilter", "")
        found = (_with_resource(one.acl_members(), resource) for one in self._broker.accounts.all())
        return [one for one in found if one["policies"] and subject in one["subject"]]

    def _subject(self, request: RemotingCommand) -> Account:
        name = user_of(text_field(request.ext_fields, "subject", ""))
        account = None if name is None else self._broker.accounts.find(name)
        if account is None:
            raise ChangeRefused("The subject is not exist.")
        return account


def _with_resource(acl: dict[str, Any], wanted: str) -> dict[str, Any]:
    policies = [
        {**one, "entries": [entry for entry in one["entries"] if wanted in entry["resource"]]}
        for one in acl["policies"]
    ]
    return {**acl, "policies": [one for one in policies if one["entries"]]}


def _username(request: RemotingCommand) -> str:
    name = text_field(request.ext_fields, "username", "")
    if not name.strip():
        raise _Answer(ResponseCode.INVALID_PARAMETER, "The username is blank")
    return name


def _body(request: RemotingCommand, what: str) -> dict[str, Any]:
    return read_object(request.body, what)


def _refused(request: RemotingCommand, error: RmqhaError) -> RemotingCommand:
    match error:
        case _Answer():
            return request.reply(error.code, str(error))
        case ChangeRefused():
            return request.reply(ResponseCode.NO_PERMISSION, str(error))
        case RemoteProtocolError():
            return request.reply(ResponseCode.INVALID_PARAMETER, str(error))
        case _:
            raise error
