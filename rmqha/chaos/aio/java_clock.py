"""A wall clock of a process of Java's that somebody else moves, by ``libfaketime`` under the JVM.

The library stands before the C library's clocks and reads from a file by how much the wall clock is
wrong, once a second. Clocks that count intervals stay as they are, so the JVM's waits do.

Source: the README of libfaketime, https://github.com/wolfcw/libfaketime; the package of that name on
PyPI brings it compiled.
"""

from __future__ import annotations

import importlib.util
import subprocess
from collections.abc import Sequence
from pathlib import Path

from rmqha.chaos.aio.hosts import HostsUnavailable

PACKAGE = "libfaketime"
WITHIN = "vendor/libfaketime/src/libfaketime.so.1"
MISSING = f"wall clocks of Java's processes need {PACKAGE}: pip install {PACKAGE}"
SHARED_MEMORY = "/dev/shm"
LOOK_S = 1
"""The file is read anew when it was read so long ago."""


def library() -> Path:
    """Where the compiled library is.

    Raises:
        HostsUnavailable: it is not installed.
    """
    found = importlib.util.find_spec(PACKAGE)
    file = Path(found.origin).parent / WITHIN if found is not None and found.origin else None
    if file is None or not file.exists():
        raise HostsUnavailable(MISSING)
    return file


def with_clock(command: Sequence[str], file: Path) -> list[str]:
    """The command of a process whose wall clock follows a file; the clock is right to begin with."""
    write_java_shift(file, 0)
    settings = {
        "LD_PRELOAD": library(),
        "FAKETIME_TIMESTAMP_FILE": file,
        "FAKETIME_CACHE_DURATION": LOOK_S,
        "DONT_FAKE_MONOTONIC": 1,
        # Without it every timed wait of the JVM is over at once, with this glibc.
        "FAKETIME_FORCE_MONOTONIC_FIX": 0,
    }
    return ["env", *(f"{key}={value}" for key, value in settings.items()), *command]


def write_java_shift(file: Path, shift_s: int) -> None:
    """Move the clock of whoever runs with this file, within a second; 0 for the machine's own time."""
    beside = file.with_name(f"{file.name}.new")
    beside.write_text(f"{shift_s:+}\n")
    beside.replace(file)


def hide_shared_memory() -> None:
    """Have what the library leaves in shared memory be gone with this command's mount namespace.

    Raises:
        HostsUnavailable: this process has no mounts of its own to change.
    """
    mount = ["mount", "-t", "tmpfs", "tmpfs", SHARED_MEMORY]
    done = subprocess.run(mount, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise HostsUnavailable(f"{' '.join(mount)}: {done.stderr.strip()}")
