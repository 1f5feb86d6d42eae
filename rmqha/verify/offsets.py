"""What a group has committed is what its master says, and soon what the next master will say.

One consumer commits the offsets of one queue, one after the other, back and forth. A master has the
newest one at once. A slave copies; so of the next master it is known only that it has no older one
than its process has been told, and that its file does not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from rmqha.base.invariants import invariant

Process = tuple[str, int]
"""A host, and the how manieth process of it."""


class OffsetHistory(Struct):
    """Of one group in one queue.

    Attributes:
        values: what was sent to be committed, in order.
        acked: the newest of these that was acknowledged; -1 for none.
        reign: in which that was.
        held: the oldest of these that a process may have; processes that may have anything are not
            in it.
    """

    values: list[int] = field(default_factory=list)
    acked: int = -1
    reign: object = None
    held: dict[Process, int] = field(default_factory=dict)

    def sent(self, offset: int) -> int:
        """A commit leaves; its number."""
        self.values.append(offset)
        return len(self.values) - 1

    def unanswered(self) -> None:
        """It may still be done: what the master has is not known, but that it is no older one."""
        self.acked, self.reign = -1, None

    def forget(self) -> None:
        """Nothing is known of anybody any more."""
        self.unanswered()
        self.held.clear()

    def acknowledged(self, number: int, reign: object) -> None:
        """A master has taken it."""
        self.acked, self.reign = number, reign

    def told(self, number: int, processes: Iterable[Process]) -> None:
        """All of these have had the time to copy a commit, undisturbed."""
        for one in processes:
            self.held[one] = max(self.held.get(one, -1), number)

    def check_reign(self, reign: object, offset: int | None) -> bool:
        """What a master has now; whether that is known, for it was told so in this reign.

        Raises:
            InvariantBroken: it has something else.
        """
        if self.acked < 0 or reign != self.reign:
            return False
        invariant(
            offset == self.values[self.acked], "a master does not have what a group has committed",
            offset=offset, committed=self.values[self.acked], reign=reign,
        )  # fmt: skip
        return True

    def begins(self, process: Process, offset: int | None) -> bool:
        """A process reigns, and has this; whether it was to have something.

        The others may copy from it what it has, be it older than what they have.

        Raises:
            InvariantBroken: what it had been told is gone.
        """
        first = self.held.get(process, -1)
        if first < 0:
            self.held.clear()
            return False
        later = self.values[first:]
        invariant(
            offset in later, "a new master has an older offset than it was told",
            process=process, offset=offset, told=self.values[first], later=later[1:6],
        )  # fmt: skip
        number = first + later.index(offset or 0)
        self.held = {one: min(number, held) for one, held in self.held.items()}
        return True


def check_copied(master: Mapping[str, int], slaves: Mapping[str, Mapping[str, int]]) -> int:
    """Nobody commits any more, and slaves have had the time to copy.

    Args:
        master: what it has stored, by group and queue.
        slaves: the same, of each.

    Returns:
        How many offsets were compared.

    Raises:
        InvariantBroken: a slave has another one.
    """
    count = 0
    for name, has in sorted(slaves.items()):
        for key, offset in sorted(master.items()):
            invariant(
                has.get(key) == offset, "a slave has another offset than its master",
                slave=name, key=key, offset=has.get(key), master_has=offset,
            )  # fmt: skip
            count += 1
    return count
