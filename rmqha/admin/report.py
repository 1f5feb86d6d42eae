"""What a command found, ready for every rendering."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from rmqha.base.errors import RmqhaError
from rmqha.client.exchange import Exchange


class Table(Struct, frozen=True):
    """Rows for people; ``None`` is shown as a dash."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[object]]


class Report(Struct, frozen=True):
    """A command's outcome.

    Attributes:
        plain: the Java tool's text, to the byte.
        data: the same facts for ``--json``.
        tables: the same facts for people.
        failures: addresses that were asked in vain while others answered.
        files: contents by path, to be written beside texts and tables that name them.
        makes_folders: the folders of ``files`` are made; not where somebody gave the path.
        warnings: what was passed over without being a failure: the exit code is as without.
        then: what is left to do when ``files`` are written, and not before; it reports by itself.
    """

    plain: str
    data: Any
    tables: tuple[Table, ...]
    failures: tuple[RmqhaError, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    makes_folders: bool = False
    then: Exchange[Report] | None = None
    warnings: tuple[str, ...] = ()
