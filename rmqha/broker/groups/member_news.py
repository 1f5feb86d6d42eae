"""When the members of a group are told that it has others: at once, and after that not too often.

A group of a thousand that comes back to a broker that began anew joins one by one. To tell each time
all who are there would take half a million notices, and everybody's heartbeats wait behind them. So
what changes soon after members were told is told to them together, a little later.
"""

from __future__ import annotations

from collections.abc import Callable

PAUSE_MS_A_MEMBER = 1
PAUSE_MS_MAX = 5_000
"""How long a group is not told again: a notice, and the list that its receiver asks for, cost as much
for each member. Java's clients ask once a second at most, and every 20 s without any notice."""


class MemberNews:
    """The groups whose members do not know yet that these have become others."""

    def __init__(self) -> None:
        self._due_ms: dict[str, int] = {}
        self._quiet_until_ms: dict[str, int] = {}

    def changed(self, now_ms: int, group: str) -> int:
        """A member has joined or left, or what the group subscribes to is something else.

        Returns:
            When its members are to be told, in ms.
        """
        return self._due_ms.setdefault(group, max(now_ms, self._quiet_until_ms.get(group, 0)))

    @property
    def next_ms(self) -> int | None:
        """When somebody is to be told; None while everybody knows."""
        return min(self._due_ms.values(), default=None)

    def take(self, now_ms: int, size_of: Callable[[str], int]) -> list[str]:
        """The groups whose members are to be told now, all of them; what changes from now on is news.

        Args:
            size_of: how many members a group has.
        """
        quiet = self._quiet_until_ms
        self._quiet_until_ms = {group: until for group, until in quiet.items() if until > now_ms}
        due = [group for group, due_ms in self._due_ms.items() if due_ms <= now_ms]
        for group in due:
            del self._due_ms[group]
            pause_ms = min(PAUSE_MS_A_MEMBER * size_of(group), PAUSE_MS_MAX)
            self._quiet_until_ms[group] = now_ms + pause_ms
        return due
