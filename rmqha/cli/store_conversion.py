"""The store of a stopped broker, made one of controller mode (``mqadmin convertStore``).

A log of DLedger is written anew without DLedger's entries, into a folder of its own; the old one is
only read. The store of a master or slave of old needs nothing but an epoch file, and is looked
through before it gets one. Either way the whole log is of epoch 0, from offset 0 on: controllers
begin with 1, so that a slave whose log goes on behind the first master's is cut like any other.

What is written can be read by the old store's owner alone, and is his: ``fileUmask`` of a broker is
077 unless it says something else, and who converts is often root.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
from pathlib import Path
from typing import NamedTuple

import click
from rich.console import Console
from rich.progress import Progress

from rmqha.base.errors import ConfigInvalid, DiskFailed, StoreCorrupted, StoreDamaged
from rmqha.base.ids import NEVER_ELECTED
from rmqha.cli.store_look import FileRow, Log, content, looked_through
from rmqha.ha.epochs import EpochEntry, format_epochs
from rmqha.pipeline.commitlog.store_folder import COMMIT_LOG, EPOCH_FILE
from rmqha.runtime.aio.disk import lock_first_byte
from rmqha.store import dledger
from rmqha.store.config_files import BACKUP_SUFFIX, whole_config
from rmqha.store.dledger import Entry, EntryWalk, NewOffsets, converted, converted_timers, place
from rmqha.store.segments import file_name, floor

EPOCHS = format_epochs([EpochEntry(NEVER_ELECTED, 0)])
UNFINISHED = ".unfinished"
FLUSH_BYTES = 4 << 20
FILE_MODE, FOLDER_MODE = 0o600, 0o700
_COMMITTED = "committedIndex"


class Outcome(NamedTuple):
    """What was converted, and into what.

    Attributes:
        topics, groups: how many its tables have; those of who becomes master first count.
        timers_nowhere: units of Java's timer log whose messages the new log does not have.
    """

    topics: int
    groups: int
    kind: str
    store: str
    first_index: int | None
    last_index: int | None
    last_term: int | None
    files: list[FileRow]
    timers_nowhere: int = 0


class Writer:
    """Writes the files of a log, whole and durable, one after the other."""

    def __init__(self, folder: Path, file_size: int) -> None:
        self._folder = folder
        self._size = file_size
        self._end = dledger.BEGIN
        self._pending = bytearray()
        self._fd = -1
        self._digest = hashlib.sha256()
        self._messages = 0
        self.files: list[FileRow] = []
        folder.parent.mkdir(FOLDER_MODE, parents=True)
        folder.mkdir(FOLDER_MODE)

    @property
    def end(self) -> int:
        """Where the next record would begin, were there room."""
        return self._end

    def add(self, record: bytearray, offset: int, left: int) -> None:
        """A record at the place that :func:`place` has named."""
        if left:
            self._write(dledger.blank(left))
            self._close()
            self._end = offset
        if self._fd < 0:
            path = self._folder / file_name(self._end)
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
        self._pending += record
        self._messages += 1
        self._end = offset + len(record)
        if len(self._pending) >= FLUSH_BYTES:
            self._write(b"")

    def _write(self, more: bytes) -> None:
        data = bytes(self._pending)
        self._pending.clear()
        self._digest.update(data)
        rest = memoryview(data + more)
        while rest:
            rest = rest[os.write(self._fd, rest) :]

    def _close(self) -> None:
        if self._fd < 0:
            return
        os.ftruncate(self._fd, self._size)
        os.fsync(self._fd)
        os.close(self._fd)
        start = floor(self._end - 1, self._size)
        row = FileRow(file_name(start), self._end, self._messages, self._digest.hexdigest())
        self.files.append(row)
        self._fd, self._messages, self._digest = -1, 0, hashlib.sha256()

    def close(self) -> None:
        """End the last file."""
        if self._fd >= 0:
            self._write(b"")
        self._close()


class Wanted(NamedTuple):
    """Which entries of a log of DLedger are taken.

    Attributes:
        first: the index to begin with; None for the first there is.
        through_end: take what lies behind the committed entries, too.
    """

    first: int | None = None
    through_end: bool = False


def convert_dledger(
    store: Path, source: Path, target: Path, file_size: int, wanted: Wanted
) -> Outcome:
    """Write the log of DLedger in ``source``, and what stands beside it, as a new store.

    Raises:
        ConfigInvalid: the target is there, or no entry is to be converted.
        StoreDamaged: what was committed cannot be read.
    """
    made = _new_folder(store, target)
    try:
        outcome = _convert_into(made, store, source, file_size, wanted)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    os.rename(made, target)
    _sync_folder(target.parent)
    return outcome._replace(store=str(target))


def _convert_into(made: Path, store: Path, source: Path, file_size: int, wanted: Wanted) -> Outcome:
    tables = _tables(store)
    log, again = Log(source / "data"), Log(source / "data")
    offsets = NewOffsets(file_size, lambda position: again.walk(EntryWalk(), position))
    writer = Writer(made / COMMIT_LOG, file_size)
    committed = _committed(source)
    walk = EntryWalk()
    taken: list[Entry] = []
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("Converting", total=len(log.starts) * log.size)
        for entry in log.walk(walk, log.starts[0]):
            if entry.index > committed and not wanted.through_end:
                break
            if wanted.first is not None and entry.index < wanted.first:
                continue
            if not taken and wanted.first not in (None, entry.index):
                raise ConfigInvalid(
                    f"{source} begins with entry {entry.index}, behind {wanted.first}"
                )
            taken[1:] = [entry]
            where = place(writer.end, entry.size, file_size)
            offsets.passed(entry, writer.end)
            record = converted(log.body(entry), entry, where.offset, offsets)
            writer.add(record, where.offset, where.blank)
            bar.update(task, completed=entry.position - log.starts[0])
    _need_whole(source, walk, committed)
    if not taken:
        raise ConfigInvalid(f"{source}: no entry is to be converted")
    first, last = taken[0], taken[-1]
    writer.close()
    nowhere = _copy_rest(store, made, offsets)
    return Outcome(
        *tables, "DLedger", str(made), first.index, last.index, last.term, writer.files, nowhere
    )


def _new_folder(store: Path, target: Path) -> Path:
    """Where the new store is written until it is whole."""
    before = store / COMMIT_LOG
    if before.is_dir() and any(before.iterdir()):
        raise ConfigInvalid(
            f"{before} has messages from before DLedger; let them expire before the store is"
            " converted, or consume them and remove the folder"
        )
    if target.exists():
        raise ConfigInvalid(f"{target} is there already; name a folder that is not")
    read = [store / "config", store / "timerlog", before, *store.glob("dledger-*")]
    if any(target.resolve().is_relative_to(one.resolve()) for one in read):
        raise ConfigInvalid(f"{target} lies in what is converted; name a folder beside it")
    made = target.with_name(target.name + UNFINISHED)
    if made.exists():
        raise ConfigInvalid(f"{made} was left by a run that did not end; remove it")
    return made


def _committed(source: Path) -> int:
    """Which entry the group is known to have committed.

    DLedger deletes the file before it puts the next one in place, and two of its threads do so when it
    ends: with 5.3.3 only the copy beside it was left then. What that says was committed as well.
    """
    file = source / "checkpoint"
    try:
        lines = (file if file.exists() else source / "checkpoint.bak").read_text().splitlines()
        values = dict(line.split("=", 1) for line in lines if "=" in line)
        return int(values[_COMMITTED])
    except (OSError, KeyError, ValueError) as error:
        raise StoreDamaged(f"{file} does not tell what was committed: {error}") from error


def _need_whole(source: Path, walk: EntryWalk, committed: int) -> None:
    last = -1 if walk.last is None else walk.last.index
    if last < committed:
        raise StoreDamaged(
            f"{source}: entry {committed} was committed, the log ends with {last}: "
            f"{walk.end or 'its files end there'}"
        )


def _copy_rest(store: Path, made: Path, offsets: NewOffsets) -> int:
    """Tables and timers; queues and indexes are built from the log by whoever starts first.

    Returns:
        How many timers lead nowhere.
    """
    nowhere = 0
    config = store / "config"
    if config.is_dir():
        shutil.copytree(config, made / "config")
    timers = store / "timerlog"
    if timers.is_dir():
        (made / "timerlog").mkdir()
        for one in sorted(timers.iterdir()):
            units = bytearray(one.read_bytes())
            nowhere += converted_timers(units, offsets)
            (made / "timerlog" / one.name).write_bytes(units)
        if (store / "timerwheel").is_file():
            shutil.copyfile(store / "timerwheel", made / "timerwheel")
    (made / EPOCH_FILE).write_bytes(EPOCHS)
    owner = store.stat()
    for path in (made, *made.rglob("*")):
        _close_to_others(path, owner)
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        else:
            _sync_folder(path)
    return nowhere


def _tables(store: Path) -> tuple[int, int]:
    """How many topics and groups a store's files have, or their copies, as brokers choose.

    Raises:
        StoreCorrupted: what exists holds something else.
    """
    counts = []
    for name, member in (
        ("topics.json", "topicConfigTable"), ("subscriptionGroup.json", "subscriptionGroupTable"),
    ):  # fmt: skip
        path = store / "config" / name
        both = (path, path.with_name(name + BACKUP_SUFFIX))
        table = whole_config((str(one), content(one)) for one in both) or {}
        rows = table.get(member) or {}
        if not isinstance(rows, dict):
            raise StoreCorrupted(f"{path}: {member} is no object")
        counts.append(len(rows))
    return counts[0], counts[1]


def _close_to_others(path: Path, owner: os.stat_result) -> None:
    """Give a new file or folder to the owner of the old store, and nobody else a look into it."""
    now = path.stat()
    if (now.st_uid, now.st_gid) != (owner.st_uid, owner.st_gid):
        with contextlib.suppress(PermissionError):  # who is not root gives nothing away
            os.chown(path, owner.st_uid, owner.st_gid)
    path.chmod(FOLDER_MODE if stat.S_ISDIR(now.st_mode) else FILE_MODE)


def _sync_folder(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def adopt(store: Path) -> Outcome:
    """Look through the log of a master or slave of old, and give it an epoch file.

    That comes last: a store that has one is converted.

    Raises:
        ConfigInvalid: it has epochs already.
        StoreCorrupted: its tables cannot be read.
        StoreDamaged: a record in its middle cannot be read, or its end is missing.
    """
    epochs = store / EPOCH_FILE
    if epochs.exists():
        raise ConfigInvalid(f"{epochs} is there: this store is one of controller mode already")
    tables = _tables(store)
    files = looked_through(store, Log(store / COMMIT_LOG))
    written = epochs.with_name(EPOCH_FILE + UNFINISHED)
    written.write_bytes(EPOCHS)
    _close_to_others(written, store.stat())
    with written.open("rb") as file:
        os.fsync(file.fileno())
    written.replace(epochs)
    _sync_folder(store)
    return Outcome(*tables, "master and slave", str(store), None, None, None, files)


def convert(store: Path, output: Path | None, file_size: int, wanted: Wanted) -> Outcome:
    """Convert a store, whichever kind it is.

    Args:
        output: the new store, for a log of DLedger; None where it is converted in place.
        file_size: mappedFileSizeCommitLog of the new store, in bytes.

    Raises:
        RmqhaError: it cannot be; nothing of it was changed.
        click.BadParameter: the store's path is none that can be looked at.
    """
    try:
        is_there = store.is_dir()
    except OSError as error:
        raise click.BadParameter(f"{store}: {error.strerror}", param_hint="--store") from error
    if not is_there:
        raise ConfigInvalid(f"{store}: there is no such folder")
    if not (store / COMMIT_LOG).is_dir() and not any(store.glob("dledger-*")):
        # Looked at before the lock: a folder of something else gets no file of ours.
        raise ConfigInvalid(
            f"{store} is no store of a broker: it has neither {COMMIT_LOG} nor a log of DLedger"
            " (give its storePathRootDir)"
        )
    lock = lock_first_byte(str(store / "lock"))
    try:
        groups = sorted(one for one in store.glob("dledger-*") if (one / "data").is_dir())
        if len(groups) > 1:
            names = ", ".join(one.name for one in groups)
            raise ConfigInvalid(f"{store} has logs of several nodes: {names}; keep one")
        if groups:
            if output is None:
                raise ConfigInvalid("-o names the folder of the new store")
            return convert_dledger(store, groups[0], output, file_size, wanted)
        if output is not None or wanted != Wanted():
            raise ConfigInvalid(
                f"{store} has no log of DLedger; it is converted where it is, without -o"
            )
        return adopt(store)
    except OSError as error:
        raise DiskFailed(_reason(error, output or store)) from error
    finally:
        os.close(lock)


def _reason(error: OSError, folder: Path) -> str:
    """What an operator reads; who copies a tree tells all that it met in one list."""
    if isinstance(error, shutil.Error):
        met = error.args[0]
        # Of a file of a strange kind it is a row of letters.
        return str(met[0][-1]) if isinstance(met[0], tuple) else "".join(met)
    return f"{error.filename2 or error.filename or folder}: {error.strerror or error}"
