"""What a start knows of the one before: whether the machine lost its memory, until that is settled."""

from __future__ import annotations

import pytest

from rmqha.broker.membership.aio.boot_file import BootFile

PATH = "/store/rmqhaBoot"


class Files:
    """A disk."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.writes = 0

    async def read(self, path: str) -> bytes:
        """A whole file; raises FileNotFoundError."""
        if path not in self.files:
            raise FileNotFoundError(path)
        return self.files[path]

    async def write_atomic(self, path: str, content: bytes) -> None:
        """The same."""
        self.writes += 1
        self.files[path] = content


async def started(files: Files, boot_id: str, *, clean: bool = False) -> BootFile:
    """The next process."""
    found = BootFile(files, PATH, boot_id)  # type: ignore[arg-type]  # what it uses of a disk
    await found.open(clean=clean)
    return found


async def settled(files: Files, boot_id: str) -> None:
    """A process that reigned in a newer epoch, and ended in order."""
    one = await started(files, boot_id)
    one.role_taken(1)
    await one.close()


@pytest.mark.parametrize("clean", [True, False])
async def test_doubt_when_the_process_ends_before_a_newer_epoch_then_the_next_one_has_it(
    clean: bool,
) -> None:
    """It had begun after a loss of power, and was ended before the controllers answered."""
    files = Files()
    await settled(files, "a")
    assert (await started(files, "b")).is_doubtful
    for _ in range(2):
        again = await started(files, "b", clean=clean)
        assert again.is_doubtful
    assert (await started(files, "c", clean=True)).is_doubtful


async def test_doubt_when_a_newer_epoch_has_begun_then_it_is_over() -> None:
    files = Files()
    await settled(files, "a")
    one = await started(files, "b")
    one.lost_epoch = 7
    for epoch in (6, 7):
        one.role_taken(epoch)
        await one.close()
        assert one.is_doubtful
    one.role_taken(8)
    await one.close()
    assert not one.is_doubtful
    assert not (await started(files, "b")).is_doubtful
    assert (await started(files, "c")).is_doubtful


async def test_file_when_nothing_changes_then_it_is_not_written() -> None:
    """Each start would else wait for the disk."""
    files = Files()
    await settled(files, "a")
    before = files.writes
    assert not (await started(files, "a")).is_doubtful
    assert files.writes == before


async def test_file_when_an_older_release_reads_it_then_it_doubts_too() -> None:
    """It compares all of it with its boot's id."""
    files = Files()
    await started(files, "a")
    assert files.files[PATH] != b"a"
    await settled(files, "a")
    assert files.files[PATH] == b"a"


async def test_file_when_an_older_release_wrote_it_then_it_counts() -> None:
    files = Files()
    files.files[PATH] = b"a"
    assert not (await started(files, "a")).is_doubtful
    assert not (await started(files, "b", clean=True)).is_doubtful


async def test_doubt_when_nobody_can_tell_the_boot_then_every_start_has_it() -> None:
    files = Files()
    await settled(files, "")
    assert (await started(files, "")).is_doubtful
    assert not (await started(Files(), "", clean=True)).is_doubtful
