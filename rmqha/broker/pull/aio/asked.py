"""A pull that was checked, and its answer in the offsets that its consumer knows."""

from __future__ import annotations

from typing import NamedTuple

from rmqha.broker.pull.aio.logical_pulls import Place
from rmqha.broker.pull.filters import Matches
from rmqha.broker.pull.request import PullRequest
from rmqha.broker.topics.group_table import GroupConfig
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.command import RemotingCommand
from rmqha.statictopic.translate import PullAnswer, logical_answer


class Asked(NamedTuple):
    """A pull that was checked."""

    connection: Connection
    request: RemotingCommand
    pull: PullRequest
    group: GroupConfig
    hashes: frozenset[int] | None
    matches: Matches | None
    place: Place | None


def logically(asked: Asked, answer: PullAnswer) -> PullAnswer:
    """The answer in the offsets that the consumer knows."""
    place = asked.place
    if place is None:
        return answer
    return logical_answer(place.segments, place.item, asked.pull.queue_offset, answer)
