"""Reads a broker's files, and never writes: identity, epochs, checkpoint, queues, commit log.

The parts that grow are read before the log, so that on the store of a running broker nothing seems
to be ahead of it.
"""

from __future__ import annotations

import mmap
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rmqha.base.errors import RemoteProtocolError, StoreCorrupted, StoreDamaged
from rmqha.broker.groups.offset_table import read_table
from rmqha.doctor.facts import IdentityFacts, QueueFacts, StoreFacts
from rmqha.ha.aio.epoch_file import BACKUP_SUFFIX
from rmqha.ha.epochs import EpochEntry, load_epochs
from rmqha.store import checkpoint as cp
from rmqha.store import recovery
from rmqha.store.config_files import BACKUP_SUFFIX as CONFIG_BACKUP_SUFFIX
from rmqha.store.config_files import decode_config
from rmqha.store.consume_queue import UNIT, valid_units
from rmqha.store.identity import TEMPORARY_SUFFIX, Identity, decode_identity
from rmqha.store.record import Head
from rmqha.store.segments import starts_of

_MISSING = "is missing"
OFFSETS = "consumerOffset.json"
CONFIG_FILES = (
    "topics.json", "topicQueueMapping.json", "subscriptionGroup.json", "accounts.json", OFFSETS,
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
        files_max: how many of the newest commit-log files are read; 0 for all.

    Raises:
        OSError: a file is there and cannot be read.
    """
    checkpoint, checkpoint_damage = _checkpoint(root / "checkpoint")
    epochs, epoch_damage = _epochs(epoch_path)
    offsets, damages = _config_files(root / "config")
    queues = _queues(root / "consumequeue")
    abort = (root / "abort").exists()
    with ExitStack() as stack:
        segments = _segments(commit_log, stack)
        sizes = {one.path: len(one.buffer) for one in segments}
        log = _log(segments, checkpoint, files_max, queues, clean=not abort)
    return StoreFacts(
        str(root), *log, checkpoint, abort, epochs, epoch_damage, queues, offsets,
        checkpoint_damage, damages, sizes,
    )  # fmt: skip


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
    checkpoint: cp.Checkpoint | None,
    files_max: int,
    queues: tuple[QueueFacts, ...],
    *,
    clean: bool,
) -> tuple[int, int, str, str, str, int | None]:
    """The members of StoreFacts from ``min_offset`` to ``later_record``."""
    if not segments:
        flushed = None if checkpoint is None else checkpoint.flushed_offset
        damage = f"no file is there, but the log was durable up to {flushed}" if flushed else ""
        return 0, 0, "", "", damage, None
    first = max(0, len(segments) - files_max) if files_max else 0
    stop, later = _end_of(segments, first)
    missing = stop.reason if stop.reason.endswith(_MISSING) else ""
    damage = ""
    try:
        recovery.check_stop(
            segments, stop, checkpoint or cp.Checkpoint(), later, clean=clean,
            indexed=max((queue.log_end for queue in queues), default=0),
        )  # fmt: skip
    except StoreDamaged as error:
        damage = str(error)
    # An empty file that was made ahead holds no message yet.
    end = stop.offset if stop.last_timestamp or stop.offset != segments[0].start else 0
    later_at = None if later is None else later.offset
    return segments[0].start, end, stop.reason, missing, damage, later_at


def _end_of(segments: list[recovery.Segment], first: int) -> tuple[recovery.Stop, Head | None]:
    """Where whole records end, and one behind that place.

    A broker that runs may have written on meanwhile: then the end is looked for again.
    """
    before = -1
    while True:
        walk = recovery.Walk(segments, first, check_crc=True, property_crc=False)
        for _ in walk:
            pass
        stop = walk.stop
        later = next(filter(None, recovery.search_later(segments[first:], stop.offset)), None)
        if later is None or stop.offset == before:
            return stop, later
        before = stop.offset


def _segments(folder: Path, stack: ExitStack) -> list[recovery.Segment]:
    names = [one.name for one in folder.iterdir()] if folder.is_dir() else []
    return [
        recovery.Segment(start, _mapped(path, stack), str(path))
        for start in starts_of(names)
        if (path := folder / f"{start:020d}").stat().st_size
    ]


def _mapped(path: Path, stack: ExitStack) -> memoryview:
    with path.open("rb") as file:
        mapped = stack.enter_context(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    return stack.enter_context(memoryview(mapped))


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


def _queues(folder: Path) -> tuple[QueueFacts, ...]:
    folders = sorted(folder.glob("*/*"))
    return tuple(_queue(one) for one in folders if one.name.isdecimal() and one.is_dir())


def _queue(folder: Path) -> QueueFacts:
    """A queue's end: of its newest file that has a unit."""
    topic, queue_id = folder.parent.name, int(folder.name)
    starts = starts_of(one.name for one in folder.iterdir())
    max_offset = log_end = 0
    for start in reversed(starts):
        path = folder / f"{start:020d}"
        with ExitStack() as stack:
            data = _mapped(path, stack) if path.stat().st_size else memoryview(b"")
            count, log_end = valid_units(data, UNIT.size, 0)
        max_offset = start // UNIT.size + count
        if count:
            break
    return QueueFacts(topic, queue_id, max_offset, log_end)


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
    damage: StoreCorrupted | None = None
    for one in (path, Path(f"{path}{CONFIG_BACKUP_SUFFIX}")):
        data = _content(one)
        if data is None:
            continue
        try:
            return decode_config(data, str(one))
        except StoreCorrupted as error:
            damage = damage or error
    if damage is not None:
        raise damage
    return None


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
