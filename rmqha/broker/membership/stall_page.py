"""What a broker and the watcher of its event loop tell each other: words of one shared page.

Each word has one writer and is written whole, so neither side ever waits for the other: that is the
point, for the broker may stand still in the middle of anything. The controllers' addresses are a text,
which is not: its number is odd while it is written, and who reads it meanwhile goes by the one before. Times are milliseconds of the machine's
monotonic clock, which all of its processes share.
"""

from __future__ import annotations

from typing import NamedTuple

PAGE_BYTES = 4096
_SIGN, _ID, _WRITE, _EPOCH, _MAX, _CONFIRM, _SEEN, _RAISED, _LOWERED, _NUMBER, _LENGTH = range(11)
_TEXT = 128
"""Where the addresses begin, in bytes."""


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
        self._named: tuple[str, ...] = ()
        self._number = 0

    # -- the broker writes

    def tell(self, facts: Facts) -> None:
        """Say all; the sign of life comes last."""
        words = self._words
        words[_ID], words[_WRITE] = facts.broker_id, facts.write_begun_ms
        words[_EPOCH], words[_MAX], words[_CONFIRM] = facts[3:]
        words[_SIGN] = facts.sign_ms

    def name_controllers(self, addresses: tuple[str, ...]) -> None:
        """Say who the controllers are; more than fit in are not told."""
        text = ";".join(addresses).encode()
        if addresses == self._named or len(text) > PAGE_BYTES - _TEXT:
            return
        self._named = addresses
        words = self._words
        words[_NUMBER] += 1
        words[_LENGTH] = len(text)
        self._memory[_TEXT : _TEXT + len(text)] = text
        words[_NUMBER] += 1

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

    def controllers(self) -> tuple[str, ...]:
        """Who the controllers are, as far as the broker has said it; nobody before."""
        words = self._words
        number = words[_NUMBER]
        if number != self._number and not number % 2:
            text = bytes(self._memory[_TEXT : _TEXT + words[_LENGTH]])
            if words[_NUMBER] == number:
                self._number = number
                self._named = tuple(text.decode().split(";")) if text else ()
        return self._named

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
