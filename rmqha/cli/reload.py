"""SIGHUP: the properties file is read again, and what may change of it counts at once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from rmqha.base.errors import ConfigInvalid
from rmqha.cli.early import let_held_come
from rmqha.cli.process import read_properties
from rmqha.runtime.environment import overlaid, settings_of
from rmqha.runtime.logs import LEVELS, Logger, set_level
from rmqha.runtime.reload import compare

LEVEL = "logLevel"


class Part(NamedTuple):
    """A part of a process that has settings of its own.

    Attributes:
        values: those that count.
        mutable: keys that may change.
        change: takes other values of them; says why it does not, or None.
    """

    values: dict[str, str]
    mutable: Collection[str]
    change: Callable[[Mapping[str, str]], str | None]


class Reloader:
    """Reads a process's file again at each SIGHUP. Made in the running loop, before anything is
    opened: a signal that comes while the process starts is carried out at `begin`.

    Args:
        path: of the file; None for a process without one, which then only says so.
        aliases: other names of keys.
        log: told what has changed, what needs a restart, and what could not be read.
    """

    def __init__(
        self, path: str | None, log: Logger, aliases: Mapping[str, str] | None = None
    ) -> None:
        self._path = path
        self._parts: Collection[Part] = ()
        self._log = log
        self._aliases = aliases or {}
        self._at_start: dict[str, str] = {}
        self._started: dict[str, str] = {}
        self._is_begun = self._is_asked = False
        with contextlib.suppress(ConfigInvalid):  # it was there a moment ago
            self._at_start = read_properties(path, "")
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._asked)
        let_held_come({signal.SIGHUP})

    def begin(self, parts: Collection[Part]) -> None:
        """The process is up, and what may change has its places."""
        self._parts = parts
        self._started = self._overlaid(self._at_start)
        self._is_begun = True
        if self._is_asked:
            self.reload()

    def _asked(self) -> None:
        self._is_asked = True
        if self._is_begun:
            self.reload()

    def _overlaid(self, found: dict[str, str]) -> dict[str, str]:
        """With the environment over it."""
        known = {key for part in self._parts for key in part.values}
        found = overlaid(found, settings_of(os.environ, known))
        return {self._aliases.get(key, key): value.strip() for key, value in found.items()}

    def reload(self) -> None:
        """Read the file, and have what may change of it count."""
        try:
            now = self._overlaid(read_properties(self._path, ""))
            level = now.get(LEVEL, "info")
            if level not in LEVELS:
                raise ConfigInvalid(f"{LEVEL}={level} is not a level")
        except ConfigInvalid as error:
            self._log.log("warning", "config_not_reloaded", reason=str(error))
            return
        changed: dict[str, str] = {}
        refused: list[str] = []
        mutable = {LEVEL}.union(*(part.mutable for part in self._parts))
        running = {key: value for part in self._parts for key, value in part.values.items()}
        fixed = compare(self._started, now, running, mutable).fixed
        for part in self._parts:
            found = compare(self._started, now, part.values, part.mutable).changed
            reason = part.change(found) if found else None
            if reason is None:
                changed |= found
            else:
                refused.append(reason)
            self._set_level(part, level, changed)
        self._log.log(
            "warning" if fixed or refused else "info", "config_reloaded", changed=changed,
            needs_restart=list(fixed), refused=refused,
        )  # fmt: skip

    def _set_level(self, part: Part, level: str, changed: dict[str, str]) -> None:
        if part.values[LEVEL] != level:
            part.values[LEVEL] = changed[LEVEL] = level
            set_level(level)
