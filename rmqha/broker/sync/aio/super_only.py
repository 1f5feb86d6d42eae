"""Where authentication is off: once there is a super user, configuration and users are nobody else's."""

from __future__ import annotations

from rmqha.auth.aio.guard import Refusals
from rmqha.auth.check import Check
from rmqha.auth.refused import Reason, Refused
from rmqha.broker.common.aio.ports import Handler, Handlers
from rmqha.broker.topics.aio.account_file import AccountFile
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.command import RemotingCommand

OPEN = frozenset({int(RequestCode.GET_BROKER_CONFIG), int(RequestCode.GET_BROKER_RUNTIME_INFO)})
"""They change nothing, and show no secret."""


def only_for_super(
    handlers: Handlers, check: Check, accounts: AccountFile, refusals: Refusals
) -> Handlers:
    """The same handlers, each behind the question who asks."""

    def behind(handler: Handler) -> Handler:
        def handle(connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
            try:
                if accounts.has_super and not check.user_of(request).is_super:
                    remark = "only a super user may do this, for there is one"
                    raise Refused(Reason.NOT_SUPER, remark)
            except Refused as why:
                refusals.refuse(connection, request, why)
                return None
            return handler(connection, request)

        return handle

    return {
        code: handler if code in OPEN else behind(handler) for code, handler in handlers.items()
    }
