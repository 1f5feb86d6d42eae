"""New files whose blocks are there before anybody needs them.

Reserving a gigabyte takes a file system anything from a millisecond (extents) to half a second
(memory that must be found), and whoever maps a file waits for it. What is prepared here has no
name yet (``O_TMPFILE``): it gets one when it is taken, and after a crash nothing of it is left,
where another program would stumble over it.
"""

from __future__ import annotations

import os
import threading
import time

SLICE_BYTES = 64 << 20
"""Reserved at a time; what was prepared in part can be taken in between."""

PAUSES_PER_WAIT = 3
PAUSE_S_MAX = 0.2
"""After a slice the thread sleeps so many times as long as it had to wait for a core or the disk, but
not longer than this: whoever fills the file before this one needs them more. Alone it never sleeps."""


class _Prepared:
    """A nameless file, whole or on its way; ``PreparedFiles`` guards it.

    Attributes:
        fd: of whoever takes it; the thread that reserves has a descriptor of its own.
        done: bytes that are reserved.
        wanted: False once it was taken or dropped.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.done = 0
        self.wanted = True


class PreparedFiles:
    """At most one nameless file for each directory and length. Called from any thread."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._ready: dict[tuple[str, int], _Prepared] = {}

    def prepare(self, directory: str, size: int) -> None:
        """Reserve one; does nothing where there is one, no room, or no such kind of file."""
        key = (directory, size)
        with self._guard:
            if key in self._ready:
                return
            try:
                own = os.open(directory, os.O_TMPFILE | os.O_RDWR, 0o644)
            except OSError:
                return
            try:
                file = self._ready[key] = _Prepared(os.dup(own))
            except OSError:
                os.close(own)
                return
        try:
            self._reserve(own, file, size)
        except OSError:
            with self._guard:
                if file.wanted:
                    self._give_back(key)
        finally:
            os.close(own)

    def _reserve(self, own: int, file: _Prepared, size: int) -> None:
        for start in range(0, size, SLICE_BYTES):
            if not file.wanted:
                return
            began, worked = time.monotonic(), time.thread_time()
            os.posix_fallocate(own, start, min(SLICE_BYTES, size - start))
            waited = (time.monotonic() - began) - (time.thread_time() - worked)
            file.done = min(size, start + SLICE_BYTES)
            if file.done < size and waited > 0:
                time.sleep(min(PAUSE_S_MAX, PAUSES_PER_WAIT * waited))

    def take(self, path: str, size: int) -> int | None:
        """Give a prepared file its name, and the blocks that it still lacks.

        Returns:
            Its descriptor, or None when that cannot be.
        """
        with self._guard:
            file = self._ready.pop((os.path.dirname(path), size), None)
            if file is None:
                return None
            file.wanted = False
        try:
            if file.done < size:
                os.posix_fallocate(file.fd, file.done, size - file.done)
            _name(file.fd, path)
        except OSError:
            os.close(file.fd)
            return None
        return file.fd

    def drop(self, directory: str) -> None:
        """Give back what was prepared for a directory."""
        with self._guard:
            for key in [one for one in self._ready if one[0] == directory]:
                self._give_back(key)

    def _give_back(self, key: tuple[str, int]) -> None:
        file = self._ready.pop(key)
        file.wanted = False
        os.close(file.fd)


def made(path: str, size: int) -> int | None:
    """Make a file that gets its name once it has its blocks.

    Returns:
        Its descriptor, or None where there is no such kind of file, or no room for one.
    """
    try:
        fd = os.open(os.path.dirname(path), os.O_TMPFILE | os.O_RDWR, 0o644)
    except OSError:
        return None
    try:
        os.posix_fallocate(fd, 0, size)
        _name(fd, path)
        # Else the system would show its mapping as one of a deleted file.
        return os.open(path, os.O_RDWR)
    except OSError:
        return None
    finally:
        os.close(fd)


def _name(fd: int, path: str) -> None:
    # Python follows the link in /proc only when it is given a directory to start from.
    own = os.open("/proc/self/fd", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.link(str(fd), path, src_dir_fd=own, follow_symlinks=True)
    finally:
        os.close(own)
