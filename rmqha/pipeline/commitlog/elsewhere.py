"""Logs that cannot be mapped where they are: in an object store, on HDFS, or packed in an archive.

A path with a scheme is opened by pyarrow's file systems (``s3://``, ``gs://``, ``hdfs://``), or by
fsspec's where pyarrow has none. A file of a log is copied, and unpacked, into a file without a name
in the temporary directory, and then read like any other.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import IO, Any

from msgspec import Struct

from rmqha.base.errors import ConfigInvalid

PACKED = (".gz", ".zst", ".bz2", ".lz4")
"""Names of packed files end so; pyarrow tells the codec by it."""
CHUNK_BYTES = 8 << 20
_SCHEME = "://"
HADOOPS = "s3a://"
"""Hadoop's name for what pyarrow calls ``s3``."""


class Entry(Struct, frozen=True):
    """What a directory has; of other things than files the name counts."""

    name: str
    path: str
    size: int
    is_file: bool = True


def has_scheme(path: str) -> bool:
    """Whether a path is a URL and no directory of this machine."""
    return _SCHEME in path


def is_elsewhere(path: str) -> bool:
    """Whether a file has to be copied before it is read."""
    return has_scheme(path) or path.endswith(PACKED)


def below(root: str, *names: str) -> str:
    """A path below a directory; what a URL asks of its file system stays at the end."""
    if not has_scheme(root):
        return os.path.join(root, *names)
    path, question, asked = root.partition("?")
    return "/".join([path.rstrip("/"), *names]) + question + asked


def above(path: str) -> str:
    """The directory that a file is in; the opposite of ``below``."""
    if not has_scheme(path):
        return os.path.dirname(path)
    plain, question, asked = path.partition("?")
    return plain.rpartition("/")[0] + question + asked


def base_name(root: str) -> str:
    """The last part of a path."""
    if not has_scheme(root):
        return os.path.basename(os.path.abspath(root))
    return PurePosixPath(root.partition("?")[0]).name


def file_system(path: str) -> tuple[Any, str]:
    """What opens a path, and what it calls it.

    Raises:
        ConfigInvalid: nothing here opens such paths.
    """
    import pyarrow as pa
    from pyarrow import fs

    if not has_scheme(path):
        return fs.LocalFileSystem(), path
    if path.startswith(HADOOPS):
        path = "s3://" + path.removeprefix(HADOOPS)
    try:
        return fs.FileSystem.from_uri(path)  # type: ignore[no-any-return]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        try:
            from fsspec.core import url_to_fs

            found, inside = url_to_fs(path)
        except (ImportError, ValueError) as other:
            told = str(error).splitlines()[0]
            raise ConfigInvalid(f"{path}: {told}; fsspec: {other}") from error
        return fs.PyFileSystem(fs.FSSpecHandler(found)), inside


def entries(folder: str) -> list[Entry] | None:
    """The files of a directory; None when it is not there.

    Raises:
        ConfigInvalid: as ``file_system``.
        OSError: it cannot be listed.
    """
    from pyarrow import fs

    system, inside = file_system(folder)
    if system.get_file_info(inside).type != fs.FileType.Directory:
        return None
    found = system.get_file_info(fs.FileSelector(inside))
    return sorted(
        (
            Entry(one.base_name, below(folder, one.base_name), one.size)
            for one in found
            if one.type == fs.FileType.File
        ),
        key=lambda one: one.name,
    )


def small_file(path: str) -> bytes | None:
    """What is in a file; None when there is none."""
    system, inside = file_system(path)
    try:
        with system.open_input_stream(inside, compression=None) as stream:
            data: bytes = stream.read()
    except FileNotFoundError:
        return None
    return data


def stamp(path: str) -> tuple[int | None, int | None]:
    """What changes when a file does: its bytes and its time."""
    system, inside = file_system(path)
    info = system.get_file_info(inside)
    return info.size, info.mtime_ns


def unpacked_bytes(path: str) -> int:
    """How many bytes a packed file has; it is gone through."""
    with _stream(path) as stream:
        return sum(map(len, _chunks(stream, None)))


def copy_of(path: str, bytes_max: int | None = None) -> IO[bytes]:
    """A file of this machine with a file's bytes, unpacked; it goes when it is closed.

    Args:
        path: as ``is_elsewhere``.
        bytes_max: no more than so many from its beginning.

    Raises:
        OSError: it cannot be read, or is no whole archive.
    """
    copy = tempfile.TemporaryFile(prefix="rmqha-")  # noqa: SIM115 - the caller closes it
    try:
        with _stream(path) as stream:
            for chunk in _chunks(stream, bytes_max):
                copy.write(chunk)
        copy.flush()
    except BaseException:
        copy.close()
        raise
    return copy


@contextmanager
def _stream(path: str) -> Iterator[Any]:
    system, inside = file_system(path)
    # pyarrow looks at the end of the name, behind which a URL may have its questions.
    with system.open_input_stream(inside, compression="detect") as stream:
        yield stream


def _chunks(stream: Any, bytes_max: int | None) -> Iterator[bytes]:
    left = bytes_max
    while left is None or left > 0:
        chunk: bytes = stream.read(CHUNK_BYTES if left is None else min(CHUNK_BYTES, left))
        if not chunk:
            return
        yield chunk
        left = None if left is None else left - len(chunk)
