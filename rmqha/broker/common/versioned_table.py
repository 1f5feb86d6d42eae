"""A table of named settings with a version, and bounds that fit what has to carry it.

Topics and subscription groups are two of them. A whole table goes into one frame, when a Java slave
copies it or a name server is told, so its size is bounded where it grows.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol, TypeVar

from rmqha.remoting.data_version import DataVersion

COUNT_MAX = 100_000
BYTES_MAX = 12 << 20
"""Of the JSON of a whole table: slaves' copies and registrations must fit into a frame."""


class Named(Protocol):
    """One entry of a versioned table."""

    @property
    def name(self) -> str:
        """The key that it stands under."""

    def members(self) -> dict[str, Any]:
        """Its JSON members."""


ItemT = TypeVar("ItemT", bound=Named)


class VersionedTable(Generic[ItemT]):
    """Entries by name.

    Args:
        size_of: bytes of an entry's JSON, at most.
        bytes_max: of all entries.

    Attributes:
        version: changes with every change of an entry.
        items: by name.
    """

    def __init__(
        self,
        items: Iterable[ItemT],
        version: DataVersion | None,
        size_of: Callable[[ItemT], int],
        bytes_max: int = BYTES_MAX,
    ) -> None:
        self.items = {item.name: item for item in items}
        self.version = version or DataVersion()
        self._size_of = size_of
        self._bytes_max = bytes_max
        self._sizes = {name: size_of(item) for name, item in self.items.items()}
        self._bytes = sum(self._sizes.values())
        self._measured: tuple[ItemT, int] | None = None
        self._members: dict[str, tuple[ItemT, dict[str, Any]]] = {}
        self._names: list[str] | None = None

    def get(self, name: str) -> ItemT | None:
        """An entry, or None."""
        return self.items.get(name)

    def fits(self, wanted: Iterable[ItemT]) -> bool:
        """Whether there is room for all of these together, which may replace others."""
        count, size = len(self.items), self._bytes
        for item in {one.name: one for one in wanted}.values():
            old = self.items.get(item.name)
            count += old is None
            size += self._size(item) - self._sizes.get(item.name, 0)
        return (count <= COUNT_MAX or count == len(self.items)) and (
            size <= self._bytes_max or size <= self._bytes
        )

    def _size(self, item: ItemT) -> int:
        """Of one that is wanted; it is looked at twice before it is in the table, and may be large."""
        if self._measured is None or self._measured[0] is not item:
            self._measured = item, self._size_of(item)
        return self._measured[1]

    def put(self, item: ItemT, wall_ms: int) -> bool:
        """Create or replace an entry; False when it is there as it is, or there is no room."""
        old = self.items.get(item.name)
        if old == item or not self.fits((item,)):
            return False
        size = self._size(item)
        self._bytes += size - self._sizes.get(item.name, 0)
        self.items[item.name], self._sizes[item.name] = item, size
        self._measured = None
        if old is None and self._names is not None:
            insort(self._names, item.name)
        self.version = self.version.next(wall_ms, self.version.state_version)
        return True

    def delete(self, name: str, wall_ms: int) -> bool:
        """Remove an entry; tells whether there was one."""
        gone = self.items.pop(name, None)
        if gone is None:
            return False
        self._bytes -= self._sizes.pop(name)
        self._members.pop(name, None)
        if self._names is not None:
            del self._names[bisect_left(self._names, name)]
        self.version = self.version.next(wall_ms, self.version.state_version)
        return True

    def item_members(self) -> dict[str, dict[str, Any]]:
        """The members of every entry, by name in order; those of an entry are not to be changed.

        A table is written and told after each change, so what has not changed is not made again:
        10,000 topics would keep the loop for 20 ms every time.
        """
        if self._names is None:
            self._names = sorted(self.items)
        made = self._members
        found: dict[str, dict[str, Any]] = {}
        for name in self._names:
            item, known = self.items[name], made.get(name)
            if known is None or known[0] is not item:
                known = made[name] = (item, item.members())
            found[name] = known[1]
        return found

    def take(self, other: VersionedTable[ItemT], gone: Iterable[str], wall_ms: int) -> int:
        """Take all entries of another table, and remove ``gone``; how many entries changed."""
        count = sum(self.put(item, wall_ms) for item in other.items.values())
        count += sum(self.delete(name, wall_ms) for name in gone)
        if count:
            self.version = other.version
        return count


def vanished(before: frozenset[str] | None, table: VersionedTable[Any]) -> frozenset[str]:
    """The names that a table had when it was last looked at, and has no more.

    Args:
        before: None when this is the first look. Whoever keeps the table may have lacked the
            newest entries itself then, so nothing counts as removed.
    """
    return frozenset() if before is None else before - table.items.keys()
