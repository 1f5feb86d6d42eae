"""What stands in a store's folders and is not the store's keeps nothing from starting."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqha.store.aio.consume_queues import _is_topic
from rmqha.store.checkpoint import SIZE
from tests.store.harness import TOPIC, bodies, message, real_store

INDEXED: dict[str, Any] = {
    "message_index_enable": True, "max_hash_slot_num": 100, "max_index_num": 100,
}  # fmt: skip


def a_file(path: Path) -> None:
    path.write_bytes(b"x")


def copy_of_queue(path: Path) -> None:
    shutil.copytree(path.parent / "0", path)


STRANGE: list[tuple[str, Callable[[Path], None]]] = [
    ("consumequeue/.DS_Store", a_file),
    ("consumequeue/lost+found", Path.mkdir),
    (f"consumequeue/{TOPIC}/notes.txt", a_file),
    (f"consumequeue/{TOPIC}/0/old", Path.mkdir),
    ("index/lost+found", Path.mkdir),
    ("index/notes.txt", a_file),
    ("commitlog/lost+found", Path.mkdir),
    ("commitlog/notes.txt", a_file),
    ("index/20240101000000000", Path.mkdir),
    ("commitlog/00000000000099999999", Path.mkdir),
    ("commitlog/00000000000000000016", Path.mkdir),
    (f"consumequeue/{TOPIC}/0/00000000000099999999", Path.mkdir),
    (f"consumequeue/{TOPIC}/00", copy_of_queue),
    (f"consumequeue/{TOPIC}/\u00b2", copy_of_queue),
]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(("name", "make"), STRANGE)
async def test_store_when_something_strange_is_in_it_then_it_opens_and_leaves_that(
    tmp_path: Path, name: str, make: Callable[[Path], None], clean: bool
) -> None:
    """A disk of their own has a folder that only root may read; people leave files anywhere."""
    store = real_store(tmp_path, **INDEXED)
    await store.open()
    for number in range(5):
        store.append(message(number, body=b"%d" % number))
    await store.flush_all()
    await store.wait_dispatched(store.max_offset)
    await store.close()
    make(tmp_path / name)
    if not clean:
        (tmp_path / "abort").write_text("1")
    again = real_store(tmp_path, **INDEXED)
    await again.open()
    assert bodies(again) == [b"%d" % number for number in range(5)]
    await again.close()
    assert (tmp_path / name).exists()


def test_folder_that_only_root_may_read_is_no_topic() -> None:
    """A test runs as root, which may read it all the same."""
    assert not _is_topic("lost+found")
    assert _is_topic("%RETRY%group_1-x")


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("size", [40, 64, 4095])
async def test_checkpoint_when_it_is_too_short_then_what_it_lacks_counts_as_zeros(
    tmp_path: Path, size: int, *, clean: bool
) -> None:
    """The store did not open, though nothing that is needed of it was missing."""
    store = real_store(tmp_path)
    await store.open()
    store.append(message(body=b"0"))
    await store.wait_dispatched(store.max_offset)
    await store.close()
    path = tmp_path / "checkpoint"
    path.write_bytes(path.read_bytes()[:size])
    if not clean:
        (tmp_path / "abort").write_text("1")
    again = real_store(tmp_path)
    await again.open()
    assert bodies(again) == [b"0"]
    await again.close()
    assert path.stat().st_size == SIZE


async def test_store_when_a_folder_beside_its_files_may_not_be_looked_into_then_it_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system of its own has lost+found, which only root may read; and a power cut leaves a file
    of another length, for which folders are looked for."""
    store = real_store(tmp_path)
    await store.open()
    store.append(message(0, body=b"kept"))
    await store.close()
    log = tmp_path / "commitlog"
    (log / "lost+found").mkdir()
    (log / f"{16_384:020}").touch()
    real = os.scandir

    def scandir(path: str) -> Any:
        if str(path).endswith("lost+found"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    again = real_store(tmp_path)
    await again.open()
    assert bodies(again) == [b"kept"]
    await again.close()
