"""What replication needs from a store, as a Protocol: ``ha`` never imports ``store``.

Offsets are physical: bytes since the start of the commit log. ``rmqha.store`` implements this
over mapped files; tests and property checks use a log in memory.
"""

from __future__ import annotations

from typing import Protocol


class LogRoom(Protocol):
    """Room at the log's end in which writes do not wait for the disk."""

    @property
    def is_short(self) -> bool:
        """Writes may wait: whoever can makes room first."""

    def now_ms(self) -> int:
        """The moment at which a write begins."""

    def wrote(self, begun_ms: int) -> None:
        """Something was written in the loop, which began at ``begun_ms``."""

    async def make(self, length: int, *, ahead: int = 0) -> int:
        """Have the next bytes of the log take writes without waiting, for a moment; how many.

        Args:
            length: in bytes.
            ahead: of the log's end: bytes that are written and do not count yet.

        Raises:
            DiskFailed: their file was closed meanwhile.
        """


class ReplicatedLog(Protocol):
    """The commit log as replication sees it. Nothing here copies a message body."""

    @property
    def room(self) -> LogRoom:
        """At its end."""

    @property
    def file_size(self) -> int:
        """``mappedFileSizeCommitLog``: files start at its multiples, ranges never cross one."""

    @property
    def min_offset(self) -> int:
        """First byte of the first file; -1 when there is no file."""

    @property
    def max_offset(self) -> int:
        """The next byte to be written; 0 for an empty log."""

    @property
    def flushed_offset(self) -> int:
        """Everything before it is durable."""

    @property
    def damaged_at(self) -> int | None:
        """Where what is written can never become a record, near the log's end; None for nowhere.

        What may still grow into one is no damage. After a flood of small records it may be found late.
        """

    @property
    def confirm_offset(self) -> int:
        """What consumers may see ends here; kept in the checkpoint file."""

    def set_confirm_offset(self, offset: int) -> None:
        """Move it; the dispatcher follows up to it."""

    def readable(self, offset: int, limit: int) -> int:
        """Contiguous written bytes from ``offset``, within its file, at most ``limit``."""

    def view(self, offset: int, length: int) -> memoryview:
        """The bytes themselves, mapped; within one file."""

    def is_cold(self, offset: int, length: int) -> bool:
        """Whether who looks at these bytes of one file would have to wait for the disk."""

    async def fetch(self, offset: int, length: int) -> None:
        """Bring them into memory, without holding up the loop.

        Raises:
            DiskFailed: they cannot be read.
        """

    def is_proven(self, offset: int, length: int) -> bool:
        """Whether these bytes of one file, which are in memory, are known to be of whole records."""

    async def prove(self, offset: int, length: int) -> bool:
        """Check their records, and try to mend what is not whole; whether all are whole now.

        Raises:
            DiskFailed: the store must stop.
        """

    def reserve(self, offset: int, length: int) -> memoryview:
        """Where received bytes of ``[offset, offset + length)`` go; within one file.

        An empty log begins at a multiple of ``file_size``, for recovery reads its first file from
        the start. Otherwise ``offset`` is at or after ``max_offset``: bytes of one
        frame may arrive in pieces before ``received`` counts them.

        Raises:
            DiskFailed: the next file cannot be made (a full disk).
            ValueError: the range crosses a file or leaves a gap.
        """

    def write(self, offset: int, data: memoryview) -> None:
        """Put received bytes into a range that was reserved; ``received`` counts them.

        Raises:
            DiskFailed: the store must stop.
        """

    def received(self, offset: int, length: int) -> None:
        """The reserved bytes are there: ``max_offset`` becomes ``offset + length``."""

    async def flush(self, offset: int) -> int:
        """Make everything before ``offset`` durable; returns ``flushed_offset``.

        Raises:
            DiskFailed: the store must stop.
        """

    def valid_end(self, start: int, end: int) -> int:
        """Where the last whole record or end-of-file blank within ``[start, end)`` ends.

        ``start`` is the start of a record. Lengths and magic are checked, CRCs are not. It may stop
        short after some thousand records: call it again from there, until it stays where it is.
        """

    async def truncate(self, offset: int) -> None:
        """Cut the log and its queues to ``offset``; durable, cut bytes zeroed, on return.

        ``offset`` need not be the start of a record: bytes before it stay. ``max_offset`` and
        ``confirm_offset`` never exceed it afterwards. A cut at or after ``max_offset`` changes
        nothing.

        Raises:
            DiskFailed: the cut may be incomplete; the store must stop.
        """

    @property
    def dispatched_offset(self) -> int:
        """Records before it are in the consume queues (Java: reputFromOffset)."""

    async def wait_dispatched(self, offset: int) -> None:
        """Return once ``dispatched_offset`` has reached ``offset``."""

    async def rebuild_queue_offsets(self) -> None:
        """Recompute every queue's next offset from its queue and the log behind it (2.9).

        Others get their turn meanwhile, the dispatcher among them; nobody appends or cuts.
        """
