"""Filters, asked about before somebody subscribes by one: 46."""

from __future__ import annotations

from rmqha.base.errors import RemoteProtocolError
from rmqha.broker.common.aio.ports import Handlers
from rmqha.broker.common.json_members import read_object
from rmqha.broker.common.settings import BrokerConfig
from rmqha.broker.groups.consumers import TAG, Subscription
from rmqha.broker.pull.filters import Selectors, unsupported
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand


class FilterProcessor:
    """Answers requests about a consumer's selectors.

    Args:
        selectors: of the consumers that filter by properties.
    """

    def __init__(self, config: BrokerConfig, selectors: Selectors) -> None:
        self._config = config
        self._selectors = selectors

    def handlers(self) -> Handlers:
        """By request code."""
        return {RequestCode.CHECK_CLIENT_CONFIG: self.check_filter}

    def check_filter(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """46: a client asks before it subscribes by anything but tags."""
        try:
            members = read_object(request.body, "a client's configuration")
            wanted = members.get("subscriptionData")
            one = None if wanted is None else Subscription.of(wanted)
        except RemoteProtocolError as error:
            return request.reply(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error))
        if one is None or one.expression_type == TAG:
            return request.reply(ResponseCode.SUCCESS)
        if not self._config.boolean("enablePropertyFilter"):
            return request.reply(ResponseCode.SYSTEM_ERROR, unsupported(one.expression_type))
        found = self._selectors.matches(one)
        if isinstance(found, str):
            return request.reply(ResponseCode.SUBSCRIPTION_PARSE_FAILED, found)
        return request.reply(ResponseCode.SUCCESS)
