"""How messages lie in a lake, as names alone; ADR 0020 says why.

``topic=T/day=D/log-BROKER@CLUSTER-START.parquet`` holds the messages of one broker set, topic and day
whose records begin in one *cell* of the set's commit log, ``[START, START + cell_bytes)``. So an
export that comes again writes the same names: a file is replaced by renaming, whole, and no other
set's. Files that Spark named (``part-...``) are of the layout before and are never changed.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from urllib.parse import quote, unquote

from msgspec import Struct

from rmqha.base.errors import ConfigInvalid, RmqhaError
from rmqha.pipeline.commitlog.store_folder import LogFile, StoreFolder, log_pages
from rmqha.store.identity import Identity
from rmqha.store.record import MAGIC_V1, MAGIC_V2

CELL_BYTES = 512 << 20
"""Of a new lake and for good: the names of its files are made of it."""
EARLIER_CELL_BYTES = 128 << 20
"""Of lakes that do not say it (ADR 0045)."""
PREFIX, SUFFIX = "log-", ".parquet"
EARLIER = "part-"
NAME_BYTES_MAX = 255
"""Of a file or folder, on disks as in HDFS."""
FIRST_RECORD_MAX = 1 << 20
_FILE = re.compile(re.escape(PREFIX) + r"([^@]+@[^@]*)-(\d{20})" + re.escape(SUFFIX))

ESCAPED = r"""[\x01-\x1f\x7f"#%'*/:=?\\{\[\]^]"""
"""Spark's ExternalCatalogUtils.escapePathName; Java reads the pattern as Python does."""
_ESCAPED = re.compile(ESCAPED)
NUL = "\0"
"""The character that no file system takes in a name; a damaged or made up record may have it."""
TOPIC = "topic="
NO_NAME = "__HIVE_DEFAULT_PARTITION__"

Span = tuple[int, int]
"""Physical offsets ``[start, stop)``."""


class LakeBusy(RmqhaError):
    """Somebody else has changed the same part of a lake meanwhile, or is about to."""


class SetName(NamedTuple):
    """Which broker set it is; the cluster is empty where nothing tells it."""

    cluster: str
    broker: str

    @property
    def label(self) -> str:
        """For names of files; no other set has the same."""
        return f"{quote(self.broker, safe='')}@{quote(self.cluster, safe='')}"

    def __str__(self) -> str:
        return f"{self.broker} of {self.cluster}" if self.cluster else self.broker


class Found(Struct, frozen=True):
    """A file of a lake: its path below the lake, its bytes and when it was written."""

    path: str
    size: int
    modified_ns: int

    @property
    def folder(self) -> str:
        """``topic=T/day=D``."""
        return self.path.rpartition("/")[0]

    @property
    def name(self) -> str:
        """The file's own name."""
        return self.path.rpartition("/")[2]


class Place(NamedTuple):
    """What a file of a set holds: a topic and a day as a folder, and where its cell begins."""

    folder: str
    start: int


def set_name(replica: StoreFolder, identity: Identity | None, given: str) -> SetName:
    """Whose log it is: by the identity file, else by the name that was given.

    Args:
        given: ``broker`` or ``cluster/broker``; empty when the store was given without a name.

    Raises:
        ConfigInvalid: nothing tells, or the name is too long for a file.
    """
    if identity is not None:
        name = SetName(identity.cluster_name, identity.broker_name)
    else:
        cluster, _, broker = given.rpartition("/")
        if not broker:
            raise ConfigInvalid(
                f"{replica.root} does not say which broker set it is of, for it has no identity"
                f" file (brokers outside of controller mode): say it, as in broker-a={replica.root}"
            )
        name = SetName(cluster, broker)
    if len(file_name(name, 0)) > NAME_BYTES_MAX:
        raise ConfigInvalid(f"{name}: the name is too long for a file")
    return name


def file_name(name: SetName, start: int) -> str:
    """What the file of a set and a cell is called."""
    return f"{PREFIX}{name.label}-{start:020d}{SUFFIX}"


def place_of(found: Found) -> tuple[str, Place] | None:
    """The label of the set whose file it is, and what the file holds; None for other files."""
    match = _FILE.fullmatch(found.name)
    return None if match is None else (match[1], Place(found.folder, int(match[2])))


def own_place(name: SetName, found: Found) -> Place | None:
    """What a file of a lake holds, when it is one of the set's."""
    place = place_of(found)
    return place[1] if place is not None and place[0] == name.label else None


def told(label: str) -> str:
    """A label for people, as ``SetName`` is told."""
    broker, _, cluster = label.partition("@")
    return str(SetName(unquote(cluster), unquote(broker)))


def is_earlier(found: Found) -> bool:
    """Whether a file is of the layout before, in which nothing told the sets apart."""
    return found.name.startswith(EARLIER) and found.name.endswith(SUFFIX)


def topic_of(folder: str) -> str:
    """The topic of ``topic=T`` or ``topic=T/day=D``, as Spark writes it."""
    return unquote(folder.split("/")[0].removeprefix(TOPIC))


def topic_folder(topic: str) -> str:
    """The folder of a topic, as Spark names it."""
    return f"{TOPIC}{_ESCAPED.sub(_escape, topic) or NO_NAME}"


def has_folder(topic: str) -> bool:
    """Whether a topic's folder has a name that file systems take.

    A shorter one, or one without a null character, would be another topic's: the folder's name is all
    that tells readers of a topic. Spark does not escape null characters.
    """
    return NUL not in topic and len(topic_folder(topic).encode()) <= NAME_BYTES_MAX


def _escape(found: re.Match[str]) -> str:
    return f"%{ord(found[0]):02X}"


def spans_read(files: Sequence[LogFile], end: int, gaps: Iterable[Span]) -> list[Span]:
    """What of a log was read: its files up to ``end`` without damage, ascending.

    Args:
        files: of the log, ascending.
        end: where the log ends.
        gaps: damaged ranges, in any order.
    """
    pieces: list[Span] = []
    for one in files:
        stop = min(end, one.base + one.size)
        if pieces and pieces[-1][1] == one.base:
            pieces[-1] = pieces[-1][0], max(one.base, stop)
        elif one.base < stop:
            pieces.append((one.base, stop))
    holes = deque(sorted(gaps))
    found: list[Span] = []
    for start, stop in pieces:
        at = start
        while holes and holes[0][0] < stop:
            low, high = holes[0]
            if low > at:
                found.append((at, low))
            at = max(at, high)
            if high > stop:
                break
            holes.popleft()
        if at < stop:
            found.append((at, stop))
    return found


class Reach(NamedTuple):
    """How much of a cell was read."""

    any: bool
    all: bool


def reach(spans: Sequence[Span], start: int, stop: int) -> Reach:
    """Whether something, and whether everything in ``[start, stop)`` was read."""
    found = [
        (max(start, low), min(stop, high)) for low, high in spans if low < stop and high > start
    ]
    return Reach(bool(found), found == [(start, stop)])


def refuse_replicas(stores: Sequence[tuple[StoreFolder, SetName]]) -> None:
    """See that every store is another broker set's.

    Raises:
        ConfigInvalid: two are of one set, by name or because they hold the same log.
        OSError: a file cannot be read.
    """
    for index, (one, name) in enumerate(stores):
        for other, other_name in stores[:index]:
            if name == other_name:
                why = f"are both of broker set {name}"
            elif (offset := _same_record(one, other)) is not None:
                why = f"hold the same log (the same record at {offset}), as replicas of one set do"
            else:
                continue
            raise ConfigInvalid(
                f"{other.root} and {one.root} {why}: give one of them, or each message comes twice"
            )


def _same_record(one: StoreFolder, other: StoreFolder) -> int | None:
    """Where a file of both begins with the same record: its stamps and bodies tell logs apart."""
    paths = {file.base: file.path for file in other.files}
    for file in one.files:
        path = paths.get(file.base)
        if path is None:
            continue
        first = _first_record(file.path, file.base)
        if first is not None and first == _first_record(path, file.base):
            return file.base
    return None


def _first_record(path: str, base: int) -> bytes | None:
    pages = log_pages(path, base, bytes_max=FIRST_RECORD_MAX) or b""
    size = int.from_bytes(pages[:4])
    record = bytes(pages[: min(size, FIRST_RECORD_MAX)]) if size > 8 else b""
    return record if int.from_bytes(record[4:8]) in (MAGIC_V1, MAGIC_V2) else None
