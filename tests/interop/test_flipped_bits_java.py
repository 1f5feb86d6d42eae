"""A bit flips in a running broker's commit log: what Java 5.3.3 shows of that record, and what ours.

The files are mapped, so a write to one is what the process reads: as a page that comes back from a
disk with another bit in it.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqha.testing.real import wire
from rmqha.testing.real.processes import wait_until
from tests.interop import required
from tests.interop.alone import Alone, new_topic

TOPIC, GROUP = "Rotten", "Readers"
BODY, FLIPPED = b"as it was sent", b"qs it was sent"
PULL = {
    "consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "queueOffset": 0, "maxMsgNums": 8,
    "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subVersion": 0, "subscription": "*",
}  # fmt: skip


@pytest.fixture(params=["java", "python"])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Alone]:
    """One broker of either kind, with one message."""
    required.require_classpath()
    # The bit flips in what the broker wrote a moment before; Java knows no such key.
    with Alone(request.param, tmp_path, uncheckedTailBytes=0) as one:
        yield one


def flip(folder: Path) -> int:
    """Turn a bit of the message's body in the first file of the log; where the record begins."""
    file, *_ = sorted(folder.rglob("commitlog/0*"))
    with file.open("r+b") as opened, mmap.mmap(opened.fileno(), 1 << 20) as log:
        at = log.find(BODY)
        assert at > 0
        log[at] ^= 0x10
    # Behind the body's length, 88 bytes into a record with addresses of IPv4.
    return at - 88


def test_flipped_bit_when_a_consumer_pulls_then_java_shows_it_and_ours_refuses(
    stage: Alone, tmp_path: Path
) -> None:
    """What was never sent is no message; nobody but the broker can tell in time."""
    with wire.Connection(stage.broker.address) as connection:
        new_topic(stage.broker, stage.servers, TOPIC, 1)
        wire.send_message(connection, TOPIC, 0, BODY, keys="K", default_queues=1)
        end = {"topic": TOPIC, "queueId": 0}
        wait_until(lambda: connection.ask(30, end).ext["offset"] == "1", 10.0, "one to pull")
        assert BODY in connection.invoke(11, PULL).body
        offset = flip(tmp_path)
        pulled = connection.invoke(11, PULL)
        viewed = connection.invoke(33, {"offset": offset})
    if stage.kind == "java":
        assert (pulled.code, viewed.code) == (0, 0)
        assert FLIPPED in pulled.body
        assert FLIPPED in viewed.body
    else:
        assert (pulled.code, viewed.code) == (1, 1)
        assert f"at {offset} of its log" in (pulled.remark or "")
        assert not pulled.body
        assert not viewed.body
