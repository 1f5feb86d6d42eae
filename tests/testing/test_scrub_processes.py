"""A bit flips in a file of a running broker's commit log: real processes find it and mend it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqha.testing.cluster import RmqCluster
from rmqha.testing.nodes import Node
from rmqha.testing.real.processes import wait_until

pytestmark = pytest.mark.slow

MENDED_S = 30.0
READ_BYTES = 1 << 18
BODY = b"a body in which a bit flips"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RmqCluster]:
    """Three replicas that begin a pass each second."""
    folder = tmp_path_factory.mktemp("scrub")
    settings = {"scrubPassIntervalMs": 1_000}
    with RmqCluster(folder, processes=True, broker_settings=settings) as cluster:
        yield cluster


def first_bytes(file: Path) -> bytes:
    """Of a file that is as long as a whole commit log file."""
    with file.open("rb") as opened:
        return opened.read(READ_BYTES)


def events(node: Node) -> list[str]:
    """What a broker has logged, of each line the event."""
    lines = Path(node.log).read_text(encoding="utf-8").splitlines()
    return [str(json.loads(line)["event"]) for line in lines]


def test_scrub_when_a_bit_flips_in_a_file_then_the_process_mends_it(cluster: RmqCluster) -> None:
    """The mapping, the system call that writes and the sync are the machine's, not the simulator's."""
    cluster.wait_in_sync(3)
    cluster.produce([b"another", BODY, *[b"more"] * 50], topic="Scrubbed")
    master = cluster.wait_for_master()
    file = min((master.store / "commitlog").glob("0*"))
    before = first_bytes(file)
    at = before.find(BODY)
    assert at > 0
    with file.open("r+b") as opened:
        opened.seek(at)
        opened.write(bytes([before[at] ^ 0x10]))
    assert first_bytes(file)[at] != before[at]
    wait_until(lambda: "record_mended" in events(master), MENDED_S, "a repair")
    assert first_bytes(file)[at] == before[at]
    assert events(master).count("record_damaged") == events(master).count("record_mended") == 1
    assert not cluster.missing("Scrubbed")
