"""One store directory as the pipeline sees it: whose it is, its files, its epochs, its queues.

Reads only, and nothing is locked: a directory may belong to a running broker.

Source: RocketMQ's protocol as observed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise

from msgspec import Struct

from rmqha.base.errors import ConfigInvalid
from rmqha.ha.epochs import OFFSET_MAX, EpochCache, load_epochs
from rmqha.pipeline.commitlog.elsewhere import (
    PACKED,
    Entry,
    above,
    base_name,
    below,
    entries,
    has_scheme,
    is_elsewhere,
    small_file,
    unpacked_bytes,
)
from rmqha.pipeline.commitlog.pages import is_written, mapped
from rmqha.store import checkpoint
from rmqha.store.consume_queue import UNIT
from rmqha.store.identity import FILE_NAME, Identity, decode_identity

COMMIT_LOG = "commitlog"
CONSUME_QUEUE = "consumequeue"
EPOCH_FILE = "epochFileCheckpoint"
CHECKPOINT = "checkpoint"
NAME_DIGITS = 20
"""A file's name is the offset of its first byte, in so many digits."""


class LogFile(Struct, frozen=True):
    """One file of a commit log: where it is, its physical offset and its bytes on disk."""

    path: str
    base: int
    size: int


class StoreFolder(Struct, frozen=True):
    """A store directory.

    Attributes:
        name: what the column ``replica`` shows.
        root: the directory that holds ``commitlog``.
        broker_id: of its identity file; None without one.
        files: of the commit log, ascending, without those at the end that nothing was written to.
        epochs: (first physical offset, epoch), ascending; empty outside of controller mode.
        foreign: files in ``commitlog`` that are none of a commit log.
    """

    name: str
    root: str
    broker_id: int | None
    files: tuple[LogFile, ...]
    epochs: tuple[tuple[int, int], ...]
    foreign: tuple[str, ...]


def split_store(text: str) -> tuple[str, str]:
    """Name (empty when none is given) and directory of ``directory`` or ``name=directory``.

    A name has no more than one slash (``cluster/broker``), and a path may have signs of equality.
    """
    text = text.strip()
    name, equals, root = text.partition("=")
    is_path = name.startswith(("/", "./", "../", "~")) or has_scheme(name) or name.count("/") > 1
    if not equals or is_path or os.path.isdir(text):
        return "", text
    return name, root


def split_stores(text: str) -> list[tuple[str, str]]:
    """Of several with commas between them."""
    return [found for found in map(split_store, text.split(",")) if found[1]]


def open_store(text: str) -> StoreFolder:
    """``open_replica`` of ``directory`` or ``name=directory``; raises as it."""
    name, root = split_store(text)
    return open_replica(root, name)


def open_replica(root: str, name: str = "") -> StoreFolder:
    """Look at a directory.

    Raises:
        ConfigInvalid: there is no commit log in it.
        StoreCorrupted: its identity or epoch file is damaged.
    """
    found = _entries(root)
    files = _without_ahead(_log_files(found))
    named = {one.path for one in files}
    foreign = [one.name for one in found if one.path not in named and log_base(one.name) is None]
    epochs, identity = _epochs(root), read_identity(root)
    return StoreFolder(
        name or base_name(root),
        root,
        None if identity is None else identity.broker_id,
        tuple(files),
        tuple((entry.start, entry.epoch) for entry in epochs.entries),
        tuple(foreign),
    )


def checkpoint_of(root: str) -> checkpoint.Checkpoint | None:
    """The store's checkpoint; None when it has none."""
    data = _read(below(root, CHECKPOINT))
    return None if data is None else checkpoint.read(data)


def is_running(root: str) -> bool:
    """Whether a broker has the store open, or has left it without closing it."""
    return _read(below(root, checkpoint.ABORT)) is not None


def _entries(root: str) -> list[Entry]:
    """The files of a log: of a store, or of a directory that has nothing else."""
    if is_elsewhere(root):
        inside = entries(below(root, COMMIT_LOG))
        found = entries(root) if inside is None else inside
    else:
        folder = os.path.join(root, COMMIT_LOG)
        inside = _scanned(folder) if os.path.isdir(folder) else None
        found = _scanned(root) if inside is None and os.path.isdir(root) else inside
    if found is None or (
        inside is None and not any(log_base(one.name) is not None for one in found)
    ):
        raise ConfigInvalid(f"{root}: no store, for it has no {COMMIT_LOG} directory")
    return found


def _scanned(folder: str) -> list[Entry]:
    listed = []
    with os.scandir(folder) as found:
        for one in found:
            # A running broker deletes its oldest files meanwhile.
            with suppress(FileNotFoundError):
                listed.append(Entry(one.name, one.path, one.stat().st_size, one.is_file()))
    return sorted(listed, key=lambda one: one.name)


def log_begin(root: str) -> int:
    """Where a log begins now: a running broker deletes its oldest files.

    Args:
        root: of the store, or the directory of its log.

    Raises:
        ConfigInvalid: nothing of the log is there any more.
    """
    bases = [found for one in _entries(root) if (found := log_base(one.name)) is not None]
    if not bases:
        raise ConfigInvalid(f"{root}: nothing of the commit log is there any more")
    return min(bases)


def log_pages(
    path: str, base: int, *, scattered: bool = False, bytes_max: int | None = None
) -> memoryview | None:
    """A log's whole file, as ``pages.mapped`` has it; None when it has expired since it was listed.

    Args:
        path: where the file is, or was.
        base: its physical offset.
        scattered, bytes_max: as ``pages.mapped``.

    Raises:
        OSError: it cannot be read, or is not there and the log begins no later.
        ConfigInvalid: as ``log_begin``.
    """
    try:
        with mapped(path, scattered=scattered, bytes_max=bytes_max) as found:
            return found
    except FileNotFoundError:
        if log_begin(above(path)) <= base:
            raise
    return None


def log_base(name: str) -> int | None:
    """The offset in the name of a log's file, which may be packed; None for other files."""
    plain, dot, ending = name.partition(".")
    if dot and dot + ending not in PACKED:
        return None
    is_number = len(plain) == NAME_DIGITS and plain.isdecimal() and int(plain) <= OFFSET_MAX
    return int(plain) if is_number else None


def _log_files(found: Sequence[Entry]) -> list[LogFile]:
    """Ascending; of one that is there packed and plain, the plain one."""
    by_base: dict[int, Entry] = {}
    for one in found:
        base = log_base(one.name) if one.is_file else None
        if base is not None and (base not in by_base or not one.name.endswith(PACKED)):
            by_base[base] = one
    bases = sorted(by_base)
    nexts = dict(pairwise(bases))
    return [
        LogFile(by_base[base].path, base, _log_bytes(by_base[base], base, nexts.get(base)))
        for base in bases
    ]


def _without_ahead(files: list[LogFile]) -> list[LogFile]:
    """Java makes the next files of a log ahead: they are no part of it until something is written."""
    while len(files) > 1 and not is_written(files[-1].path):
        files = files[:-1]
    return files


def _log_bytes(one: Entry, base: int, following: int | None) -> int:
    """A file's bytes; those of a packed one reach to the next, and of the last are counted."""
    if not one.name.endswith(PACKED):
        return one.size
    return unpacked_bytes(one.path) if following is None else following - base


def _read(path: str) -> bytes | None:
    if has_scheme(path):
        return small_file(path)
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def _epochs(root: str) -> EpochCache:
    path = below(root, EPOCH_FILE)
    return load_epochs(_read(path), _read(below(root, EPOCH_FILE + ".bak"))).epochs


def read_identity(root: str) -> Identity | None:
    """Which broker's store it is; None without an identity file.

    Raises:
        StoreCorrupted: the file is damaged.
    """
    path = below(root, FILE_NAME)
    data = _read(path)
    return None if data is None else decode_identity(data, path, temporary=False)


class Queues:
    """The consume queues of a store, to ask where the broker itself says that a record stands.

    Args:
        root: the store's directory.
    """

    def __init__(self, root: str) -> None:
        self._root = os.path.join(root, CONSUME_QUEUE)
        self.known = os.path.isdir(self._root)

    def names(self, topic: str, queue_id: int, queue_offset: int, at: int, size: int) -> bool:
        """Whether the queue's unit at ``queue_offset`` is the record of ``size`` bytes at ``at``."""
        if not topic or "/" in topic or topic.startswith(".") or queue_offset < 0:
            return False
        folder = os.path.join(self._root, topic, str(queue_id))
        position = queue_offset * UNIT.size
        try:
            bases = sorted(int(one) for one in os.listdir(folder) if one.isdecimal())
        except (OSError, ValueError):
            return False
        base = max((one for one in bases if one <= position), default=None)
        if base is None:
            return False
        try:
            with open(os.path.join(folder, f"{base:0{NAME_DIGITS}d}"), "rb") as file:
                file.seek(position - base)
                found = file.read(UNIT.size)
        except OSError:
            return False
        return len(found) == UNIT.size and UNIT.unpack(found)[:2] == (at, size)
