"""Who is asked about transactions: nobody is looked at twice in a round, and other work has its turn."""

from __future__ import annotations

from typing import Any, cast

from rmqha.auth.resources import Action
from rmqha.base.ids import ConnectionId
from rmqha.broker.deferred.aio.askable_producers import MEMBERS_A_TURN, AskableProducers
from rmqha.broker.groups.aio.ports import Broker
from rmqha.broker.groups.memberships import Client
from rmqha.broker.groups.producers import ProducerTable

MANY = 3 * MEMBERS_A_TURN


class OfMany:
    """A broker with many producers, each at an address of its own.

    Attributes:
        allowed: pairs of address and topic.
        looks: those that were asked for.
        turns: how often other work had its turn.
    """

    def __init__(self, members: int = MANY) -> None:
        self.producers = ProducerTable(members)
        self.rights = self.clock = self
        self.allowed: set[tuple[str, str]] = set()
        self.looks: list[tuple[str, str]] = []
        self.turns = 0
        for number in range(members):
            at = f"10.0.{number >> 8}.{number & 255}:1"
            client = Client(ConnectionId(number), f"c{number}", "JAVA", 479, at, "ann")
            self.producers.register(0, "P", client)

    def may_be_sent(self, user: str, source_ip: str, topic: str, *actions: Action) -> bool:
        """Whether the pair is allowed."""
        assert (user, actions) == ("ann", (Action.PUB,))
        self.looks.append((source_ip, topic))
        return (source_ip, topic) in self.allowed

    async def sleep(self, delay_ms: int) -> None:
        """Other work."""
        assert delay_ms == 0
        self.turns += 1

    def askable(self) -> AskableProducers:
        """Of one round."""
        return AskableProducers(cast(Broker, cast(Any, self)))


async def test_members_when_none_may_send_then_they_are_looked_at_once_and_in_parts() -> None:
    """However many half messages there are; of another topic, and in another round, once more."""
    broker = OfMany()
    round_of = broker.askable()
    for _ in range(5):
        assert await round_of.find("P", "A") is None
    assert (len(broker.looks), broker.turns) == (MANY, MANY // MEMBERS_A_TURN)
    assert await round_of.find("P", "B") is None
    assert (len(broker.looks), broker.turns) == (2 * MANY, 2 * MANY // MEMBERS_A_TURN)
    assert len({*broker.looks}) == 2 * MANY
    broker.allowed = {("10.0.0.7", "A")}
    found = await broker.askable().find("P", "A")
    assert found is not None
    assert found.connection == 7


async def test_members_when_one_of_many_may_send_then_he_is_asked_and_the_others_known() -> None:
    """He is found again without a question about anybody; and other work has its turn."""
    broker = OfMany()
    broker.allowed = {("10.0.0.7", "A")}
    round_of = broker.askable()
    for _ in range(4):
        found = await round_of.find("P", "A")
        assert found is not None
        assert found.connection == 7
    assert len(broker.looks) == MANY
    assert broker.turns == (7 + 3 * (MANY - 1)) // MEMBERS_A_TURN


async def test_members_when_they_may_then_they_take_turns_without_a_wait() -> None:
    broker = OfMany(3)
    broker.allowed = {(f"10.0.0.{number}", "A") for number in range(3)}
    round_of = broker.askable()
    found = [await round_of.find("P", "A") for _ in range(4)]
    assert [one.connection for one in found if one] == [0, 1, 2, 0]
    assert broker.turns == 0


async def test_members_when_nobody_is_found_then_it_is_said_why() -> None:
    round_of = OfMany(1).askable()
    assert round_of.why_nobody("P") == "none of its producers may send to the topic"
    assert round_of.why_nobody("Q") == "there is no producer"
