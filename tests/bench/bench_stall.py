"""What happens to a set of three while its master's disk stands still for some seconds?

Question: does mastership move, how long do producers wait, how long do the controllers miss the old
master's heartbeats, and is anything lost that was acknowledged?

Recipe: ``bin/bench stall --rounds 3`` as root, who alone may mount. Three controllers, a name server and
three replicas as processes, ``allAckInSyncStateSet``, three producers. Each replica has its store on an
ext4 file system of its own in a file; the master's is frozen (``FIFREEZE``, as ``fsfreeze`` does) and
thawed again: meanwhile whoever writes to it waits in the kernel, and whoever writes through a mapping
waits there with the GIL. The controllers count a broker as alive for ``--timeout-ms`` after a heartbeat.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rmqha.testing.cluster import RmqCluster
from tests.bench.ending import end_children_when_terminated
from tests.bench.tables import machine, markdown, spread, write_json

FIFREEZE, FITHAW = 0xC0045877, 0xC0045878
"""Of linux/fs.h."""

IMAGE_BYTES = 512 << 20
REPLICAS = 3
PRODUCERS = 3
WARM_UP_ACKS = 300
LOOK_S = 0.02
MOVE_TIMEOUT_S = 30.0
Found = dict[str, float]


@contextmanager
def file_system(path: Path) -> Iterator[None]:
    """An ext4 in a file of its own at ``path``; thawed and gone at the end."""
    path.mkdir(parents=True)
    image = path.with_suffix(".img")
    with image.open("wb") as file:
        file.truncate(IMAGE_BYTES)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(path)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(path)], check=True)
        image.unlink()


@contextmanager
def frozen(path: Path) -> Iterator[None]:
    """Nothing is written to a file system meanwhile; who tries to waits."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.ioctl(fd, FIFREEZE, 0)
        try:
            yield
        finally:
            fcntl.ioctl(fd, FITHAW, 0)
    finally:
        os.close(fd)


class Look(threading.Thread):
    """Asks the controllers who is master and whether the old one counts as alive, again and again."""

    def __init__(self, cluster: RmqCluster, old: str) -> None:
        super().__init__(daemon=True)
        self._cluster = cluster
        self._old = old
        self._ended = threading.Event()
        self.begun_s = time.monotonic()
        self.moved_s = float("inf")
        self.missed_s = 0.0

    def run(self) -> None:
        """Until :meth:`end`."""
        last_s = time.monotonic()
        while not self._ended.wait(LOOK_S):
            info = self._cluster.replicas()
            now_s = time.monotonic()
            if info is None:
                continue
            if info.master_address not in (self._old, None, "") and self.moved_s == float("inf"):
                self.moved_s = now_s - self.begun_s
            known = (*info.in_sync_replicas, *info.not_in_sync_replicas)
            if not all(one.alive for one in known if one.broker_address == self._old):
                self.missed_s += now_s - last_s
            last_s = now_s

    def end(self) -> None:
        """Stop looking."""
        self._ended.set()
        self.join()


def stall(cluster: RmqCluster, folder: Path, seconds: float, number: int) -> Found:
    """Freeze the master's disk once."""
    old = cluster.wait_for_master()
    cluster.wait_in_sync(REPLICAS)
    loads = [cluster.workload(f"Stall{number}x{one}") for one in range(PRODUCERS)]
    for load in loads:
        load.wait_for_acks(WARM_UP_ACKS)
    look = Look(cluster, old.address)
    begun_ms = loads[0].now_ms()
    with frozen(folder / old.name):
        look.start()
        time.sleep(seconds)  # it is the fault's length
    for load in loads:
        load.wait_for_acks(WARM_UP_ACKS)
    look.end()
    others = [load.first_ack_after(begun_ms, not_by=old.address) for load in loads]
    back_s = [(one.acked_ms - begun_ms) / 1000 for one in others if one is not None]
    ledgers = [load.stop() for load in loads]
    cluster.wait_in_sync(REPLICAS)
    return {
        "moved_s": look.moved_s, "missed_s": look.missed_s,
        "back_s": max(back_s) if len(back_s) == PRODUCERS else float("inf"),
        "acked": sum(one.acknowledged for one in ledgers),
        "lost": sum(len(one.lost) for one in ledgers),
    }  # fmt: skip


def shown(seconds: list[float]) -> str:
    """Median and range; what did not happen in any round has neither."""
    return "never" if float("inf") in seconds else spread(seconds, " s")


def main() -> None:
    """Run the rounds and print the table."""
    end_children_when_terminated()
    options = _options()
    settings = {
        "controllerHeartBeatTimeoutMills": options.timeout_ms,
        "diskStallMs": options.stall_ms,
        **dict(one.split("=", 1) for one in options.set),
    }
    found: list[Found] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=options.folder)))
        for number in range(REPLICAS):
            stack.enter_context(file_system(folder / f"broker-{number}"))
        cluster = RmqCluster(folder, replicas=REPLICAS, processes=True, broker_settings=settings)
        with cluster:
            for number in range(options.rounds):
                found.append(stall(cluster, folder, options.seconds, number))
                print(found[-1], flush=True)
    print(f"\n{machine()}; {options.rounds} stalls of {options.seconds} s, {settings}\n")
    row = [
        *(shown([one[key] for one in found]) for key in ("moved_s", "back_s", "missed_s")),
        *(f"{sum(one[key] for one in found):.0f}" for key in ("acked", "lost")),
    ]
    head = [
        "mastership moved after",
        "producers went on after",
        "missed for",
        "acknowledged",
        "lost",
    ]
    print(markdown(head, [row]))
    if options.json:
        write_json(Path(options.json), {"machine": machine(), "settings": settings, "found": found})


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench_stall", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--rounds", type=int, default=3, help="stalls, one after another")
    parser.add_argument("--seconds", type=float, default=5.0, help="of one stall")
    parser.add_argument("--timeout-ms", type=int, default=10_000, help="of the heartbeats")
    parser.add_argument("--stall-ms", type=int, default=2_000, help="diskStallMs; 0 for no watcher")
    parser.add_argument("--set", action="append", default=[], help="KEY=VALUE of the brokers")
    parser.add_argument("--folder", default=None, help="where state goes (default: temporary)")
    parser.add_argument("--json", default="", help="write the raw figures here")
    return parser.parse_args()


if __name__ == "__main__":
    main()
