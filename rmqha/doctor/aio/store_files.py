"""Reads a broker's files, and never writes: identity, epochs, checkpoint, queues, commit log.

The parts that grow are read before the log, so that on the store of a running broker nothing seems
to be ahead of it.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rmqha.base.errors import RemoteProtocolError, StoreCorrupted, StoreDamaged
from rmqha.broker.groups.offset_table import read_table
from rmqha.doctor.aio.queue_files import (
    Unreached,
    lost_queues,
    mapped,
    read_queues,
    sizes_of,
    usual_size,
)
from rmqha.doctor.facts import IdentityFacts, QueueFacts, StoreFacts
from rmqha.ha.aio.epoch_file import BACKUP_SUFFIX
from rmqha.ha.epochs import EpochEntry, load_epochs
from rmqha.store import checkpoint as cp
from rmqha.store import recovery
from rmqha.store.config_files import BACKUP_SUFFIX as CONFIG_BACKUP_SUFFIX
from rmqha.store.config_files import whole_config
from rmqha.store.identity import TEMPORARY_SUFFIX, Identity, decode_identity
from rmqha.store.queue_list import BYTES_MAX, FILE, QueueList, decode
from rmqha.store.record import Head
from rmqha.store.segments import file_name, joined

_MISSING = "is missing"
OFFSETS, TOPICS = "consumerOffset.json", "topics.json"
CONFIG_FILES = (
    TOPICS, "topicQueueMapping.json", "subscriptionGroup.json", "accounts.json", OFFSETS,
    "delayOffset.json", "rmqhaTimers.json", "messageRequestMode.json", "consumerOrderInfo.json",
)  # fmt: skip
"""Those of ``config`` without which ``bin/mqbroker`` does not start, if they are there and damaged."""


def read_identity(path: Path) -> IdentityFacts:
    """The identity files; one that is not there is None.

    Raises:
        OSError: one is there and cannot be read.
    """
    temporary = Path(f"{path}{TEMPORARY_SUFFIX}")
    damage = ""
    found: list[Identity | None] = []
    for one, is_temporary in ((path, False), (temporary, True)):
        data = _content(one)
        try:
            found.append(
                None if data is None else decode_identity(data, str(one), temporary=is_temporary)
            )
        except StoreCorrupted as error:
            found.append(None)
            damage = str(error)
    return IdentityFacts(str(path), found[0], found[1], damage)


def read_store(root: Path, commit_log: Path, epoch_path: Path, files_max: int) -> StoreFacts:
    """A store as it is now.

    Args:
        root: storePathRootDir.
        commit_log: storePathCommitLog.
        epoch_path: storePathEpochFile.
        files_max: how many of the newest commit-log files are read, and of consume queues no more
            than some units of each file; 0 for all.

    Raises:
        OSError: a file is there and cannot be read.
    """
    checkpoint, checkpoint_damage = _checkpoint(root / "checkpoint")
    epochs, epoch_damage = _epochs(epoch_path)
    offsets, damages = _config_files(root / "config")
    queues = read_queues(root / "consumequeue", is_whole=not files_max)
    abort = (root / cp.ABORT).exists()
    known = checkpoint or cp.Checkpoint()
    lost: tuple[str, ...] = ()
    with ExitStack() as stack:
        segments = _segments(commit_log, stack)
        sizes = {one.path: len(one.buffer) for one in segments}
        # Without any queue they are elsewhere (Java's in RocksDB), or all of them are made anew.
        seen = None if abort else Unreached(queues, _topics(root), _confirmed(known))
        log, files_read = _log(segments, known, files_max, queues, seen)
        listed = _listed(root / FILE)
        begin = segments[0].start if segments else -1
        if listed is not None and not abort and listed.counts(known, begin):
            lost = lost_queues(listed, queues)
    return StoreFacts(
        str(root), *log, checkpoint, abort, epochs, epoch_damage, queues, offsets,
        checkpoint_damage, damages, sizes, files_read, lost,
        () if seen is None or lost or not queues else tuple(seen.found.values()),
    )  # fmt: skip


def _topics(root: Path) -> frozenset[str]:
    """Whose messages have to be in queues: not those of topics that nobody knows any more.

    Of batch queues nothing is read.
    """
    try:
        table = (_config(root / "config" / TOPICS) or {}).get("topicConfigTable")
    except StoreCorrupted:
        return frozenset()
    batches = root / "batchconsumequeue"
    names = table if isinstance(table, dict) else {}
    return frozenset(name for name in names if not (batches / name).exists())


def _confirmed(checkpoint: cp.Checkpoint) -> int:
    """Up to where a broker under controllers dispatches; others leave it at what it was first."""
    return checkpoint.confirm_offset if checkpoint.confirm_offset > 0 else recovery.NO_LIMIT


def _checkpoint(path: Path) -> tuple[cp.Checkpoint | None, str]:
    """The checkpoint, and what is wrong with the file: brokers end for one of another length.

    An empty one counts as missing: a power cut took its content before the first sync.
    """
    data = _content(path)
    if not data:
        return None, ""
    if len(data) != cp.SIZE:
        return None, f"{path} has {len(data)} bytes, and a checkpoint has {cp.SIZE}"
    return cp.read(data), ""


def _log(
    segments: list[recovery.Segment],
    checkpoint: cp.Checkpoint,
    files_max: int,
    queues: tuple[QueueFacts, ...],
    seen: Unreached | None,
) -> tuple[tuple[int, int, str, str, str, int | None], int]:
    """The members of StoreFacts from ``min_offset`` to ``later_record``, and ``files_read``.

    Args:
        seen: told what is read, of a store that was stopped in order.
    """
    if not segments:
        flushed = checkpoint.flushed_offset
        damage = f"no file is there, but the log was durable up to {flushed}" if flushed else ""
        return (0, 0, "", "", damage, None), 0
    count = _before_gap(segments)
    first = max(0, count - files_max) if files_max else 0
    stop, later = _end_of(segments, first, seen)
    missing = stop.reason if stop.reason.endswith(_MISSING) else ""
    damage = ""
    try:
        recovery.check_stop(
            segments, stop, checkpoint, later, clean=seen is not None,
            indexed=max((queue.log_end for queue in queues), default=0),
        )  # fmt: skip
    except StoreDamaged as error:
        damage = str(error)
    # An empty file that was made ahead holds no message yet.
    end = stop.offset if stop.last_timestamp or stop.offset != segments[0].start else 0
    later_at = None if later is None else later.offset
    return (segments[0].start, end, stop.reason, missing, damage, later_at), count - first


def _before_gap(segments: list[recovery.Segment]) -> int:
    """How many files there are before the first gap: behind it no broker goes.

    One file of another length is no gap; it is told as what it is.
    """
    size = usual_size(len(one.buffer) for one in segments)
    return joined([one.start for one in segments], size)


def _end_of(
    segments: list[recovery.Segment], first: int, seen: Unreached | None
) -> tuple[recovery.Stop, Head | None]:
    """Where whole records end, and one behind that place.

    A broker that runs may have written on meanwhile: then the end is looked for again.
    """
    before = -1
    while True:
        walk = recovery.Walk(
            segments, first, check_crc=True, property_crc=False,
            open_queue_run=None if seen is None else seen.open_queue_run,
            limit=recovery.NO_LIMIT if seen is None else seen.confirmed,
        )  # fmt: skip
        for part in walk:
            if seen is not None:
                seen.passed(part, walk.buffer)
        stop = walk.stop
        later = next(filter(None, recovery.search_later(segments[first:], stop.offset)), None)
        if later is None or stop.offset == before:
            return stop, later
        before = stop.offset


def _segments(folder: Path, stack: ExitStack) -> list[recovery.Segment]:
    """The files of the commit log that are not empty, nor have expired since they were listed."""
    found: list[recovery.Segment] = []
    is_gone = False
    for start, size in sizes_of(folder).items():
        if not size:
            continue
        path = folder / file_name(start)
        data = mapped(path, stack)
        if data is None:
            is_gone = True
            continue
        if is_gone:
            found.clear()  # files expire oldest first: those before it have gone since, too
        found.append(recovery.Segment(start, data, str(path)))
        is_gone = False
    return found


def _listed(path: Path) -> QueueList | None:
    """What a stop in order has left of queues; None for no such file, and for one that no broker reads."""
    try:
        is_usual = path.stat().st_size <= BYTES_MAX
    except FileNotFoundError:
        return None
    return decode(_content(path) or b"") if is_usual else None


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _epochs(path: Path) -> tuple[tuple[EpochEntry, ...] | None, str]:
    main, backup = _content(path), _content(Path(f"{path}{BACKUP_SUFFIX}"))
    if main is None and backup is None:
        return None, ""
    try:
        loaded = load_epochs(main, backup)
    except StoreCorrupted as error:
        return None, str(error)
    return loaded.epochs.entries, loaded.damage or ""


def _config_files(folder: Path) -> tuple[dict[tuple[str, str, int], int], dict[str, str]]:
    """The consumer offsets, and why files cannot be used, by path."""
    damages: dict[str, str] = {}
    offsets: dict[tuple[str, str, int], int] = {}
    for name in CONFIG_FILES:
        path = folder / name
        try:
            value = _config(path)
            if value is not None and name == OFFSETS:
                offsets = _consumer_offsets(value, str(path))
        except StoreCorrupted as error:
            damages[str(path)] = str(error)
    return offsets, damages


def _config(path: Path) -> dict[str, Any] | None:
    """A file's content, or that of its copy, as brokers choose; None without both.

    Raises:
        StoreCorrupted: what exists is damaged.
    """
    both = (path, Path(f"{path}{CONFIG_BACKUP_SUFFIX}"))
    return whole_config((str(one), _content(one)) for one in both)


def _consumer_offsets(value: dict[str, Any], path: str) -> dict[tuple[str, str, int], int]:
    """By topic, group and queue.

    Raises:
        StoreCorrupted: it is no table of offsets.
    """
    try:
        table = read_table(value, sys.maxsize)
    except RemoteProtocolError as error:
        raise StoreCorrupted(f"{path}: {error}") from error
    return {
        (topic, group, queue): offset
        for (topic, group), queues in table.items()
        for queue, offset in queues.items()
    }
