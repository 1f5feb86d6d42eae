"""Files that commands write in one step: on a full disk, or after a cut, what stood there before stays."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile

from rmqha.runtime.aio.mapped_file import sync_dir


def write_whole_file(path: str, content: bytes) -> None:
    """Write a file, its owner's alone; it is on the disk afterwards.

    Raises:
        OSError: it cannot be written.
    """
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        mode = stat.S_IFREG
    if not stat.S_ISREG(mode):  # a device or a pipe, which nothing may take the place of; or a link
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_NOFOLLOW), "wb") as file:
            file.write(content)
        return
    folder = os.path.dirname(path) or "."
    descriptor, beside = tempfile.mkstemp(dir=folder, prefix=".rmqha-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise
    sync_dir(folder)
