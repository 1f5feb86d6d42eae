"""How far the queues of a store reach, and how far each group has consumed them.

Reads only, and nothing is locked. What cannot be read is told by a row with ``corrupt``, and the
rest goes on.

Source: RocketMQ's protocol as observed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from rmqha.base.errors import ConfigInvalid, StoreCorrupted
from rmqha.pipeline.commitlog.store_folder import (
    CONSUME_QUEUE,
    NAME_DIGITS,
    log_begin,
)
from rmqha.store.config_files import BACKUP_SUFFIX, decode_config
from rmqha.store.consume_queue import FILLER_SIZE, UNIT

OFFSET_FILE = os.path.join("config", "consumerOffset.json")
TOPIC_FILE = os.path.join("config", "topics.json")
SEPARATOR = "@"
INT64_LIMIT = 1 << 63
_UNIT = np.dtype([("at", ">i8"), ("size", ">i4"), ("tags", ">i8")])


class QueueEnd(Struct, frozen=True):
    """One queue, or one thing among the queues that is none.

    Attributes:
        replica: the store's name.
        min_offset, end_offset: of its first unit whose message the log has, and behind its last one.
        corrupt: what is wrong with it; the offsets then are as far as is known.
    """

    replica: str
    topic: str | None
    queue_id: int | None
    min_offset: int | None
    end_offset: int | None
    corrupt: str | None = None


class GroupOffset(Struct, frozen=True):
    """Where a group goes on in a queue, or what cannot be read: one entry, or the file.

    Attributes:
        is_served: the file's backup has told what it could not.
    """

    replica: str
    topic: str | None
    group: str | None
    queue_id: int | None
    offset: int | None
    corrupt: str | None = None
    is_served: bool = False


# -- queues ------------------------------------------------------------------------------------


def queue_ends(root: str, replica: str) -> Iterator[QueueEnd]:
    """Every consume queue of a store; foreign files are told."""
    folder = os.path.join(root, CONSUME_QUEUE)
    begin = _log_begin(root)
    for topic in _entries(folder):
        if not topic.is_dir():
            yield QueueEnd(replica, None, None, None, None, f"{topic.path}: no topic's directory")
            continue
        for queue in _entries(topic.path):
            if queue.is_dir() and _is_queue_id(queue.name):
                yield _queue_end(queue.path, replica, topic.name, int(queue.name), begin)
            else:
                text = f"{queue.path}: no queue's directory"
                yield QueueEnd(replica, topic.name, None, None, None, text)


def _log_begin(root: str) -> int:
    """The first byte that the log has; 0 where only queues are at hand."""
    try:
        return log_begin(root)
    except ConfigInvalid:
        return 0


def _entries(folder: str) -> list[os.DirEntry[str]]:
    """By name; nothing when the directory is not there (any more)."""
    try:
        return sorted(os.scandir(folder), key=lambda one: one.name)
    except FileNotFoundError:
        return []


def _is_queue_id(name: str) -> bool:
    return name.isascii() and name.isdigit() and len(name) <= len(str(1 << 31))


def _queue_end(folder: str, replica: str, topic: str, queue_id: int, begin: int) -> QueueEnd:
    files: list[os.DirEntry[str]] = []
    foreign: list[os.DirEntry[str]] = []
    for entry in _entries(folder):
        name = entry.name
        whole = len(name) == NAME_DIGITS and name.isdecimal() and int(name) % UNIT.size == 0
        (files if whole and entry.is_file() else foreign).append(entry)
    corrupt = f"{foreign[0].path}: no file of a queue" if foreign else None
    if not files:
        return QueueEnd(replica, topic, queue_id, 0, 0, corrupt)
    # A queue's file goes when all of its messages have: 300,000 of them by Java's default.
    for entry in files:
        first, count, _ = _units(entry.path, begin)
        low = int(entry.name) // UNIT.size + first
        if first < count:
            break
    # The last file may be made ahead of its first unit.
    for entry in reversed(files):
        _, count, hole = _units(entry.path, begin)
        end = int(entry.name) // UNIT.size + count
        corrupt = corrupt or (f"{entry.path}: units behind a hole" if hole else None)
        if count:
            break
    return QueueEnd(replica, topic, queue_id, min(low, end), end, corrupt)


def _units(path: str, begin: int) -> tuple[int, int, bool]:
    """Fillers, and units of messages before ``begin``, that a file begins with; its units; and whether
    units stand behind the first hole."""
    with open(path, "rb") as file:
        data = file.read()
    units = np.frombuffer(data, _UNIT, count=len(data) // UNIT.size)
    holes = np.flatnonzero((units["size"] <= 0) | (units["at"] < 0))
    count = int(holes[0]) if len(holes) else len(units)
    is_filler = units["size"][:count] == FILLER_SIZE
    real = np.flatnonzero(~is_filler & (units["at"][:count] >= begin))
    fillers = int(real[0]) if len(real) else count
    return fillers, count, bool((units["size"][count:] > 0).any())


# -- groups ------------------------------------------------------------------------------------


def group_offsets(root: str, replica: str) -> Iterator[GroupOffset]:
    """What ``config/consumerOffset.json`` holds; its backup when it is damaged, as the broker does."""
    path = os.path.join(root, OFFSET_FILE)
    table, wrong = _config_table(path, "offsetTable")
    for text in wrong:
        yield GroupOffset(replica, None, None, None, None, text, is_served=table is not None)
    if table is None:
        return
    if not isinstance(table, dict):
        text = f"{path}: offsetTable is no object"
        yield GroupOffset(replica, None, None, None, None, text)
        return
    for name, queues in table.items():
        yield from _offsets_of(replica, name, queues)


def _config_table(path: str, member: str) -> tuple[object, list[str]]:
    """A member of a broker's file, or of its backup, None where neither can be read; and what cannot."""
    wrong: list[str] = []
    for one in (path, path + BACKUP_SUFFIX):
        try:
            with open(one, "rb") as file:
                return decode_config(file.read(), one).get(member) or {}, wrong
        except FileNotFoundError:
            wrong.append(f"{one}: no such file")
        except StoreCorrupted as error:
            wrong.append(str(error))
    return None, wrong


def configured_topics(root: str) -> frozenset[str] | None:
    """The topics of ``config/topics.json``; None when that cannot be read."""
    table, _ = _config_table(os.path.join(root, TOPIC_FILE), "topicConfigTable")
    return frozenset(table) if isinstance(table, dict) else None


def _offsets_of(replica: str, name: str, queues: object) -> Iterator[GroupOffset]:
    topic, separator, group = name.rpartition(SEPARATOR)
    if not separator or not isinstance(queues, dict):
        text = f"{name!r} is no topic@group with queues"
        yield GroupOffset(replica, None, None, None, None, text)
        return
    for key, offset in queues.items():
        whole = isinstance(offset, int) and not isinstance(offset, bool)
        if _is_queue_id(key) and whole and 0 <= offset < INT64_LIMIT:
            yield GroupOffset(replica, topic, group, int(key), offset)
        else:
            text = f"{name!r} holds {key!r}: {offset!r}"[:200]
            yield GroupOffset(replica, topic, group, None, None, text)
