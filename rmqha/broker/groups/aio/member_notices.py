"""Tells the members of a group that it has others (40), each group in its time, few in a turn."""

from __future__ import annotations

from collections.abc import Iterable

from rmqha.base.ids import ConnectionId
from rmqha.broker.groups.aio.ports import Broker
from rmqha.broker.groups.member_news import MemberNews
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import ext_fields
from rmqha.runtime.aio.earliest import EarliestTimer
from rmqha.runtime.aio.turns import Backlog

NOTICES_A_TURN = 64


class MemberNotices:
    """Those of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._news = MemberNews()
        self._timer = EarliestTimer(broker.clock, self._tell)
        self._waiting: Backlog[tuple[str, ConnectionId]] = Backlog(self._notify, NOTICES_A_TURN)

    def changed(self, groups: Iterable[str]) -> None:
        """Tell every member, newcomers too: whoever misses it rebalances within 20 s."""
        now_ms = self._broker.clock.now_ms()
        due_ms = min((self._news.changed(now_ms, group) for group in groups), default=None)
        if due_ms is not None and due_ms <= now_ms:
            self._tell()
        else:
            self._timer.arm(due_ms)

    def close(self) -> None:
        """Tell nobody any more."""
        self._timer.cancel()
        self._waiting.clear()

    def _tell(self) -> None:
        consumers = self._broker.consumers
        due = self._news.take(self._broker.clock.now_ms(), consumers.size)
        self._waiting.add(
            (group, client.connection) for group in due for client in consumers.clients(group)
        )
        self._timer.arm(self._news.next_ms)

    def _notify(self, member: tuple[str, ConnectionId]) -> None:
        group, connection = member
        command = RemotingCommand(
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, ext_fields=ext_fields(consumerGroup=group)
        )
        self._broker.clients.oneway(connection, command)
