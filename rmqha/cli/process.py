"""What the server processes have in common: exit codes, their file, how they start and end.

Exit codes: 0 ended in order, 1 failed while it ran, 2 bad flags or configuration, 3 the store
cannot be used, 4 a port cannot be used.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import re
import signal
import sys
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, Self, TypeVar

import click

from rmqha.base.errors import (
    ConfigInvalid,
    DiskFailed,
    InvariantBroken,
    StoreCorrupted,
    StoreInUse,
    StoreMismatch,
)
from rmqha.cli.early import let_held_come
from rmqha.cli.output import complain
from rmqha.remoting.settings import CONNECTIONS_MAX
from rmqha.runtime.aio import descriptors
from rmqha.runtime.aio.supervisor import Supervisor
from rmqha.runtime.environment import overlaid, settings_of
from rmqha.runtime.exposure import open_doors
from rmqha.runtime.logs import Logger
from rmqha.runtime.properties import decode_properties, parse_properties
from rmqha.runtime.tls_settings import TlsSettings

COLLECTIONS = (10_000, 3, 40)
"""Requests leave nothing behind that the collector has to find, so it need not look so often: at what
is new after so many allocations, at a few such lots at a time (40,000 objects are 10 ms), and seldom at
all that was made since the start."""

CONNECTIONS_FEW = 4_096
DESCRIPTORS_FOR_FILES = 48
"""Kept for the files of a controller or name server, and for connections that it makes itself."""

AGAIN_S = 1.0
"""Two Ctrl-C nearer to each other count as one."""
EXIT_FAILED, EXIT_CONFIG, EXIT_STORE, EXIT_PORT = 1, 2, 3, 4
STORE_ERRORS = (StoreCorrupted, StoreMismatch, StoreInUse, DiskFailed)
"""Why a process ends with ``EXIT_STORE``."""

ConfigT = TypeVar("ConfigT")
_CONTROL = re.compile("[\0-\x1f\x7f-\x9f]")
"""A store's file given by mistake, or text of two bytes a character, as some editors write it."""
_UMASK = re.compile(r"0?[0-7]{1,3}")


class Opening:
    """Around all that a process opens: what goes wrong there becomes the exit code that says so.

    Attributes:
        listening_on: the address that is opened now; an operator is told of it.
        code: why the process does not go on; None when all is open.
    """

    def __init__(self, process: str, listening_on: str = "") -> None:
        self._process = process
        self.listening_on = listening_on
        self.code: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        self.code = None if error is None else exit_code(error)
        if error is None or self.code == EXIT_FAILED:
            return False
        where = f"cannot listen on {self.listening_on}: " if self.code == EXIT_PORT else ""
        complain(self._process, f"{where}{error}")
        return True


def exit_code(error: BaseException) -> int:
    """Which exit code says why a process could not go on."""
    # No port is a file that is not there.
    if isinstance(error, (*STORE_ERRORS, FileNotFoundError)):
        return EXIT_STORE
    if isinstance(error, ConfigInvalid):
        return EXIT_CONFIG
    return EXIT_PORT if isinstance(error, OSError) else EXIT_FAILED


def configured(process: str, read: Callable[[], ConfigT]) -> ConfigT:
    """The configuration; one that cannot be used ends the process with ``EXIT_CONFIG``."""
    try:
        return read()
    except ConfigInvalid as error:
        complain(process, error)
        sys.exit(EXIT_CONFIG)


def print_config(values: Mapping[str, str], is_shown: Callable[[str], bool]) -> None:
    """What ``-p`` and ``-m`` print."""
    for key in sorted(values):
        if is_shown(key):
            print(f"{key}={values[key]}")


def set_umask(values: Mapping[str, str]) -> None:
    """Who may read the files: before any is made. A text that is no umask ends the process."""
    text = values["fileUmask"]
    if not _UMASK.fullmatch(text):
        complain("rmqha", f"fileUmask={text} is not an octal number such as 077")
        sys.exit(EXIT_CONFIG)
    os.umask(int(text, 8))


def tell_open_doors(kind: str, values: Mapping[str, str], tls: TlsSettings, log: Logger) -> None:
    """Say which doors will stand open, before any is opened.

    Args:
        kind: ``controller``, ``name server`` or ``broker``.
        values: the configuration.
        tls: what counts of the keys about TLS.
        log: told of each open door.
    """
    for sentence in open_doors(kind, values, tls):
        log.log("warning", "door_open", what=sentence)
        # Elsewhere stderr is a log of JSON lines, and has it as one.
        if sys.stderr.isatty():
            click.secho(f"rmqha: {sentence}", fg="red", bold=True, err=True)


class Ending:
    """How the process comes to its end: by a signal, or by a failure. The first one counts; only a
    second Ctrl-C, a second later or more, ends it at once, as ``kill -9`` does.

    A supervisor (systemd) hears when it is up, that it lives, and when it begins to end.

    Made in the running loop; from then on signals and callbacks that fail come here.
    """

    def __init__(self, log: Logger) -> None:
        loop = asyncio.get_running_loop()
        self._code: asyncio.Future[int] = loop.create_future()
        loop.add_signal_handler(signal.SIGTERM, self.end, 0)
        let_held_come({signal.SIGTERM})
        loop.add_signal_handler(signal.SIGINT, self._interrupted)
        self._supervisor = Supervisor.of(os.environ, log)
        loop.set_exception_handler(lambda _, context: callback_failed(log, context, self.end))

    def end(self, code: int) -> None:
        """End with this exit code."""
        if not self._code.done():
            self._code.set_result(code)

    def _interrupted(self) -> None:
        """End in order; who sits before a process that does not come to its end can end it at once."""
        asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)
        begun_s = time.monotonic()

        def again(number: int, frame: FrameType | None) -> None:
            # A terminal and a wrapper may both pass on the same Ctrl-C.
            if time.monotonic() - begun_s >= AGAIN_S:
                signal.signal(signal.SIGINT, signal.SIG_DFL)
                os.kill(os.getpid(), signal.SIGINT)

        signal.signal(signal.SIGINT, again)
        self.end(0)

    async def wait(self) -> int:
        """The exit code, once there is a reason to end; call it when the process is up."""
        self._supervisor.up()
        try:
            return await self._code
        finally:
            self._supervisor.ending()


def read_properties(path: str | None, needed: str) -> dict[str, str]:
    """Read the properties file given with ``-c``; ``needed`` is a key that it must have.

    Raises:
        ConfigInvalid: no file, or one that cannot be read or is no properties file.
    """
    if path is None:
        raise ConfigInvalid(f"give a properties file with -c ({needed} is needed)")
    try:
        found = parse_properties(decode_properties(Path(path).read_bytes()))
    except OSError as error:
        raise ConfigInvalid(f"cannot read {path}: {error.strerror}") from error
    except ConfigInvalid as error:
        raise ConfigInvalid(f"{path}: {error}") from error
    if any(_CONTROL.search(key) for key in found):
        raise ConfigInvalid(f"{path} is no properties file: it has bytes that are no text")
    return found


def read_settings(path: str | None, needed: str, known: Collection[str]) -> dict[str, str]:
    """Read the file given with ``-c``, and over it the settings of the environment.

    Args:
        path: of the file; not needed where the environment has ``needed``.
        needed: a key that there must be; empty when all have defaults.
        known: the names of settings.

    Raises:
        ConfigInvalid: as `read_properties` does.
    """
    over = settings_of(os.environ, known)
    without_file = path is None and (not needed or needed in over)
    return overlaid({} if without_file else read_properties(path, needed), over)


def make_room(log: Logger, wanted: int, *, ports: int = 1, of_store: bool = False) -> int:
    """Raise the limit of descriptors; how many connections each port may have.

    Call it before anything is opened.

    Args:
        wanted: ``connectionsMax``.
        ports: that take connections.
        of_store: a broker's, whose mapped files take two descriptors each: half is theirs.
    """
    limit = descriptors.raise_limit()
    fitting = descriptors.connections_that_fit(
        wanted,
        limit=limit,
        in_use=descriptors.count_in_use(),
        files=max(DESCRIPTORS_FOR_FILES, limit // 2 if of_store else 0),
        ports=ports,
    )
    # Nobody asked for the default's number: it is told only where few are left of it.
    if fitting < wanted and (wanted != CONNECTIONS_MAX or fitting < CONNECTIONS_FEW):
        log.log(
            "warning", "connections_max_cut", wanted=wanted, connections_max=fitting,
            descriptors=limit,
        )  # fmt: skip
    return fitting


@contextlib.contextmanager
def collections_held() -> Iterator[None]:
    """While a server starts: what it makes stays, and walking over it again and again takes as long
    as making it (80,000 queues: 3 s of 9, up to 0.4 s at a time)."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def settle_memory() -> None:
    """Call once a server is up: what start-up made lives for ever, and is not walked again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTIONS)


def callback_failed(log: Logger, context: dict[str, Any], end: Callable[[int], None]) -> None:
    """Log what a callback of the loop raised; stop when a safety rule or the state is broken."""
    error = context.get("exception")
    trace = "".join(traceback.format_exception(error)) if error is not None else None
    log.log("error", "callback_failed", what=context.get("message"), trace=trace)
    if isinstance(error, InvariantBroken | StoreCorrupted):
        end(EXIT_FAILED)
