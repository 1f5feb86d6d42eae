"""Disks of nodes: file systems in images, that lose power, fill up, stand still or are slow.

A power cut is a kill of the processes and the file system's own end (``EXT4_IOC_SHUTDOWN`` without a
flush of its journal): what was not synced is gone when it is mounted again, as after a real one. It
is how the kernel's developers test their file systems. Mounts are in the command's own mount
namespace.

Needs root: nobody else may mount an image.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

from rmqha.chaos.aio.hosts import HostsUnavailable

IMAGE_BYTES = 16 << 30
"""More than a cell writes, and nothing until it is written: a broker of Java deletes its oldest files
when three quarters of its disk are taken, whatever it was told to keep, and those would count as lost."""
JOURNAL_MIB_MAX = 64
"""The journal of so large an image would be zeroed for seconds."""
SHUTDOWN = 0x8004587D
"""``EXT4_IOC_SHUTDOWN``, ``_IOR('X', 125, __u32)``; include/uapi/linux/ext4.h."""
NO_LOG_FLUSH = 2
THROTTLE = Path("/sys/fs/cgroup/blkio")
SLOW = {"write_iops": 40, "write_bps": 1 << 20}
"""What a slow disk takes in a second: writes, and bytes."""
PROGRAMS = "mkfs.ext4", "mount", "umount", "fsfreeze"
FILLER = "filler"
STEP_BYTES = 16 << 20
TIMEOUT_S = 60.0


class Disks:
    """A file system for each folder that is given one; call ``close`` at the end."""

    def __init__(self, size_bytes: int = IMAGE_BYTES) -> None:
        self._size_bytes = size_bytes
        self._mounted: list[Path] = []

    def add(self, folder: Path) -> None:
        """Make a file system and mount it at a folder; its image lies beside it.

        Raises:
            HostsUnavailable: this user, or this machine, may not.
        """
        if os.geteuid() != 0:
            raise HostsUnavailable("file systems of their own need root")
        missing = sorted(name for name in PROGRAMS if not shutil.which(name))
        if missing:
            raise HostsUnavailable(
                f"missing programs: {', '.join(missing)} (e2fsprogs, util-linux)"
            )
        image = self._image(folder)
        with image.open("wb") as file:
            file.truncate(self._size_bytes)
        journal_mib = min(JOURNAL_MIB_MAX, self._size_bytes >> 24)
        made = ["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=1", "-J", f"size={journal_mib}"]
        _run([*made, str(image)])
        self._mount(folder)

    def cut(self, folder: Path) -> None:
        """Take its power away: nothing of it reaches the image any more."""
        directory = os.open(folder, os.O_RDONLY)
        try:
            fcntl.ioctl(directory, SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(directory)

    def restore(self, folder: Path) -> None:
        """Mount it anew, with what was on the image; nobody may have a file open."""
        self._mounted.remove(folder)
        _run(["umount", str(folder)])
        self._mount(folder)

    def fill(self, folder: Path) -> None:
        """Take all the room that is left."""
        step = STEP_BYTES
        with (folder / FILLER).open("wb") as file:
            at = 0
            while step >= os.sysconf("SC_PAGESIZE"):
                try:
                    os.posix_fallocate(file.fileno(), at, step)
                    at += step
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    step //= 2

    def empty(self, folder: Path) -> None:
        """Give the room back."""
        (folder / FILLER).unlink()

    def freeze(self, folder: Path, *, on: bool) -> None:
        """Have every write wait, or go on."""
        _run(["fsfreeze", "--freeze" if on else "--unfreeze", str(folder)])

    def slow(self, folder: Path, *, on: bool) -> None:
        """Have writes take their time, or not.

        Raises:
            HostsUnavailable: there is no version 1 of the kernel's block controller.
        """
        device = folder.stat().st_dev
        for kind, most in SLOW.items():
            limit = THROTTLE / f"blkio.throttle.{kind}_device"
            if not limit.exists():
                raise HostsUnavailable("slow disks need version 1 of the block controller")
            limit.write_text(f"{os.major(device)}:{os.minor(device)} {most if on else 0}")

    def close(self) -> None:
        """Unmount all, and remove the images."""
        while self._mounted:
            folder = self._mounted.pop()
            _run(["umount", "--lazy", str(folder)])
            self._image(folder).unlink()

    def _mount(self, folder: Path) -> None:
        _run(["mount", "-o", "loop", str(self._image(folder)), str(folder)])
        self._mounted.append(folder)

    @staticmethod
    def _image(folder: Path) -> Path:
        return folder.with_name(folder.name + ".ext4")


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode:
        raise HostsUnavailable(f"{' '.join(command)}: {done.stderr.strip()}")
