"""A commit log of default size that is filled to the end of its first file, under a failover."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from rmqha.testing.cluster import RmqCluster
from rmqha.testing.nodes import Node
from rmqha.testing.real.processes import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(300)]

GIB = 1 << 30
DEFAULTS = {"mappedFileSizeCommitLog": GIB, "mappedFileSizeConsumeQueue": 300_000 * 20}
FILLER = bytes(range(256)) * 4096
NEAR_THE_END = 3
BLANK = 0xCBD43194
CHUNK = 8 << 20


def _files(node: Node) -> list[Path]:
    return sorted((node.store / "commitlog").glob("[0-9]*"))


def _parting(one: Path, other: Path) -> int | None:
    """The first chunk in which two files differ; None where they are the same."""
    with one.open("rb") as left, other.open("rb") as right:
        for at in range(0, GIB, CHUNK):
            if left.read(CHUNK) != right.read(CHUNK):
                return at
    return None


def _blank_sizes(path: Path) -> int:
    """The size that the blank at a full file's end states, found by its magic from behind."""
    with path.open("rb") as file:
        file.seek(GIB - CHUNK)
        tail = file.read()
    at = tail.rindex(struct.pack(">I", BLANK)) - 4
    assert len(tail) - at == struct.unpack_from(">I", tail, at)[0]
    return len(tail) - at


def test_log_when_its_first_gibibyte_is_full_then_it_goes_on_in_the_next_on_every_replica(
    tmp_path: Path,
) -> None:
    """Everything else runs on files of megabytes: none of them ever reached an offset above 2^30."""
    with RmqCluster(
        tmp_path, controllers=1, replicas=2, processes=True, broker_settings=DEFAULTS
    ) as cluster:
        cluster.wait_in_sync(2)
        fillers = GIB // (len(FILLER) + 512) - NEAR_THE_END
        for _ in range(fillers // 16):
            cluster.produce([FILLER] * 16, topic="Filler", in_flight=4, timeout_s=60)
        old = cluster.wait_for_master()
        assert len(_files(old)) == 1
        cluster.produce([b"%d." % number + bytes(16_384) for number in range(1_600)],
                        topic="Edge", in_flight=16, timeout_s=60)  # fmt: skip
        for node in cluster.brokers:
            first, second = _files(node)
            assert (first.name, second.name) == ("0".zfill(20), str(GIB).zfill(20))
            assert _blank_sizes(first) > 0
        cluster.kill(old)
        cluster.wait_for_master()
        cluster.produce(100, topic="Edge")
        cluster.heal()
        cluster.wait_in_sync(2)
        cluster.assert_nothing_lost("Edge", timeout_s=60)
        cluster.produce(1, topic="Edge")
        one, other = (_files(node) for node in cluster.brokers)
        assert len(one) == len(other) == 2
        wait_until(
            lambda: all(_parting(*pair) is None for pair in zip(one, other, strict=True)),
            60, "the same bytes on both", interval_s=1,
        )  # fmt: skip
