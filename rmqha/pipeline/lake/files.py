"""Files of a lake, or of a table that is kept: listed, replaced by renaming, deleted; on this machine's disks or by Hadoop.

What a lake shows changes file by file, and each change is whole: a reader, and a crash, finds the old
file or the new one.
"""

from __future__ import annotations

import fcntl
import filecmp
import os
import uuid
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any, Protocol

from rmqha.base.errors import ConfigInvalid
from rmqha.pipeline.commitlog.elsewhere import has_scheme
from rmqha.pipeline.lake.layout import (
    EARLIER_CELL_BYTES,
    NAME_BYTES_MAX,
    TOPIC,
    Found,
    LakeBusy,
    place_of,
    topic_of,
)
from rmqha.pipeline.spark.plain_errors import java_line
from rmqha.pipeline.spark.session import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORK = "_exports"
"""What is not finished, and locks; Spark passes over names that begin so."""
LAYOUT = "_layout"
"""What holds for a lake for good, as names of empty files."""
_CELLS = "cells-"
_UNIQUE = "[0-9a-f]" * 32
"""A pattern of what ``work_folder`` adds: a label may be the beginning of another one."""
_LIKE_DISKS = ("file", "hdfs", "viewfs", "webhdfs", "swebhdfs")


class LakeFiles(Protocol):
    """Paths are relative to the lake, with slashes.

    Attributes:
        root: the lake, as Spark is to be told.
        for_workers: the lake, as any process on a worker can write to it; None when only Spark can.
        name_bytes_max: of a folder's name; None where only whole paths have a limit.
    """

    root: str
    for_workers: str | None
    name_bytes_max: int | None

    def topics(self, topics: Collection[str]) -> list[Found]:
        """Files of these topics, of all when it is empty, in the order of their paths."""

    def below(self, folder: str) -> list[Found]:
        """All files below a folder, which need not be there."""

    def same(self, source: str, target: str) -> bool:
        """Whether two files have the same bytes; the second one need not be there."""

    def replace(self, source: str, target: str) -> None:
        """Rename a file over whatever has the new name, at once and for good."""

    def mark(self, path: str) -> None:
        """Make an empty file, which may be there already."""

    def delete(self, path: str) -> None:
        """Delete a file that may be gone already."""

    def settle(self) -> None:
        """See that what was renamed and deleted stays so when power fails."""

    def alone(self, label: str, *, waits: bool = False) -> AbstractContextManager[None]:
        """Keep others from exporting the same set into this lake, or from writing the same table.

        Args:
            label: of the set, or the table.
            waits: until nobody else does it.

        Raises:
            LakeBusy: somebody else does it now.
        """

    def clear(self, folder: str) -> None:
        """Delete a folder and all in it."""


def table_label(name: str) -> str:
    """Of a table, for ``LakeFiles.alone``; no broker set's label has a plus sign."""
    return f"table+{name}"


def work_folder(label: str) -> str:
    """A new folder for what is not finished; it goes when ``LakeFiles.alone`` is next asked for its label."""
    return f"{WORK}/{label}@{uuid.uuid4().hex}"


def cell_bytes_of(files: LakeFiles, of_new: int) -> int:
    """How large a lake's cells are; a new one remembers it.

    Args:
        of_new: the size for a lake without any messages.

    Raises:
        ConfigInvalid: the lake says two sizes.
    """
    told = {one.name.removeprefix(_CELLS) for one in files.below(LAYOUT)}
    if not told:
        is_earlier = any(place_of(one) is not None for one in files.topics(()))
        told = {str(EARLIER_CELL_BYTES if is_earlier else of_new)}
        files.mark(f"{LAYOUT}/{_CELLS}{min(told)}")
    if len(told) > 1 or not min(told).isdecimal():
        raise ConfigInvalid(f"{files.root}/{LAYOUT} must name one size of cells, not {told}")
    return int(min(told))


def open_lake(spark: SparkSession, out: str) -> LakeFiles:
    """The files of a lake, by the file system that Spark would use for its path.

    Raises:
        ConfigInvalid: the path is none, or Spark has no file system for it; or Spark Connect shows
            no file systems, and the path is none of this machine.
    """
    if not out:
        raise ConfigInvalid("a lake needs a path, and this one is empty")
    if is_connect(spark):
        if has_scheme(out) and not out.startswith("file:"):
            raise ConfigInvalid(
                f"{out}: by Spark Connect a lake is written below a directory that this machine and "
                "the workers share, and so are tables; other places need a session of bin/pipeline or spark-submit"
            )
        return LocalFiles(out.removeprefix("file://").removeprefix("file:"))
    known: Any = spark
    # Spark has no public way to the file systems that it uses.
    jvm = known._jvm  # noqa: SLF001
    conf = known._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001
    try:
        path = jvm.org.apache.hadoop.fs.Path(out)
        system = path.getFileSystem(conf)
        if system.getUri().getScheme() != "file":
            return HadoopFiles(jvm, conf, system.makeQualified(path).toString())
    except Exception as error:
        line = java_line(error)
        if line is None:
            raise
        raise ConfigInvalid(f"{out}: Spark opens no file system there: {line}") from error
    return LocalFiles(out.removeprefix("file:"))


class LocalFiles:
    """A directory of this machine, or one that several machines share.

    Args:
        root: it is made when it is not there.
    """

    def __init__(self, root: str) -> None:
        self._root = Path(root).absolute()
        self.root = str(self._root)
        self.for_workers: str | None = self.root
        self.name_bytes_max: int | None = NAME_BYTES_MAX
        self._changed: set[Path] = set()
        self._root.mkdir(parents=True, exist_ok=True)

    def topics(self, topics: Collection[str]) -> list[Found]:
        """See the method of ``LakeFiles``."""
        names = sorted(one for one in os.listdir(self._root) if one.startswith(TOPIC))
        return [
            found
            for name in names
            if not topics or topic_of(name) in topics
            for found in self.below(name)
        ]

    def below(self, folder: str) -> list[Found]:
        """See the method of ``LakeFiles``."""
        found = []
        for where, _, names in os.walk(self._root / folder):
            for name in names:
                path = os.path.join(where, name)
                try:
                    status = os.stat(path)
                except FileNotFoundError:  # another set's export has replaced or deleted it
                    continue
                relative = Path(path).relative_to(self._root).as_posix()
                found.append(Found(relative, status.st_size, status.st_mtime_ns))
        return sorted(found, key=lambda one: one.path)

    def same(self, source: str, target: str) -> bool:
        """See the method of ``LakeFiles``."""
        known = self._root / target
        return known.exists() and filecmp.cmp(self._root / source, known, shallow=False)

    def replace(self, source: str, target: str) -> None:
        """As ``LakeFiles``: the bytes are on the disk before the name is."""
        with open(self._root / source, "rb") as file:
            os.fsync(file.fileno())
        path = self._root / target
        path.parent.mkdir(parents=True, exist_ok=True)
        os.replace(self._root / source, path)
        self._changed.update(self._root / one for one in Path(target).parents)

    def mark(self, path: str) -> None:
        """See the method of ``LakeFiles``."""
        made = self._root / path
        made.parent.mkdir(parents=True, exist_ok=True)
        made.touch()
        self._changed.update((made.parent, self._root))

    def delete(self, path: str) -> None:
        """See the method of ``LakeFiles``."""
        (self._root / path).unlink(missing_ok=True)
        self._changed.add((self._root / path).parent)

    def settle(self) -> None:
        """See the method of ``LakeFiles``."""
        for folder in sorted(self._changed):
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        self._changed.clear()

    @contextmanager
    def alone(self, label: str, *, waits: bool = False) -> Iterator[None]:
        """As ``LakeFiles``; the kernel ends it with the process."""
        folder = self._root / WORK
        folder.mkdir(exist_ok=True)
        with (folder / f"{label}.lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
            except BlockingIOError as error:
                raise LakeBusy(f"{self.root}: another export of {label} is under way") from error
            # Nobody else is there: these are of exports that died.
            for old in folder.glob(f"{label}@{_UNIQUE}"):
                rmtree(old)
            yield

    def clear(self, folder: str) -> None:
        """See the method of ``LakeFiles``."""
        rmtree(self._root / folder, ignore_errors=True)


class HadoopFiles:
    """Whatever Hadoop has a file system for. Nobody is locked out there.

    Args:
        jvm: Spark's.
        conf: Hadoop's settings.
        root: a qualified path.
    """

    def __init__(self, jvm: Any, conf: Any, root: str) -> None:
        self.root = root
        self.for_workers: str | None = None
        self._jvm = jvm
        self._path = jvm.org.apache.hadoop.fs.Path
        self._system = self._path(root).getFileSystem(conf)
        is_like_disks = self._system.getUri().getScheme() in _LIKE_DISKS
        self.name_bytes_max = NAME_BYTES_MAX if is_like_disks else None
        self._context = jvm.org.apache.hadoop.fs.FileContext.getFileContext(
            self._system.getUri(), conf
        )
        rename = getattr(jvm.org.apache.hadoop.fs, "Options$Rename")
        self._overwrite = jvm.java.lang.reflect.Array.newInstance(rename.OVERWRITE.getClass(), 1)
        self._overwrite[0] = rename.OVERWRITE

    def _at(self, path: str) -> Any:
        return self._path(f"{self.root}/{path}" if path else self.root)

    def topics(self, topics: Collection[str]) -> list[Found]:
        """See the method of ``LakeFiles``."""
        if not self._system.exists(self._at("")):
            return []
        names = [one.getPath().getName() for one in self._system.listStatus(self._at(""))]
        return [
            found
            for name in sorted(names)
            if name.startswith(TOPIC) and (not topics or topic_of(name) in topics)
            for found in self.below(name)
        ]

    def below(self, folder: str) -> list[Found]:
        """See the method of ``LakeFiles``."""
        if not self._system.exists(self._at(folder)):
            return []
        listed = self._system.listFiles(self._at(folder), True)
        cut = len(self._at("").toUri().getPath().rstrip("/")) + 1
        found = []
        while listed.hasNext():
            one = listed.next()
            path = one.getPath().toUri().getPath()[cut:]
            found.append(Found(path, one.getLen(), one.getModificationTime() * 1_000_000))
        return sorted(found, key=lambda file: file.path)

    def same(self, source: str, target: str) -> bool:
        """See the method of ``LakeFiles``."""
        if not self._system.exists(self._at(target)):
            return False
        lengths = {self._system.getFileStatus(self._at(one)).getLen() for one in (source, target)}
        if len(lengths) > 1:
            return False
        with ExitStack() as closing:
            streams = [self._system.open(self._at(one)) for one in (source, target)]
            for one in streams:
                closing.callback(one.close)
            return bool(self._jvm.org.apache.commons.io.IOUtils.contentEquals(*streams))

    def replace(self, source: str, target: str) -> None:
        """As ``LakeFiles``, as far as the file system renames at once (HDFS does)."""
        self._system.mkdirs(self._at(target).getParent())
        self._context.rename(self._at(source), self._at(target), self._overwrite)

    def mark(self, path: str) -> None:
        """See the method of ``LakeFiles``."""
        self._system.create(self._at(path), True).close()

    def delete(self, path: str) -> None:
        """See the method of ``LakeFiles``."""
        self._system.delete(self._at(path), False)

    def settle(self) -> None:
        """As ``LakeFiles``: nothing to do, such file systems answer when it is so."""

    def alone(self, label: str, *, waits: bool = False) -> AbstractContextManager[None]:
        """As ``LakeFiles``, but nobody is kept out, and what died stays.

        An export that comes second notices before it writes; a table's writer does not.
        """
        return nullcontext()

    def clear(self, folder: str) -> None:
        """See the method of ``LakeFiles``."""
        self._system.delete(self._at(folder), True)
