"""Which files does one request pass, how often does it change the file, and how often does it climb?

    bin/bench walks [--show "a pull"]

Real replicas and controllers in the simulator; a profile of one request on the host that serves it,
from the moment when its frame is decoded. A stay is a run of calls in one file, a climb is a step
into a room that stands higher, returns among them; what a request costs in a reader's patience. Of
a 1001 the whole way through the broker is counted: from the core of replication that wants another
SyncStateSet to the same core that learns of the answer. The simulator's files are left out. No
times are taken, so the machine does not matter, and the figures of one commit never differ.
Instructions are Python's own, of one version of Python: what a change costs where no machine is
quiet enough to time it. What libraries do in C is not among them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from rmqha.broker.aio.router import Router
from rmqha.broker.membership.aio.manager import ReplicasManager
from rmqha.broker.membership.aio.replication import Replication
from rmqha.broker.membership.events import Ask
from rmqha.controller.aio.service import ControllerService
from tests.bench.tables import markdown
from tests.broker.replicas import TOPIC, ReplicaCluster, master_of, send_fields
from tests.test_layers import BROKER_ROOMS, FLOOR_OF, ROOT

MESSAGES = 32
IS_PART: ContextVar[bool] = ContextVar("is_part", default=False)


class Walk:
    """The files of one walk, in order; a file that is left and entered anew stands twice."""

    def __init__(self) -> None:
        self.stays: list[str] = []
        self.instructions = 0

    @property
    def files(self) -> int:
        """How many files there are."""
        return len(set(self.stays))

    @property
    def climbs(self) -> int:
        """How many steps lead into a higher room."""
        heights = [height(one) for one in self.stays]
        return sum(before < after for before, after in pairwise(heights))

    def enter(self, file: str | None) -> None:
        """The next call, or return, is into this file."""
        if file is not None and (not self.stays or self.stays[-1] != file):
            self.stays.append(file)


def height(file: str) -> tuple[int, int]:
    """Where the room of a file stands."""
    parts = Path(file).parts
    room = BROKER_ROOMS.index(parts[1]) if parts[0] == "broker" else 0
    return FLOOR_OF[parts[0]], room


def file_of(frame: FrameType | None) -> str | None:
    """A file below rmqha, and none of the simulator's."""
    if frame is None or not frame.f_code.co_filename.startswith(f"{ROOT}/"):
        return None
    name = frame.f_code.co_filename.removeprefix(f"{ROOT}/")
    return None if name.startswith("sim/") else name


@contextmanager
def profiled(walk: Walk) -> Iterator[None]:
    """Every call and return until the end is part of the walk."""

    def watch(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            walk.enter(file_of(frame))
        elif event == "return":
            walk.enter(file_of(frame.f_back))

    def count(frame: FrameType, event: str, _: object) -> Any:
        if event == "call" and file_of(frame) is None:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        walk.instructions += event == "opcode"
        return count

    sys.setprofile(watch)
    sys.settrace(count)
    try:
        yield
    finally:
        sys.settrace(None)
        sys.setprofile(None)


@contextmanager
def watched(kind: type[Any], code: int) -> Iterator[list[Walk]]:
    """Each chunk of one request with this code that comes to a server of this kind is a walk."""
    honest, walks = kind.on_commands, []

    def on_commands(self: Any, connection: Any, commands: list[Any]) -> None:
        if [one.code for one in commands] != [code]:
            honest(self, connection, commands)
            return
        walk = Walk()
        with profiled(walk):
            honest(self, connection, commands)
        walks.append(walk)

    kind.on_commands = on_commands
    try:
        yield walks
    finally:
        kind.on_commands = honest


def sent(fields: dict[str, str]) -> Walk:
    """The walk of one message."""
    with watched(Router, 310) as walks, ReplicaCluster(seed=9, replicas=1) as cluster:
        cluster.boot_all()
        address = master_of(cluster).config.address
        for more in ({}, fields):
            assert cluster.ask(address, 310, {**send_fields(1), **more}, b"body").code == 0
    return walks[-1]


def pulled() -> Walk:
    """The walk of a pull that finds its messages."""
    fields = {
        "consumerGroup": "G", "topic": TOPIC, "queueId": "0", "queueOffset": "0",
        "maxMsgNums": str(MESSAGES), "sysFlag": "4", "commitOffset": "0",
        "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
    }  # fmt: skip
    with watched(Router, 11) as walks, ReplicaCluster(seed=9, replicas=1) as cluster:
        cluster.boot_all()
        address = master_of(cluster).config.address
        for number in range(MESSAGES):
            assert cluster.ask(address, 310, send_fields(4 * number), b"body").code == 0
        for _ in range(2):
            answer = cluster.ask(address, 11, fields)
            assert answer.code == 0, answer.remark
            assert (answer.ext_fields or {})["nextBeginOffset"] == str(MESSAGES)
    return walks[-1]


def heartbeat() -> Walk:
    """The walk of one 904 of a broker that is known and alive."""
    with watched(ControllerService, 904) as walks, ReplicaCluster(seed=9, replicas=1) as cluster:
        cluster.boot_all()
        cluster.run_for(2_000)
    return walks[-1]


def altered() -> Walk:
    """The walk of one 1001 through its broker, there and back.

    What follows from the wish carries a mark in its context: tasks and callbacks inherit it.
    """
    walk, ended = Walk(), []
    wanted, ask = Replication.alter_sync_state_set, ReplicasManager._ask

    def watch(frame: FrameType, event: str, _: object) -> None:
        if event in ("call", "return") and IS_PART.get() and not ended:
            walk.enter(file_of(frame if event == "call" else frame.f_back))

    def marked(self: Replication, ids: frozenset[int], epoch: int) -> None:
        walk.enter("ha/ha_core.py")
        walk.enter("ha/aio/service.py")
        before = IS_PART.set(True)
        wanted(self, ids, epoch)
        IS_PART.reset(before)

    async def ending(self: ReplicasManager, effect: Ask) -> None:
        await ask(self, effect)
        if IS_PART.get():
            ended.append(effect)

    with ReplicaCluster(seed=9, replicas=3) as cluster, pytest.MonkeyPatch.context() as patch:
        patch.setattr(Replication, "alter_sync_state_set", marked)
        patch.setattr(ReplicasManager, "_ask", ending)
        cluster.boot_all()
        cluster.until(cluster.in_sync, "a whole set")
        cluster.run_for(2_000)
        walk.stays.clear()
        ended.clear()
        cluster.kill(cluster.broker_hosts[-1])
        sys.setprofile(watch)
        try:
            cluster.until(lambda: ended, "an answer")
        finally:
            sys.setprofile(None)
        assert len(cluster.controller_set()) == 2
    return walk


WALKS: dict[str, Callable[[], Walk]] = {
    "a message, the quick way": lambda: sent({}),
    "a message with a flag": lambda: sent({"h": "7"}),
    "a message without a key": lambda: sent({"i": "KEYS\x01k\x02"}),
    "half of a transaction": lambda: sent(
        {"i": "UNIQ_KEY\x01U\x02TRAN_MSG\x01true\x02PGROUP\x01p\x02", "f": "4"}
    ),
    "a delayed message": lambda: sent({"i": "UNIQ_KEY\x01U\x02DELAY\x013\x02"}),
    "a timer": lambda: sent({"i": "UNIQ_KEY\x01U\x02TIMER_DELAY_SEC\x0130\x02"}),
    "a pull": pulled,
    "a heartbeat": heartbeat,
    "a 1001 through its broker": altered,
}


def main() -> None:
    """Print the table, or one walk."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--show", choices=WALKS, help="print the files of this walk in order")
    shown = parser.parse_args().show
    if shown:
        for file in WALKS[shown]().stays:
            print("  " * sum(height(file)) + file)
        return
    rows = []
    for name, make in WALKS.items():
        walk = make()
        counted = str(walk.instructions or "")
        rows.append([name, str(walk.files), str(len(walk.stays)), str(walk.climbs), counted])
    print(markdown(["a request", "files", "stays", "climbs", "instructions"], rows))


if __name__ == "__main__":
    main()
