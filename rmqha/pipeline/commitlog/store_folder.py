"""One store directory as the pipeline sees it: whose it is, its files, its epochs, its queues.

Reads only, and nothing is locked: a directory may belong to a running broker.

Source: RocketMQ's protocol as observed.
"""

from __future__ import annotations

import os

from msgspec import Struct

from rmqha.base.errors import ConfigInvalid
from rmqha.ha.epochs import OFFSET_MAX, EpochCache, load_epochs
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
        files: of the commit log, ascending.
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
    """Name (empty when none is given) and directory of ``directory`` or ``name=directory``."""
    name, _, root = text.strip().rpartition("=")
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
    folder = os.path.join(root, COMMIT_LOG)
    if not os.path.isdir(folder):
        raise ConfigInvalid(f"{root}: no store, for it has no {COMMIT_LOG} directory")
    files, foreign = [], []
    for entry in sorted(os.scandir(folder), key=lambda one: one.name):
        if _is_log_file(entry):
            files.append(LogFile(entry.path, int(entry.name), entry.stat().st_size))
        else:
            foreign.append(entry.name)
    epochs, identity = _epochs(root), read_identity(root)
    return StoreFolder(
        name or os.path.basename(os.path.abspath(root)),
        root,
        None if identity is None else identity.broker_id,
        tuple(files),
        tuple((entry.start, entry.epoch) for entry in epochs.entries),
        tuple(foreign),
    )


def confirm_offset(root: str) -> int | None:
    """The confirm offset of the store's checkpoint; None when it has none."""
    data = _read(os.path.join(root, CHECKPOINT))
    found = -1 if data is None else checkpoint.read(data).confirm_offset
    return found if found > 0 else None


def _is_log_file(entry: os.DirEntry[str]) -> bool:
    name = entry.name
    is_number = len(name) == NAME_DIGITS and name.isdecimal() and int(name) <= OFFSET_MAX
    return is_number and entry.is_file()


def _read(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def _epochs(root: str) -> EpochCache:
    path = os.path.join(root, EPOCH_FILE)
    return load_epochs(_read(path), _read(path + ".bak")).epochs


def read_identity(root: str) -> Identity | None:
    """Which broker's store it is; None without an identity file.

    Raises:
        StoreCorrupted: the file is damaged.
    """
    path = os.path.join(root, FILE_NAME)
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
