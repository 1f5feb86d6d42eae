"""Whom a broker asks in one round of questions about transactions (39).

A group may have thousands of members, of which none may send to the topic: everybody can say in a
heartbeat that he is of it. So nobody is looked at twice in a round, and other work gets its turn.
"""

from __future__ import annotations

import functools

from rmqha.auth.addresses import ip_of
from rmqha.auth.resources import Action
from rmqha.broker.groups.aio.ports import Broker
from rmqha.broker.groups.memberships import Client

MEMBERS_A_TURN = 300
"""Members that may not before other work gets its turn; some 5 ms."""
_KNOWN_MAX = 1 << 16


class AskableProducers:
    """Those of one round; what is known of them is good for that long."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._looks = 0
        self._nobody: set[tuple[str, str]] = set()
        rights = broker.rights

        @functools.lru_cache(_KNOWN_MAX)
        def may(user: str, source_ip: str, topic: str) -> bool:
            return rights.may_be_sent(user, source_ip, topic, Action.PUB)

        self._may = may

    async def find(self, group: str, topic: str) -> Client | None:
        """A member that may send to the topic, in turn: he is given the message."""
        if (group, topic) in self._nobody:
            return None
        for client in self._broker.producers.turns(group):
            if self._may(client.user, ip_of(client.address), topic):
                return client
            self._looks += 1
            if self._looks % MEMBERS_A_TURN == 0:
                await self._broker.clock.sleep(0)
        self._nobody.add((group, topic))
        return None

    def why_nobody(self, group: str) -> str:
        """What to say where :meth:`find` found none."""
        if not self._broker.producers.size(group):
            return "there is no producer"
        return "none of its producers may send to the topic"
