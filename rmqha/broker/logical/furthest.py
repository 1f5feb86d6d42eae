"""Behind which segment of a logical queue a group has stored nothing, as its leader has seen to itself.

A group that reads what is old stores where it is every few seconds, and its queue may have hundreds of
segments behind that: their sets are asked once, and not each time.
"""

from __future__ import annotations

from typing import NamedTuple

from rmqha.remoting.headers import INT64_MAX

KEPT_MAX = 10_000
"""Queues of groups; who is forgotten is asked for anew."""

_UNKNOWN = INT64_MAX

Key = tuple[str, str, int]
"""Topic, group, and the leader's physical queue, which no other logical queue ever has."""


class Seen(NamedTuple):
    """What is known of a group in a queue.

    Attributes:
        reign: of the master who saw it; in between others may have stored something.
        gen: behind this generation nothing is stored; ``_UNKNOWN`` until all sets were asked.
        change: grows with all that is stored.
    """

    reign: int
    gen: int
    change: int


class Furthest:
    """The generation of the segment up to which a group has stored anything, by its queue."""

    def __init__(self, kept_max: int = KEPT_MAX) -> None:
        self._kept_max = kept_max
        self._seen: dict[Key, Seen] = {}
        self._change = 0

    def __len__(self) -> int:
        return len(self._seen)

    def is_behind(self, key: Key, reign: int, gen: int) -> bool:
        """Whether nothing is stored behind a segment for sure."""
        seen = self._seen.get(key)
        return seen is not None and seen.reign == reign and seen.gen <= gen

    def stored(self, key: Key, gen: int) -> None:
        """The group stores something for a segment."""
        seen = self._seen.get(key)
        if seen is not None:
            self._change += 1
            self._seen[key] = Seen(seen.reign, max(seen.gen, gen), self._change)

    def watch(self, key: Key, reign: int) -> Seen:
        """All sets are asked from now on; what is known until then, for ``cleared``."""
        seen = self._seen.pop(key, None)
        if seen is None or seen.reign != reign:
            self._change += 1
            seen = Seen(reign, _UNKNOWN, self._change)
        self._seen[key] = seen
        if len(self._seen) > self._kept_max:
            del self._seen[next(iter(self._seen))]
        return seen

    def cleared(self, key: Key, before: Seen, gen: int) -> None:
        """Nothing is stored behind a segment, unless something was since the watch began."""
        if self._seen.get(key) == before:
            self._seen[key] = before._replace(gen=gen)
