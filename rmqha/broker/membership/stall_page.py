"""What a broker and the watcher of its event loop tell each other: words of one shared page.

Each word has one writer and is written whole, so neither side ever waits for the other: that is the
point, for the broker may stand still in the middle of anything. Times are milliseconds of the machine's
monotonic clock, which all of its processes share.
"""

from __future__ import annotations

from typing import NamedTuple

PAGE_BYTES = 4096
_SIGN, _ID, _WRITE, _EPOCH, _MAX, _CONFIRM, _SEEN, _RAISED, _LOWERED = range(9)


class Facts(NamedTuple):
    """What the broker said last.

    Attributes:
        sign_ms: when; 0 before the first time.
        broker_id: its controller id; 0 before it is known.
        write_begun_ms: since when its oldest write has waited for the disk; 0 without one.
        log_epoch, max_offset, confirm_offset: as heartbeats say them.
    """

    sign_ms: int
    broker_id: int
    write_begun_ms: int
    log_epoch: int
    max_offset: int
    confirm_offset: int


class StallPage:
    """The page that a broker shares with its watcher.

    Args:
        memory: ``PAGE_BYTES`` that both sides have.
    """

    def __init__(self, memory: memoryview) -> None:
        self._memory = memory
        self._words = memory.cast("q")

    # -- the broker writes

    def tell(self, facts: Facts) -> None:
        """Say all; the sign of life comes last."""
        words = self._words
        words[_ID], words[_WRITE] = facts.broker_id, facts.write_begun_ms
        words[_EPOCH], words[_MAX], words[_CONFIRM] = facts[3:]
        words[_SIGN] = facts.sign_ms

    def saw_fence(self) -> None:
        """The broker's lease is taken back: it acknowledges nothing by itself."""
        self._words[_SEEN] = self._words[_RAISED]

    # -- the watcher writes

    def raise_fence(self) -> None:
        """From here on the broker may not take its lease for good."""
        if not self.is_fenced:
            self._words[_RAISED] += 1

    def lower_fence(self) -> None:
        """No election that the watcher asked for can come any more."""
        self._words[_LOWERED] = self._words[_RAISED]

    # -- both read

    @property
    def facts(self) -> Facts:
        """What the broker said last."""
        words = self._words
        return Facts(
            words[_SIGN], words[_ID], words[_WRITE], words[_EPOCH], words[_MAX], words[_CONFIRM]
        )

    @property
    def is_fenced(self) -> bool:
        """Whether the fence is up."""
        words = self._words
        return words[_RAISED] != words[_LOWERED]

    @property
    def is_fence_seen(self) -> bool:
        """Whether the broker has taken its lease back since the fence was raised."""
        return self._words[_SEEN] == self._words[_RAISED]

    def close(self) -> None:
        """Let the memory go."""
        self._words.release()
        self._memory.release()
