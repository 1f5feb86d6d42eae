"""Played by ``test_disks.py`` in a namespace of its own: what is left of files after each fault."""

from __future__ import annotations

import errno
import os
import sys
import tempfile
from pathlib import Path

from rmqha.chaos.aio.disks import Disks
from rmqha.chaos.aio.hosts import enter

SIZE = 64 << 20


def main() -> None:
    """Print what was found, a line each."""
    enter(sys.argv[1:], "tests.chaos.disks_story")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "disk"
        place.mkdir()
        disks = Disks(SIZE)
        disks.add(place)
        try:
            power(disks, place)
            room(disks, place)
        finally:
            disks.close()
        print(f"left: {sorted(path.name for path in Path(folder).iterdir())}")


def power(disks: Disks, place: Path) -> None:
    """A file that was synced in part, and one that never was."""
    with (place / "log").open("wb", buffering=0) as log:
        log.write(b"s" * 5000)
        os.fsync(log.fileno())
        directory = os.open(place, os.O_RDONLY)
        os.fsync(directory)
        os.close(directory)
        log.write(b"u" * 5000)
        (place / "new").write_bytes(b"n" * 5000)
        disks.cut(place)
        try:
            log.write(b"x")
            print("after the cut: written")
        except OSError as error:
            print(f"after the cut: {errno.errorcode[error.errno or 0]}")
    disks.restore(place)
    print(f"synced: {(place / 'log').read_bytes() == b's' * 5000}")
    print(f"new: {(place / 'new').exists() and (place / 'new').stat().st_size > 0}")


def room(disks: Disks, place: Path) -> None:
    """A disk that is full, and then is not."""
    disks.fill(place)
    try:
        with (place / "more").open("wb", buffering=0) as more:
            more.write(b"m" * 100_000)
        print("full: written")
    except OSError as error:
        print(f"full: {errno.errorcode[error.errno or 0]}")
    disks.empty(place)
    (place / "more").write_bytes(b"m" * 100_000)
    print(f"emptied: {(place / 'more').stat().st_size}")


if __name__ == "__main__":
    main()
