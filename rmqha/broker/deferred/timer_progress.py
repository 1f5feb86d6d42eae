"""Up to which moment stored timers are read, and delivered, where everything may be behind.

A timer's record is in the log first, then in the timers' queue, then in the table; and its delivery goes
the same way. Whoever says that all was delivered which was due by some moment must have gone through
all of that: a recall or an acknowledgement which is on its way has been answered already.

Source: our own; Java takes what its wheel holds for all there is.
"""

from __future__ import annotations


class TimerProgress:
    """Of one reign.

    One moment is followed until it is reached, then the next one: what is written later does not put
    it off, however much that is.

    Attributes:
        read_ms: by the wall clock; whatever was stored by then has been read. 0 while nothing is known.
        read_to: the end of the timers' queue that goes with it.
        delivered_ms: whatever was stored and due by then is where consumers read. 0 as above.
    """

    def __init__(self) -> None:
        self.read_ms = self.read_to = self.delivered_ms = 0
        # A moment, and where the log ended then.
        self._noted: tuple[int, int] | None = None
        self._queue_end: int | None = None
        # A moment, and where the last delivery ends that it needs.
        self._written: tuple[int, int] | None = None

    @property
    def waits_for_queues(self) -> bool:
        """Whether the queues have to grow for a moment to be reached."""
        return self._written is not None or (self._noted is not None and self._queue_end is None)

    def note(self, wall_ms: int, log_end: int) -> None:
        """Follow this moment, unless another one is being followed.

        Args:
            log_end: where the log ends now.
        """
        if self._noted is None:
            self._noted = wall_ms, log_end

    def dispatched(self, offset: int, queue_end: int) -> None:
        """Records before ``offset`` are in the queues, and the timers' one ends at ``queue_end``."""
        if self._noted is not None and self._queue_end is None and offset >= self._noted[1]:
            self._queue_end = queue_end
        if self._written is not None and offset >= self._written[1]:
            self.delivered_ms, self._written = self._written[0], None

    def read(self, position: int) -> None:
        """The table has the timers before this queue offset."""
        if self._noted is None or self._queue_end is None or position < self._queue_end:
            return
        self.read_ms, self.read_to = self._noted[0], self._queue_end
        self._noted = self._queue_end = None

    def written(self, log_end: int) -> None:
        """Everything that was read and due by :attr:`read_ms` is written, and safe.

        Args:
            log_end: where the last of it ends.
        """
        if self._written is None:
            self._written = self.read_ms, log_end
