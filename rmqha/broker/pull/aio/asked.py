"""A pull that was checked, and its answer in the offsets that its consumer knows."""

from __future__ import annotations

from typing import NamedTuple

from rmqha.broker.groups.consumers import Subscription
from rmqha.broker.pull.aio.logical_pulls import Place
from rmqha.broker.pull.filters import Matches
from rmqha.broker.pull.request import PullRequest
from rmqha.broker.topics.group_table import GroupConfig
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.command import RemotingCommand
from rmqha.statictopic.translate import PullAnswer, logical_answer


class Asked(NamedTuple):
    """A pull that was checked.

    Attributes:
        wanted: by the group's subscription as it was then; None where a segment is read elsewhere.
    """

    connection: Connection
    request: RemotingCommand
    pull: PullRequest
    group: GroupConfig
    wanted: Subscription | None
    matches: Matches | None
    place: Place | None

    @property
    def hashes(self) -> frozenset[int] | None:
        """Of the wanted tags; None for all."""
        return None if self.wanted is None else self.wanted.hashes


def logically(asked: Asked, answer: PullAnswer) -> PullAnswer:
    """The answer in the offsets that the consumer knows."""
    place = asked.place
    if place is None:
        return answer
    return logical_answer(place.segments, place.item, asked.pull.queue_offset, answer)
