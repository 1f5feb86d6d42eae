"""New files whose blocks are there before anybody needs them.

Reserving a gigabyte takes a file system anything from a millisecond (extents) to half a second
(memory that must be cleared), and whoever maps a file waits for it. What is prepared here has no
name yet (``O_TMPFILE``): it gets one when it is taken, and after a crash nothing of it is left,
where another program would stumble over it.
"""

from __future__ import annotations

import os
import threading


class PreparedFiles:
    """At most one nameless file for each directory and length. Called from any thread."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._ready: dict[tuple[str, int], int] = {}
        self._drops = 0

    def prepare(self, directory: str, size: int) -> None:
        """Reserve one; does nothing where there is one, no room, or no such kind of file."""
        key = (directory, size)
        with self._guard:
            if key in self._ready:
                return
            drops = self._drops
        try:
            fd = os.open(directory, os.O_TMPFILE | os.O_RDWR, 0o644)
        except OSError:
            return
        try:
            os.posix_fallocate(fd, 0, size)
        except OSError:
            os.close(fd)
            return
        with self._guard:
            # Whoever dropped meanwhile has closed its store: nobody would take this.
            unused = drops != self._drops or self._ready.setdefault(key, fd) != fd
        if unused:
            os.close(fd)

    def take(self, path: str, size: int) -> int | None:
        """Give a prepared file its name; its descriptor, or None when that cannot be."""
        with self._guard:
            fd = self._ready.pop((os.path.dirname(path), size), None)
        if fd is None:
            return None
        try:
            _name(fd, path)
        except OSError:
            os.close(fd)
            return None
        return fd

    def drop(self, directory: str) -> None:
        """Give back what was prepared for a directory."""
        with self._guard:
            self._drops += 1
            for key in [one for one in self._ready if one[0] == directory]:
                os.close(self._ready.pop(key))


def _name(fd: int, path: str) -> None:
    # Python follows the link in /proc only when it is given a directory to start from.
    own = os.open("/proc/self/fd", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.link(str(fd), path, src_dir_fd=own, follow_symlinks=True)
    finally:
        os.close(own)
