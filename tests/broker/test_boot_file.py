"""What a start knows of the one before: whether the machine lost its memory, until that is settled."""

from __future__ import annotations

import pytest

from rmqha.broker.membership.aio.boot_file import BootFile
from tests.broker.replicas import ReplicaCluster

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


@pytest.mark.parametrize("clean", [True, False])
async def test_doubt_when_the_process_ends_before_a_newer_epoch_then_the_next_one_has_it(
    clean: bool,
) -> None:
    """It had begun after a loss of power, and was ended before the controllers answered."""
    files = Files()
    await (await started(files, "a")).settle()
    assert (await started(files, "b")).is_doubtful
    for _ in range(2):
        again = await started(files, "b", clean=clean)
        assert again.is_doubtful
    assert (await started(files, "c", clean=True)).is_doubtful


async def test_doubt_when_a_newer_epoch_has_begun_then_it_is_over() -> None:
    files = Files()
    await (await started(files, "a")).settle()
    one = await started(files, "b")
    one.lost_epoch = 7
    assert [one.settles(epoch, reigns=True) for epoch in (6, 7, 8)] == [False, False, True]
    # Another one reigns in it.
    assert [one.settles(epoch, reigns=False) for epoch in (6, 7, 8)] == [False, True, True]
    await one.settle()
    assert not one.is_doubtful
    assert not one.settles(9, reigns=True)
    assert not (await started(files, "b")).is_doubtful
    assert (await started(files, "c")).is_doubtful


async def test_file_when_nothing_changes_then_it_is_not_written() -> None:
    """Each start would else wait for the disk."""
    files = Files()
    await (await started(files, "a")).settle()
    before = files.writes
    assert not (await started(files, "a")).is_doubtful
    assert files.writes == before


async def test_file_when_an_older_release_reads_it_then_it_doubts_too() -> None:
    """It compares all of it with its boot's id."""
    files = Files()
    await started(files, "a")
    assert files.files[PATH] != b"a"
    await (await started(files, "a")).settle()
    assert files.files[PATH] == b"a"


async def test_file_when_an_older_release_wrote_it_then_it_counts() -> None:
    files = Files()
    files.files[PATH] = b"a"
    assert not (await started(files, "a")).is_doubtful
    assert not (await started(files, "b", clean=True)).is_doubtful


async def test_doubt_when_nobody_can_tell_the_boot_then_every_start_has_it() -> None:
    files = Files()
    await (await started(files, "")).settle()
    assert (await started(files, "")).is_doubtful
    assert not (await started(Files(), "", clean=True)).is_doubtful


def test_doubt_when_a_role_in_a_newer_epoch_is_taken_up_then_it_is_over() -> None:
    """Else every end of a process would cost its master the epoch, and the set an election."""
    with ReplicaCluster(seed=71) as cluster:
        cluster.boot_all()
        cluster.until(cluster.in_sync, "SyncStateSet of three")
        cluster.send_many(3)
        for host in cluster.controller_hosts:
            cluster.kill(host)
        for host in cluster.broker_hosts:
            cluster.kill(host, power=True)
            cluster.boot(host)
        cluster.run_for(500)
        assert [one._boot.is_doubtful for one in cluster.replicas.values()] == [True] * 3
        for host in cluster.controller_hosts:
            cluster.boot(host)
        cluster.until(cluster.in_sync, "SyncStateSet of three", 120_000)
        cluster.run_for(500)
        assert [one._boot.is_doubtful for one in cluster.replicas.values()] == [False] * 3
        assert all(one.replicas.master_epoch > 1 for one in cluster.replicas.values())
