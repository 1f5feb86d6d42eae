"""Things packed beside where they live, so that a snapshot of all of them only joins bytes.

Packing a hundred thousand broker sets takes longer than an election timeout. Here each is packed
when it has changed, and the newest changes, up to a bound, when the bytes are asked for. The same
pass keeps a digest of the whole: the sum of the digests of each, which needs no order.

What does not live here: how one thing is packed, and the format of a snapshot.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Generator
from typing import Generic, TypeVar

T = TypeVar("T")

CHANGED_MAX = 1000
"""So many changes wait to be packed; a thing that changes often is packed once for all of them."""

DIGESTS_A_PART = 512
"""Of all values that were loaded: a millisecond or two."""

DIGEST_BITS = 64


class Packed(Generic[T]):
    """The packed form and the digest of every value of a dict, by name.

    Args:
        values: looked at, never changed; whoever changes one calls ``changed``.
        pack: one value's bytes in a snapshot.
        digest: of one value, ``DIGEST_BITS`` bits; reads the value and not what ``pack`` made.
    """

    def __init__(
        self, values: dict[str, T], pack: Callable[[T], bytes], digest: Callable[[T], int]
    ) -> None:
        self._values = values
        self._pack = pack
        self._digest = digest
        self._packed: dict[str, bytes] = {}
        self._digests: dict[str, int] = {}
        self._names: list[str] = []
        self._changed: dict[str, None] = dict.fromkeys(values)
        self._sum = 0
        self._checked = 0

    def changed(self, name: str) -> None:
        """The value of this name is another one, is new, or is gone."""
        if name in self._changed:
            return
        if len(self._changed) < CHANGED_MAX:
            self._changed[name] = None
        else:
            self._take(name)

    def of(self, values: dict[str, T]) -> Packed[T]:
        """Follow another dict from here on, of the same content."""
        self._values = values
        return self

    def loading(self, packed: dict[str, bytes]) -> Generator[None, None, None]:
        """All values have been replaced by these, of which the packed form is known; in parts.

        Nobody may change a value before the last part.
        """
        self._packed = packed
        self._names = sorted(packed)
        self._changed.clear()
        self._digests = {}
        for number, (name, one) in enumerate(self._values.items(), 1):
            self._digests[name] = self._digest(one)
            if number % DIGESTS_A_PART == 0:
                yield
        self._sum = sum(self._digests.values())
        self._checked = 0

    def parts(self) -> list[bytes]:
        """The packed form of all, by name in ascending order."""
        self._take_changes()
        return list(map(self._packed.__getitem__, self._names))

    def digest(self) -> str:
        """Of names and values, the same wherever they are the same: 16 hexadecimal digits."""
        self._take_changes()
        return f"{self._sum % (1 << DIGEST_BITS):0{DIGEST_BITS // 4}x}"

    def check_some(self, count: int) -> str | None:
        """Look at the next ``count`` values, round and round.

        Returns:
            The name of one that has changed, or come, or gone, and nobody called ``changed``.
        """
        self._take_changes()
        if len(self._names) != len(self._values):
            odd = self._values.keys() ^ self._digests.keys()
            return min(odd)
        if self._checked >= len(self._names):
            self._checked = 0
        names = self._names[self._checked : self._checked + count]
        self._checked += len(names)
        for name in names:
            one = self._values.get(name)
            if one is None or self._digest(one) != self._digests[name]:
                return name
        return None

    def _take_changes(self) -> None:
        for name in self._changed:
            self._take(name)
        self._changed.clear()

    def _take(self, name: str) -> None:
        one = self._values.get(name)
        before = self._digests.get(name)
        if one is None:
            if before is not None:
                del self._packed[name], self._digests[name]
                del self._names[bisect_left(self._names, name)]
                self._sum -= before
            return
        if before is None:
            insort(self._names, name)
        self._packed[name] = self._pack(one)
        self._digests[name] = after = self._digest(one)
        self._sum += after - (before or 0)
