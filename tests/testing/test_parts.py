"""The parts under the cluster, one by one: ports, gates, links, disks, logs."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from rmqha.base.errors import ConnectFailed
from rmqha.remoting.bodies import ReplicaIdentity, ReplicasInfo
from rmqha.runtime.aio.net import TcpNetwork
from rmqha.testing.aio_cluster import AioCluster
from rmqha.testing.disks import NodeDisk, SlowDisk
from rmqha.testing.life import Life, NodeClock, task_factory
from rmqha.testing.links import HELD_HIGH_BYTES, LinkedNetwork, Links
from rmqha.testing.logs import NodeLog, merged_tail, telling_tail
from rmqha.testing.nodes import Node, tell_roles
from rmqha.testing.settings import Place, Plan, refuse_misspelt
from rmqha.testing.sockets import NodeNetwork, Reserved, bind
from rmqha.testing.verbs import new_topic


def test_two_reservations_never_share_a_port() -> None:
    """With SO_REUSEADDR both would be bound, and the second could never listen."""
    first = Reserved()
    port = first.take_pair()
    for taken in (port, port - 2):
        with pytest.raises(OSError, match="in use"):
            bind(taken)
    first.close()
    bind(port).close()


class Peer(asyncio.Protocol):
    """Either end of a connection; keeps what it heard."""

    def __init__(self) -> None:
        self.heard = b""
        self.lost: list[Exception | None] = []
        self.paused = False
        self.transport: asyncio.Transport | None = None
        self.changed = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.changed.set()

    def data_received(self, data: bytes) -> None:
        """Bytes."""
        self.heard += data
        self.changed.set()

    def pause_writing(self) -> None:
        """Too much."""
        self.paused = True
        self.changed.set()

    def resume_writing(self) -> None:
        """Enough room."""
        self.paused = False
        self.changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ended."""
        self.lost.append(exc)
        self.changed.set()

    async def until(self, what: object) -> None:
        """Wait until ``what()`` is true."""
        async with asyncio.timeout(5):
            while not what():  # type: ignore[operator]
                self.changed.clear()
                await self.changed.wait()


async def pair(links: Links) -> tuple[Peer, Peer, int]:
    """A connection whose first end obeys the links."""
    theirs: list[Peer] = []
    accepted = asyncio.Event()

    def accept() -> Peer:
        theirs.append(Peer())
        accepted.set()
        return theirs[-1]

    network = LinkedNetwork(TcpNetwork(), links)
    listener = await network.listen("127.0.0.1", 0, accept)
    ours = Peer()
    await network.connect("127.0.0.1", listener.port, lambda: ours, timeout_ms=1000)
    async with asyncio.timeout(5):
        await accepted.wait()
    await theirs[0].until(lambda: theirs[0].transport)
    port = listener.port
    listener.close()
    return ours, theirs[0], port


async def test_a_cut_link_holds_both_directions_and_a_healed_one_delivers_in_order() -> None:
    """A partition loses nothing that TCP would deliver later."""
    links = Links()
    ours, theirs, port = await pair(links)
    assert ours.transport is not None
    assert theirs.transport is not None
    links.cut([port])
    ours.transport.write(b"one ")
    ours.transport.writelines([b"two ", b"three"])
    theirs.transport.write(b"back")
    await asyncio.sleep(0.05)
    assert (ours.heard, theirs.heard) == (b"", b"")
    links.cut([])
    await theirs.until(lambda: theirs.heard == b"one two three")
    await ours.until(lambda: ours.heard == b"back")
    theirs.transport.abort()
    ours.transport.abort()


async def test_a_connection_that_ends_while_cut_ends_for_the_peer_when_healed() -> None:
    """What one end knows the other does not: the point of a partition."""
    links = Links()
    ours, theirs, port = await pair(links)
    assert ours.transport is not None
    links.cut([port])
    ours.transport.write(b"last words")
    ours.transport.close()
    await asyncio.sleep(0.05)
    assert (theirs.heard, theirs.lost) == (b"", [])
    links.cut([])
    await theirs.until(lambda: theirs.lost)
    assert theirs.heard == b"last words"
    await ours.until(lambda: ours.lost == [None])


async def test_an_abort_while_cut_is_told_at_once_here_and_later_there() -> None:
    """The node goes on; its peer hears nothing yet."""
    links = Links()
    ours, theirs, port = await pair(links)
    assert ours.transport is not None
    links.cut([port])
    ours.transport.abort()
    await ours.until(lambda: ours.lost == [None])
    assert theirs.lost == []
    links.cut([])
    await theirs.until(lambda: theirs.lost)


async def test_nobody_answers_over_a_cut_link() -> None:
    """No refusal: the connect times out."""
    links = Links()
    links.cut([9])
    network = LinkedNetwork(TcpNetwork(), links)
    with pytest.raises(ConnectFailed, match="TimeoutError"):
        await network.connect("127.0.0.1", 9, Peer, timeout_ms=30)


async def test_a_writer_over_a_cut_link_is_told_to_pause() -> None:
    """What is held here must not grow without end where a socket's buffer would not."""
    links = Links()
    ours, theirs, port = await pair(links)
    assert ours.transport is not None
    assert theirs.transport is not None
    links.cut([port])
    ours.transport.write(b"x" * (HELD_HIGH_BYTES + 1))
    await ours.until(lambda: ours.paused)
    assert ours.transport.get_write_buffer_size() > HELD_HIGH_BYTES
    links.cut([])
    await ours.until(lambda: not ours.paused)
    await theirs.until(lambda: len(theirs.heard) == HELD_HIGH_BYTES + 1)
    ours.transport.abort()


async def test_a_stopped_life_hears_its_timers_when_it_goes_on_and_a_dead_one_never() -> None:
    """SIGSTOP holds, SIGKILL ends."""
    life, fired = Life(), []
    clock = NodeClock(life)
    life.gate.set_open(False)
    clock.call_later(1, fired.append, "kept")
    clock.call_later(1, fired.append, "cancelled").cancel()
    held = clock.call_later(1, fired.append, "cancelled while held")
    await asyncio.sleep(0.02)
    held.cancel()
    assert fired == []
    life.gate.set_open(True)
    await asyncio.sleep(0.01)
    assert fired == ["kept"]
    clock.call_later(1, fired.append, "dead")
    await life.end()
    await asyncio.sleep(0.01)
    assert fired == ["kept"]


async def test_a_killed_nodes_tasks_end_and_its_clean_up_reaches_nothing(tmp_path: Path) -> None:
    """A finally block that writes would make a kill a shutdown."""
    asyncio.get_running_loop().set_task_factory(task_factory)  # type: ignore[arg-type]
    life = Life()
    disk = NodeDisk(SlowDisk(), life)
    ended = []

    async def work() -> None:
        try:
            await NodeClock(life).sleep(60_000)
        finally:
            ended.append("cancelled")
            await disk.write_atomic(str(tmp_path / "last"), b"words")
            ended.append("written")

    task = asyncio.get_running_loop().create_task(work(), context=life.context())
    await asyncio.sleep(0)
    await life.end()
    await disk.abandon()
    assert task.cancelled()
    assert ended == ["cancelled"]
    assert list(tmp_path.iterdir()) == []


async def test_a_killed_disk_leaves_what_was_written_and_what_was_reserved(tmp_path: Path) -> None:
    """close() would cut the zeros that a killed process leaves behind the end."""
    life = Life()
    disk = NodeDisk(SlowDisk(), life)
    path = str(tmp_path / "log")
    file = await disk.open_append(path, reserve_bytes=1 << 20)
    await file.append_sync(b"one")
    await file.append_sync(b"two")
    mapped = disk.map_file(str(tmp_path / "mapped"), 4096, create=True)
    mapped.buffer[:4] = b"page"
    await life.end()
    await disk.abandon()
    found = (tmp_path / "log").read_bytes()
    assert found.rstrip(b"\0") == b"onetwo"
    assert len(found) > 6
    assert (tmp_path / "mapped").read_bytes()[:4] == b"page"
    with pytest.raises(asyncio.CancelledError):
        await disk.read(path)


async def test_a_slow_disk_keeps_the_order_of_appends(tmp_path: Path) -> None:
    """Also of those that were begun while it was quick again."""
    slow = SlowDisk()
    disk = NodeDisk(slow)
    file = await disk.open_append(str(tmp_path / "log"))
    done: list[str] = []
    slow.delay_ms = 20
    file.append(b"a", lambda _: done.append("a"))
    file.append(b"b", lambda _: done.append("b"))
    slow.delay_ms = 0
    file.append(b"c", lambda _: done.append("c"))
    assert file.size == 3
    await file.append_sync(b"d")
    assert done == ["a", "b", "c"]
    await file.close()
    assert (tmp_path / "log").read_bytes() == b"abcd"


async def test_a_dead_nodes_port_refuses_and_stays_reserved() -> None:
    """Peers must see what they see of a dead process, and the restart must find its port."""
    reserved = Reserved()
    port = reserved.take()
    for _ in range(2):
        network = NodeNetwork(Links(), Life(), reserved)
        await network.listen("127.0.0.1", port, Peer)
        client = Peer()
        await TcpNetwork().connect("127.0.0.1", port, lambda c=client: c, timeout_ms=500)
        await asyncio.sleep(0.01)
        network.kill()
        await client.until(lambda c=client: c.lost)
        with pytest.raises(ConnectFailed, match=r"Errno 111|refused"):
            await TcpNetwork().connect("127.0.0.1", port, Peer, timeout_ms=500)
        with pytest.raises(OSError, match="in use"):
            bind(port)
    with pytest.raises(OSError, match="not reserved"):
        await network.listen("127.0.0.1", port + 1, Peer)
    reserved.close()


async def test_a_node_that_dies_while_it_accepts_leaves_no_socket_open() -> None:
    """The task that was to take the connection is cancelled before it begins."""
    asyncio.get_running_loop().set_task_factory(task_factory)  # type: ignore[arg-type]
    reserved, life = Reserved(), Life()
    port = reserved.take()
    network = NodeNetwork(Links(), life, reserved)
    listener = await life.context().run(network.listen, "127.0.0.1", port, Peer)
    client = Peer()
    await TcpNetwork().connect("127.0.0.1", port, lambda: client, timeout_ms=500)
    life.context().run(listener._accept)  # type: ignore[attr-defined]
    network.kill()
    await life.end()
    await client.until(lambda: client.lost)
    reserved.close()


def test_logs_are_merged_by_time_and_what_is_no_log_line_is_kept(tmp_path: Path) -> None:
    """A traceback in a process's log is what one looks for first."""
    times = iter((2000, 1000, 3000))
    late, early = (NodeLog(tmp_path / name, lambda: next(times)) for name in ("late", "early"))
    late.log("info", "second", n=2)
    early.log("warning", "first", address="here")
    late.log("debug", "not_written")
    with (tmp_path / "early").open("a") as file:
        file.write("Traceback (most recent call last):\n")
    late.close()
    early.close()
    got = merged_tail({"late": tmp_path / "late", "early": tmp_path / "early"}).splitlines()
    assert [line.split()[0] for line in got] == ["early", "late", "early"]
    assert got[0].split(maxsplit=2)[2] == "warning first address=here"
    assert got[2].endswith("Traceback (most recent call last):")
    assert "not_written" not in "".join(got)


def test_the_authors_settings_win_and_booleans_are_javas(tmp_path: Path) -> None:
    """Python's True in a properties file is neither true nor false."""
    place = Place("broker-0", "broker", tmp_path, 3, (3, 1, 4))
    plan = Plan((), (), (place,), broker_settings={"slaveReadEnable": True, "slaveTimeout": 7})
    got = plan.properties(place)
    assert (got["slaveReadEnable"], got["slaveTimeout"]) == ("true", "7")
    assert (got["listenPort"], got["haListenPort"]) == ("3", "4")


@pytest.mark.parametrize(
    ("kind", "key", "meant"),
    [
        ("broker", "flushDiskTyp", "flushDiskType"),
        ("controller", "scanInactiveMasterIntervall", "scanInactiveMasterInterval"),
        ("namesrv", "scanNotActiveBrokerIntervall", "scanNotActiveBrokerInterval"),
    ],
)
def test_setting_when_misspelt_then_it_is_refused_with_the_one_that_is_meant(
    kind: str, key: str, meant: str
) -> None:
    """It passed, and the test that gave it tested something else."""
    with pytest.raises(ValueError, match=f"'{key}'; is '{meant}' meant"):
        refuse_misspelt(kind, {key: 1})
    refuse_misspelt(kind, {meant: 1})


def test_setting_when_unlike_any_other_then_it_passes() -> None:
    """Java's files have many keys that nothing of ours reads."""
    refuse_misspelt("broker", {"sendThreadPoolQueueCapacity": 1, "brokerClusterName": "x"})


def test_the_tail_that_tells_keeps_the_story_and_cuts_it_to_a_screen(tmp_path: Path) -> None:
    """Elections and tracebacks between hundreds of lines about peers that connected."""
    log = NodeLog(tmp_path / "one", lambda: 1000)
    log.log("info", "raft_peer_connected", peer="n1")
    log.log("info", "master_elected", reason="x" * 300)
    log.log("warning", "raft_slow", silent_ms=3)
    log.log("warning", "broker_inactive", broker_id=1)
    log.close()
    with (tmp_path / "one").open("a") as file:
        file.write("Traceback (most recent call last):\n")
    got = telling_tail({"one": tmp_path / "one"}, 9).splitlines()
    assert [line.split()[3] for line in got] == ["master_elected", "broker_inactive", "recent"]
    assert len(got[0]) == 140
    assert telling_tail({"one": tmp_path / "one"}, 2).splitlines() == got[1:]


def test_roles_are_the_controllers_word_and_a_dead_node_has_none(tmp_path: Path) -> None:
    """A node that shows a role which it lost sends its reader astray."""

    class Seen(Node):
        """A node that is only looked at."""

        is_alive = True
        start = kill = shut_down = stop = cont = slow_disk = cut = None

    Seen.__abstractmethods__ = frozenset()
    kinds = ("controller", "namesrv", "broker", "broker")
    nodes = [
        Seen(Place(f"{kind}-{port}", kind, tmp_path, port, (port,)))
        for port, kind in enumerate(kinds)
    ]
    replica = ReplicaIdentity("broker-a", 7, nodes[3].address, True)
    replicas = ReplicasInfo(7, nodes[3].address, 1, 1, (replica,), ())
    tell_roles(nodes, nodes[0].address, replicas)
    assert [node.role for node in nodes] == ["leader", "", "", "master"]
    assert repr(nodes[3]) == "<broker-3 127.0.0.1:3 id 7 master alive>"
    tell_roles(nodes, None, None)
    assert [node.role for node in nodes] == ["", "", "", ""]
    nodes[3].is_alive = False
    tell_roles(nodes, None, replicas)
    assert repr(nodes[3]) == "<broker-3 127.0.0.1:3 id 7 dead>"


def test_new_topics_when_named_after_anything_then_brokers_take_them() -> None:
    """Names of tests have brackets, spaces and any length."""
    one, other = new_topic("test_x[ä b]" * 20), new_topic("test_x[ä b]" * 20)
    assert one != other
    for name in (one, other):
        assert len(name) == 127
        assert re.fullmatch("[A-Za-z0-9_]+", name)


@pytest.mark.parametrize("counts", [("3", 1, 3), (3, 1.5, 3), (3, 1, None), (True, 1, 3)])
async def test_counts_when_one_is_no_whole_number_then_the_error_says_so(
    tmp_path: Path, counts: Any
) -> None:
    """A text was a TypeError of some comparison that named nothing."""
    with pytest.raises(ValueError, match=r"controllers, namesrv, replicas = .*whole numbers"):
        await AioCluster.make(
            tmp_path, counts=counts, processes=False, seed=1, settings=({}, {}, {})
        )


@pytest.mark.parametrize("delay_ms", [-5, -0.1, float("nan"), float("inf")])
async def test_slow_disk_when_the_time_cannot_be_then_it_is_refused(
    tmp_path: Path, delay_ms: float
) -> None:
    """It was taken, and the disk was as fast as before."""
    cluster = await AioCluster.make(
        tmp_path, counts=(1, 1, 1), processes=False, seed=1, settings=({}, {}, {})
    )
    try:
        with pytest.raises(ValueError, match="cannot be slower by"):
            await cluster.slow_disk("broker-0", delay_ms)
    finally:
        await cluster.close()
