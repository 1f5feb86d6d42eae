"""Who counts as in sync, and who as master: by the controllers' word, and by who can serve at all."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rmqha.remoting.bodies import ReplicaIdentity, ReplicasInfo
from rmqha.testing.aio_cluster import CLIENT, AioCluster
from rmqha.testing.client import NotYet, SetInfo


@pytest.fixture
async def core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Three brokers that are alive; the controllers say what a test has them say."""
    made = await AioCluster.make(
        tmp_path, counts=(1, 0, 3), processes=False, seed=1, settings=({}, {}, {})
    )
    for node in made.nodes.values():
        monkeypatch.setattr(node, "_life", type("Life", (), {"is_dead": False}))
    yield made
    for node in made.nodes.values():
        node._life = None  # type: ignore[attr-defined]
    await made.close()


def say(core: AioCluster, monkeypatch: pytest.MonkeyPatch, *sets: set[int]) -> None:
    """Have the controllers name these sets, one after another, and the last one for ever."""
    addresses = {number: node.address for number, node in enumerate(core.of_kind("broker"), 1)}
    addresses[9] = "127.0.0.1:1"
    left = list(sets)

    async def set_info() -> SetInfo:
        members = left.pop(0) if len(left) > 1 else left[0]
        return SetInfo(min(members), addresses[min(members)], 1, frozenset(members))

    async def replicas() -> ReplicasInfo:
        every = (ReplicaIdentity("broker-a", n, at, True) for n, at in addresses.items())
        return ReplicasInfo(1, addresses[1], 1, 1, tuple(every), ())

    async def master() -> str:
        return addresses[min(left[0])]

    async def leader() -> None:
        return None

    for name, said in (("set_info", set_info), ("replicas", replicas), ("leader", leader)):
        monkeypatch.setattr(core.client, name, said)
    monkeypatch.setattr(core, "_find_master", master)


def hang(core: AioCluster, name: str) -> None:
    """Nobody hears of that broker."""
    core.node(name).is_stopped = True


async def test_set_when_a_stopped_broker_is_in_it_for_a_living_one_then_it_is_waited_for(
    core: AioCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of three served, two were in the set, and one of these hung: it was whole at once."""
    hang(core, "broker-1")
    say(core, monkeypatch, {1, 2}, {1, 2}, {1, 3})
    assert (await core.wait_in_sync(None, 5)).sync_state_set == {1, 3}


@pytest.mark.parametrize("count", [None, 2])
async def test_set_when_a_stopped_broker_stays_in_it_then_it_is_not_whole(
    core: AioCluster, monkeypatch: pytest.MonkeyPatch, count: int | None
) -> None:
    hang(core, "broker-1")
    say(core, monkeypatch, {1, 2})
    with pytest.raises(NotYet, match="no whole SyncStateSet"):
        await core.wait_in_sync(count, 0.02)


async def test_set_when_a_number_is_asked_for_then_a_living_one_may_be_out_of_it(
    core: AioCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test that has cut one off waits for the others; and a broker of the test's own counts."""
    say(core, monkeypatch, {1, 2})
    await core.wait_in_sync(2, 5)
    say(core, monkeypatch, {1, 9})
    await core.wait_in_sync(2, 5)
    with pytest.raises(NotYet):
        await core.wait_in_sync(None, 0.02)


@pytest.mark.parametrize("how", ["stopped", "dead", "cut off"])
async def test_master_when_it_cannot_serve_then_another_one_is_waited_for(
    core: AioCluster, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Name servers list it for some seconds more; a test that goes on with it waits for nobody."""
    gone, other = core.node("broker-0"), core.node("broker-2")
    match how:
        case "stopped":
            hang(core, gone.name)
        case "dead":
            monkeypatch.setattr(gone, "_life", None)
        case _:
            core._cut.add(frozenset((gone.name, CLIENT)))
    say(core, monkeypatch, {1, 3})
    listed = [gone, gone, other]

    async def master() -> Any:
        await asyncio.sleep(0)
        return listed.pop(0) if len(listed) > 1 else listed[0]

    monkeypatch.setattr(core, "master", master)
    assert await core.wait_for_master(None, 5) is other
