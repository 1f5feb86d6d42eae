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

Key = tuple[str, str, int, int]
"""Topic, group, the leader's physical queue, which no other logical queue has, and the mapping's epoch:
physical queues of a topic that is deleted and made anew begin with 0 again."""


class Seen(NamedTuple):
    """What is known of a group in a queue.

    Attributes:
        reign: of the master who saw it; in between others may have stored something.
        gen: behind this generation nothing is stored; ``_UNKNOWN`` until all sets were asked.
        last: the generation that it stored something for last.
        change: grows when it goes forth to a later one.
        is_last: what it stored last counts, whatever is stored behind that.
    """

    reign: int
    gen: int
    last: int
    change: int
    is_last: bool = False


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
            known = seen._replace(gen=max(seen.gen, gen), last=gen)
            if gen > seen.last:
                self._change += 1
                known = known._replace(change=self._change, is_last=False)
            self._seen[key] = known

    def watch(self, key: Key, reign: int, gen: int) -> Seen:
        """The group stores something, and other sets are asked from now on; what is known until then."""
        seen = self._seen.pop(key, None)
        if seen is None or seen.reign != reign:
            self._change += 1
            seen = Seen(reign, _UNKNOWN, gen, self._change)
        self._seen[key] = seen
        if len(self._seen) > self._kept_max:
            del self._seen[next(iter(self._seen))]
        return seen

    def is_forth(self, key: Key, before: Seen) -> bool:
        """Whether the group has gone forth since the watch began, as far as that is remembered."""
        return self._seen.get(key, before).change != before.change

    def cleared(self, key: Key, before: Seen, gen: int) -> None:
        """Nothing is stored behind a segment, unless the group has gone forth since the watch began."""
        seen = self._seen.get(key)
        if seen is not None and seen.change == before.change:
            self._seen[key] = seen._replace(gen=gen, is_last=False)

    def passed_over(self, key: Key, before: Seen) -> None:
        """What is stored behind a segment could not be asked for, and counts no more."""
        seen = self._seen.get(key)
        if seen is not None and seen.change == before.change:
            self._seen[key] = seen._replace(is_last=True)

    def place(self, key: Key, reign: int) -> int | None:
        """The generation of the segment that a group is in, where others may say something else."""
        seen = self._seen.get(key)
        return seen.last if seen is not None and seen.reign == reign and seen.is_last else None
