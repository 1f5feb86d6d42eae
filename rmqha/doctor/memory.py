"""What earlier looks of a check were told: addresses that are told no more are asked all the same.

Two processes of one id take each other's place in every table, so that one look sees one of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from rmqha.doctor.facts import replicas_of
from rmqha.remoting.bodies import ReplicasInfo

ADDRESSES_MAX = 10_000
"""That are kept; a check of many looks at a cluster whose brokers move ends no process."""


class Memory:
    """The addresses of brokers, as they were told since the first look.

    Attributes:
        listed: the set that each address was told to be of.
    """

    def __init__(self) -> None:
        self.listed: dict[str, str] = {}
        self._places: dict[tuple[str, int], dict[str, None]] = {}

    def learn(self, listed: Mapping[str, str], sets: Mapping[str, ReplicasInfo]) -> None:
        """Take in what a look was told.

        Args:
            listed: brokers by address, with their sets.
            sets: the leading controller's word.
        """
        if len(self.listed) + len(listed) > ADDRESSES_MAX:
            return
        self.listed |= listed
        for name, info in sets.items():
            for one in replicas_of(info):
                places = self._places.setdefault((name, one.broker_id), {})
                places[one.broker_address] = None

    def moved(self) -> dict[tuple[str, int], tuple[str, ...]]:
        """The addresses of brokers that controllers had at several, by set and id."""
        return {who: tuple(places) for who, places in self._places.items() if len(places) > 1}
