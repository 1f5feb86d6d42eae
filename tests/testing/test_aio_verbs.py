"""``cluster.aio``: the verbs for a test that has an event loop of its own."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from typing import Any, cast

import pytest

from rmqha.testing.aio_cluster import AioCluster
from rmqha.testing.aio_verbs import AioVerbs
from rmqha.testing.cluster import RmqCluster
from rmqha.testing.ledger import Ledger
from rmqha.testing.loop_thread import LoopThread

WAIT_FOR_NOTHING = {"node", "logs", "report", "ending_workloads"}


def test_verbs_when_they_wait_for_something_then_each_has_a_coroutine() -> None:
    """With the same names for what it is given."""
    aio = AioVerbs(AioCluster.__new__(AioCluster), cast(LoopThread, None))
    for name, verb in inspect.getmembers(RmqCluster, inspect.isfunction):
        if name.startswith("_") or name in WAIT_FOR_NOTHING:
            continue
        made = getattr(aio, name)
        assert inspect.iscoroutinefunction(made), name
        wanted, taken = (set(inspect.signature(one).parameters) for one in (verb, made))
        assert wanted - {"self", "node"} <= taken, name


@pytest.mark.parametrize("name", [*sorted(WAIT_FOR_NOTHING), "nothing_at_all"])
def test_verb_when_it_has_no_coroutine_then_that_is_said(name: str) -> None:
    """Not that a coroutine object is required."""
    aio = AioVerbs(AioCluster.__new__(AioCluster), cast(LoopThread, None))
    with pytest.raises(AttributeError, match=rf"no coroutine {name!r}"):
        getattr(aio, name)


@pytest.mark.costly
def test_workload_when_another_loop_runs_it_then_it_can_be_waited_for_and_stopped(
    tmp_path: Path,
) -> None:
    """Its tasks are the cluster's; who awaited them from elsewhere could not end them."""

    async def use(aio: Any) -> Ledger:
        load = await aio.workload("Load", pause_ms=0.5)
        began_ms = load.now_ms()
        await load.wait_for_acks(5)
        assert load.first_ack_after(began_ms) is not None
        assert load.ledger.acknowledged >= 5
        assert await load.stop() is load.ledger
        await aio.produce(3)
        await aio.assert_nothing_lost()
        with pytest.raises(AssertionError, match="nothing was ever acknowledged in Nobody's"):
            await aio.assert_nothing_lost("Nobody's", timeout_s=0.1)
        await aio.close()
        return load.ledger

    with RmqCluster(tmp_path, controllers=1, replicas=1) as cluster:
        ledger = asyncio.run(use(cluster.aio))
    assert (ledger.lost, ledger.pending) == ([], 0)
