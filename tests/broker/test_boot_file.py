"""What a start knows of those before: whether the machine lost its memory, and which epoch is given up."""

from __future__ import annotations

import pytest

from rmqha.broker.membership.aio.boot_file import BootFile
from tests.broker.replicas import ReplicaCluster, master_of

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
async def test_epoch_when_it_was_given_up_then_the_next_start_knows_it(clean: bool) -> None:
    """Also in the same boot, and after an end in order: nothing proves that the log is whole again."""
    files = Files()
    await (await started(files, "a")).keep(7)
    again = await started(files, "a", clean=clean)
    assert (again.given_up, again.tail_may_be_lost) == (7, False)
    await again.keep(0)
    assert (await started(files, "a")).given_up == 7, "the caller knows that a newer one has begun"
    await again.keep(9)
    assert (await started(files, "a")).given_up == 9


async def test_boot_when_the_start_ends_before_it_is_kept_then_the_next_one_doubts_too() -> None:
    files = Files()
    await (await started(files, "a")).keep(0)
    for _ in range(2):
        assert (await started(files, "b")).tail_may_be_lost
    await (await started(files, "b")).keep(0)
    assert not (await started(files, "b")).tail_may_be_lost


async def test_file_when_nothing_changes_then_it_is_not_written() -> None:
    """Each start would else wait for the disk."""
    files = Files()
    await (await started(files, "a")).keep(7)
    await (await started(files, "a")).keep(7)
    assert files.writes == 1


async def test_file_when_an_older_release_reads_it_then_it_doubts_if_this_one_does() -> None:
    """It compares all of it with its boot's id."""
    files = Files()
    one = await started(files, "a")
    await one.keep(7)
    assert files.files[PATH] != b"a"
    files = Files()
    await (await started(files, "a")).keep(0)
    assert files.files[PATH] == b"a"
    assert not (await started(files, "a")).tail_may_be_lost


async def test_file_when_it_is_damaged_then_the_tail_is_doubtful() -> None:
    files = Files()
    files.files[PATH] = b"a\n7?"
    one = await started(files, "a", clean=True)
    assert (one.tail_may_be_lost, one.given_up) == (True, 0)


async def test_boot_when_nobody_can_tell_it_then_only_an_end_in_order_counts() -> None:
    files = Files()
    await (await started(files, "")).keep(0)
    assert (await started(files, "")).tail_may_be_lost
    assert not (await started(files, "", clean=True)).tail_may_be_lost


@pytest.mark.costly
def test_master_when_it_reigns_in_a_newer_epoch_then_a_killed_process_costs_it_nothing() -> None:
    """What was given up is over; in the same boot nothing is lost."""
    with ReplicaCluster(seed=71, replicas=1, controllerHeartBeatTimeoutMills=4_000) as cluster:
        cluster.boot_all()
        cluster.send_many(3)
        host = cluster.broker_hosts[0]
        cluster.kill(host, power=True)
        cluster.boot(host)
        cluster.until(lambda: cluster.master() is not None, "the master again")
        assert master_of(cluster)._replication.lost_epoch == 1
        assert master_of(cluster).replicas.place.master_epoch > 1
        cluster.send_many(3)
        cluster.kill(host)
        cluster.boot(host)
        cluster.run_for(200)
        assert cluster.replicas[host]._replication._boot.given_up == 1
        assert cluster.replicas[host]._replication.lost_epoch == 0
        cluster.until(lambda: cluster.master() is not None, "the master once more")
        cluster.send_many(1)
