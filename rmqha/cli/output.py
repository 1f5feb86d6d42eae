"""A command's standard output: what becomes of it when it cannot be written.

For a tool the output is what it is for: one line on stderr, and exit code 1. A server says a line
or two when it is up and goes on without them. Who stops reading a pipe has seen enough: that ends
a command in silence, as click does it.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TextIO

from rmqha.cli.early import let_signals_come

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

EXIT_UNWRITTEN = 1
STDOUT = 1
_ESCAPED = "backslashreplace"
"""What the output's encoding does not have is shown as its number: an answer is worth more than a letter."""
_NEVER_RAISE = frozenset({"ignore", "namereplace", "replace", "xmlcharrefreplace"})
"""What people may ask for with PYTHONIOENCODING."""


class NotWritten(OSError):
    """Standard output takes nothing: its disk is full, or it was closed before the start."""


class _Raw(io.RawIOBase):
    """Descriptor 1. It complains once; what comes after that is dropped, Python's own last flush
    included, which would complain again without saying whose output it was."""

    def __init__(self, broken: int | None) -> None:
        super().__init__()
        self._broken = broken
        self._has_complained = False

    def writable(self) -> bool:
        """It is for writing."""
        return True

    def isatty(self) -> bool:
        """Whether a person looks at it."""
        return os.isatty(STDOUT)

    def fileno(self) -> int:
        """The descriptor, for those who ask for the width of a terminal."""
        return STDOUT

    def forget(self, stream: TextIO) -> None:
        """Drop what waits to be written, and complain of what comes later."""
        stream.flush()
        self._has_complained = False

    def write(self, data: ReadableBuffer, /) -> int:
        """Write what can be written at once; returns how much that was."""
        view = memoryview(data)
        if self._has_complained:
            return view.nbytes
        try:
            if self._broken is not None:
                raise OSError(self._broken, os.strerror(self._broken))
            return os.write(STDOUT, view)
        except BrokenPipeError:
            self._has_complained = True
            raise
        except OSError as error:
            self._has_complained = True
            raise NotWritten(error.errno, error.strerror) from error


class Command(Protocol):
    """A command of click."""

    def main(self, *, prog_name: str) -> object:
        """Run it with the arguments of this process."""


def complain(process: str, reason: object) -> None:
    """Say on the terminal why a process does not go on."""
    with contextlib.suppress(OSError):  # the exit code says it, too
        print(f"{process}: {reason}", file=sys.stderr)


def say(line: str) -> None:
    """Say what a server says on its way up; nobody need be able to hear it."""
    try:
        print(line, flush=True)
    except OSError:
        raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
        if isinstance(raw, _Raw):
            raw.forget(sys.stdout)


def run(name: str, command: Callable[[], object]) -> None:
    """Run a command to its end, with an output that is told of when it cannot be written.

    Args:
        name: begins the line that tells.
        command: does not return, or returns when it is done.
    """
    _guard()
    try:
        try:
            command()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        sys.exit(EXIT_UNWRITTEN)
    except NotWritten as error:
        complain(name, f"cannot write to standard output: {error.strerror}")
        sys.exit(EXIT_UNWRITTEN)


def run_command(name: str, command: Command) -> None:
    """Run a command of click as this process."""
    let_signals_come(name)
    run(name, lambda: command.main(prog_name=name))


def _guard() -> None:
    """Put our own end of descriptor 1 in the place of Python's."""
    if sys.stderr is None:
        _occupy(2)
        sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False))
    broken = None
    before = sys.stdout
    if before is None:
        _occupy(STDOUT)
        broken = errno.EBADF
    elif before is not sys.__stdout__:
        return  # somebody listens in this process
    raw = _Raw(broken)
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=None if before is None else before.encoding,
        errors=before.errors if before is not None and before.errors in _NEVER_RAISE else _ESCAPED,
        line_buffering=isinstance(before, io.TextIOWrapper)
        and (before.line_buffering or before.write_through),
    )


def _occupy(number: int) -> None:
    """A descriptor that was closed leads nowhere: or the next socket gets its number, and what
    this process prints."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    if nowhere != number:
        os.dup2(nowhere, number)
        os.close(nowhere)
