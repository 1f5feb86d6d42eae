"""Two replicas, Java's and ours in either role, and what must be true of both."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rmqha.testing.real.processes import wait_until
from tests.interop.peers import JAVA, PYTHON, Peer

FILE_BYTES = 16 << 20
SMALL, LARGE = 100, 1_000_000
SETTINGS: Mapping[str, object] = {
    "mappedFileSizeCommitLog": FILE_BYTES,
    "mappedFileSizeConsumeQueue": 20 * 2_000,
    "allAckInSyncStateSet": True,
    # A Java slave sends its first acknowledgement with its first heartbeat.
    "haSendHeartbeatInterval": 500,
    "timerWheelEnable": False,
    "messageIndexEnable": False,
    "diskMaxUsedSpaceRatio": 95,
}
SETTLE_TIMEOUT_S = 60.0


class Pair:
    """Replica 1 of one side and replica 2 of the other, each with a store of its own."""

    def __init__(
        self, root: Path, sides: tuple[str, str], version: str, settings: Mapping[str, object]
    ) -> None:
        merged = {**SETTINGS, **settings}
        self.one = Peer(sides[0], root / "1", 1, merged, version=version)
        self.two = Peer(sides[1], root / "2", 2, merged, version=version)

    @property
    def peers(self) -> tuple[Peer, Peer]:
        """Both."""
        return self.one, self.two

    def end(self) -> None:
        """Kill what runs."""
        for peer in self.peers:
            peer.kill()


def put(peer: Peer, size_sum: int, *, largest: int = LARGE, seed: int = 1) -> None:
    """Write records of all sizes; every one is acknowledged."""
    said = peer.ask(f"put {size_sum} {SMALL} {largest} {seed} 32")
    assert " failed=0 " in said, said


def wait_acked(peer: Peer, offset: int) -> None:
    """Wait until the background load has got that far."""
    wait_until(lambda: peer.acked >= offset, SETTLE_TIMEOUT_S, f"{offset} acked on {peer.side}")


def wait_joined(master: Peer, slave: Peer) -> None:
    """Wait until the master counts the slave as in sync."""
    both = {master.id, slave.id}
    wait_until(
        lambda: master.offsets().set == both, SETTLE_TIMEOUT_S,
        f"{slave.side} joining {master.side}\n{slave.child.tail()}",
    )  # fmt: skip


def follow(slave: Peer, master: Peer, epoch: int) -> None:
    """Make a peer the slave of another and wait until it is in sync."""
    slave.ask(f"slave {master.address} {epoch} {master.id}")
    wait_joined(master, slave)


def wait_settled(master: Peer, slave: Peer) -> int:
    """Wait until both know that both have everything, dispatched; returns the log's end."""
    end = master.offsets().max

    def settled() -> bool:
        return all(
            (now := peer.offsets()).max == now.confirm == end and now.behind == 0
            for peer in (master, slave)
        )

    wait_until(settled, SETTLE_TIMEOUT_S, f"{master.side} and {slave.side} settled at {end}")
    return end


def first_difference(one: Peer, two: Peer, end: int) -> int:
    """Where the commit logs first differ before ``end``; ``end`` when they do not."""
    for start in range(0, end, FILE_BYTES):
        name = f"commitlog/{start:020}"
        length = min(FILE_BYTES, end - start)
        with (one.store / name).open("rb") as left, (two.store / name).open("rb") as right:
            ours, theirs = left.read(length), right.read(length)
        if ours != theirs:
            at = zip(range(length), zip(ours, theirs, strict=True), strict=True)
            return start + next(number for number, (a, b) in at if a != b)
    return end


def same(master: Peer, slave: Peer) -> None:
    """Everything settled is equal: the log's bytes, the epoch files, and what consumers read."""
    end = wait_settled(master, slave)
    assert first_difference(master, slave, end) == end
    epochs = with_bytes(master.offsets().epochs, end)
    assert epochs == with_bytes(slave.offsets().epochs, end)
    for peer in (master, slave):
        wait_until(
            lambda peer=peer: with_bytes(epoch_file(peer), end) == epochs, 10, "the epoch file"
        )
    assert master.ask("read") == slave.ask("read")


Epochs = tuple[tuple[int, int], ...]


def with_bytes(epochs: Epochs, end: int) -> Epochs:
    """The epochs in which something was written: Java cannot hold two with the same start."""
    ends = [start for _, start in epochs[1:]] + [end]
    return tuple(one for one, stop in zip(epochs, ends, strict=True) if one[1] < stop)


def epoch_file(peer: Peer) -> Epochs:
    """What its file says."""
    path = peer.store / "epochFileCheckpoint"
    lines = path.read_text().split()[2:] if path.exists() else []
    return tuple((int(epoch), int(start)) for epoch, start in (one.split("-") for one in lines))


def opened_by_the_other(pair: Pair) -> None:
    """Each side opens the other's store directory and reads every message."""
    before = pair.one.ask("read")
    assert int(before.split()[0]) > 0
    for peer in pair.peers:
        peer.kill()
    for peer in pair.peers:
        peer.become(PYTHON if peer.side == JAVA else JAVA).start()
        # Recovery shows what it finds once somebody says who the master is.
        peer.ask(f"master 90 {peer.id}")
        peer.ask("sync")
        assert peer.ask("read") == before, peer.side
