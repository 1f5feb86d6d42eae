"""Nodes that are cut off at their birth, that end twice, and that are ended while they are born."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from rmqha.testing import processes
from rmqha.testing.aio_cluster import AioCluster
from rmqha.testing.child import Faults
from rmqha.testing.in_process import InProcessNode
from rmqha.testing.life import task_factory
from rmqha.testing.nodes import NodeFailed
from rmqha.testing.processes import ProcessNode
from rmqha.testing.settings import Place, Plan

WAIT_S = 10.0
APPLIED = b"rmqha-faults-applied %d\n"


def process_node(folder: Path) -> ProcessNode:
    """A name server that nobody has started."""
    place = Place("namesrv-0", "namesrv", folder / "namesrv-0", 9, (9,))
    return ProcessNode(place, Plan((), (place,), ()))


# -- faults --------------------------------------------------------------------------------------


async def test_child_when_its_faults_came_first_then_they_hold_as_soon_as_it_has_a_network(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A node that was isolated and started again spoke to all for a moment, and got what it lacked."""
    ours, theirs = socket.socketpair()
    with closing(ours), closing(theirs):
        ours.sendall(json.dumps({"number": 3, "cut": [9], "slow_ms": 7}).encode() + b"\n")
        faults = Faults(theirs)
        faults.network(None)
        assert not faults._links.to(9).is_open
        assert faults._slow.delay_ms == 7
        assert capsys.readouterr().out == "rmqha-faults-applied 3\n"
        asyncio.get_running_loop().remove_reader(theirs)


async def test_process_when_its_node_is_cut_off_then_it_is_told_before_it_is_born(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was told after its boot line; and whole nodes are told nothing."""
    node = process_node(tmp_path)
    heard: list[bytes] = []

    def launch(self: ProcessNode, channel: socket.socket, config: str) -> int:
        with suppress(BlockingIOError):
            heard.append(channel.recv(4096, socket.MSG_DONTWAIT))
        raise NodeFailed("there is no launcher")

    monkeypatch.setattr(ProcessNode, "_launch", launch)
    for cut in ([], [7, 8]):
        await node.cut(cut)
        with pytest.raises(NodeFailed, match="there is no launcher"):
            await node.start()
        assert not node.is_alive
    (line,) = heard
    told = json.loads(line)
    assert (told["cut"], told["slow_ms"]) == ([7, 8], 0)
    assert line.endswith(b"\n")


async def test_process_when_it_is_cut_off_then_the_verb_ends_when_the_cut_holds(
    tmp_path: Path,
) -> None:
    """What is sent next must not pass."""
    node, reader = process_node(tmp_path), asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    node._ending = loop.create_future()
    said: list[bytes] = []
    node._writer = type("Writer", (), {"write": staticmethod(said.append)})  # type: ignore[assignment]
    listening = loop.create_task(node._listen(reader))
    cutting = loop.create_task(node.cut([5]))
    for _ in range(5):
        await asyncio.sleep(0)
    assert json.loads(said[0])["cut"] == [5]
    assert not cutting.done()
    reader.feed_data(APPLIED % 1)
    async with asyncio.timeout(WAIT_S):
        await cutting
    listening.cancel()


# -- ends ----------------------------------------------------------------------------------------


@pytest.fixture
async def core(tmp_path: Path) -> Any:
    """A controller and a name server of this process; none of them runs."""
    asyncio.get_running_loop().set_task_factory(task_factory)  # type: ignore[arg-type]
    made = await AioCluster.make(
        tmp_path, counts=(1, 1, 0), processes=False, seed=1, settings=({}, {}, {})
    )
    yield made
    await made.close()


async def until(what: Any) -> None:
    """Wait until ``what()``."""
    async with asyncio.timeout(WAIT_S):
        while not what():  # noqa: ASYNC110 - what a node does has no event
            await asyncio.sleep(0)


@pytest.mark.parametrize("verb", ["start", "kill", "shut_down"])
async def test_node_when_it_still_closes_then_verbs_wait_and_a_new_life_is_left_alone(
    core: AioCluster, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """It was dead at once, started again, and then the old end closed what the new life had opened."""
    node = core.node("namesrv-0")
    assert isinstance(node, InProcessNode)
    await node.start()
    disk, life, may_end = node._disk, node._life, asyncio.Event()
    assert disk is not None
    assert life is not None
    real = disk.abandon

    async def slowly() -> None:
        await may_end.wait()
        await real()

    monkeypatch.setattr(disk, "abandon", slowly)
    node._failed(life, RuntimeError("the store is damaged"))
    await until(lambda: not node.is_alive)
    working = asyncio.get_running_loop().create_task(getattr(node, verb)())
    for _ in range(20):
        await asyncio.sleep(0)
    was_done = working.done()
    may_end.set()
    assert not was_done
    async with asyncio.timeout(WAIT_S):
        await working
    await node.start()
    assert node.is_alive
    assert node.service is not None
    assert node._log is not None
    assert not node._log._file.closed


async def test_node_when_it_fails_while_it_is_shut_down_then_that_is_its_end(
    core: AioCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever shuts it down is not cancelled with it."""
    node = core.node("namesrv-0")
    assert isinstance(node, InProcessNode)
    await node.start()
    life = node._life
    assert life is not None

    async def stop() -> None:
        node._failed(life, RuntimeError("the store is damaged"))
        await asyncio.Event().wait()

    monkeypatch.setattr(node.service, "stop", stop)
    async with asyncio.timeout(WAIT_S):
        await node.shut_down()
    assert not node.is_alive
    assert "damaged" in node.failure


class FakeLauncher:
    """Takes its time to start a process; that one ends when it is killed."""

    def __init__(self) -> None:
        self.is_asked, self.may_answer = threading.Event(), threading.Event()
        self.channels: list[socket.socket] = []

    def request(self, channel: socket.socket | None = None, **what: Any) -> dict[str, Any]:
        """See ``LauncherHandle``."""
        if what["do"] == "start":
            assert channel is not None
            self.is_asked.set()
            assert self.may_answer.wait(WAIT_S)
            self.channels.append(channel.dup())
            return {"pid": 4711}
        if what["do"] == "signal":
            assert what["pid"] == 4711, "there is no such process yet"
            self.channels.pop().close()
        return {"code": -9}


@pytest.fixture
def slow_launcher(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeLauncher]:
    """In the real one's place."""
    fake = FakeLauncher()
    monkeypatch.setattr(processes, "launcher", lambda source=None: fake)
    monkeypatch.setattr(processes, "KILLED_TIMEOUT_S", 1.0)
    yield fake
    fake.may_answer.set()


async def test_process_when_its_launch_is_interrupted_then_it_is_known_and_ends(
    tmp_path: Path, slow_launcher: FakeLauncher
) -> None:
    """Ctrl-C left a process that had no number: its end took a minute, and was an error."""
    node = process_node(tmp_path)
    loop = asyncio.get_running_loop()
    starting = loop.create_task(node.start())
    async with asyncio.timeout(WAIT_S):
        await asyncio.to_thread(slow_launcher.is_asked.wait)
        starting.cancel()
        ending = loop.create_task(node.kill())
        await asyncio.sleep(0)
        slow_launcher.may_answer.set()
        await ending
        with pytest.raises(asyncio.CancelledError):
            await starting
    assert node.pid == 4711
    assert not node.is_alive
    assert slow_launcher.channels == []


async def test_cluster_when_one_node_does_not_end_then_the_others_do_and_ports_are_given_back(
    core: AioCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What came behind it was left as it was, ports and all."""
    closed: list[str] = []

    async def fails() -> None:
        raise NodeFailed("it does not end")

    async def ends() -> None:
        for _ in range(9):
            await asyncio.sleep(0)
        closed.append("namesrv-0")

    async def site() -> None:
        closed.append("site")

    with monkeypatch.context() as patch:
        patch.setattr(core.node("controller-0"), "kill", fails)
        patch.setattr(core.node("namesrv-0"), "kill", ends)
        patch.setattr(core._site, "close", site)
        with pytest.raises(NodeFailed, match="it does not end"):
            await core.close()
    assert closed == ["namesrv-0", "site"]
