"""Replication over the real store: mapped files, queues, recovery; failover by hand."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any, cast

import pytest

from rmqha.ha import events as ev
from rmqha.ha.events import PutStatus
from rmqha.store.aio.message_store import MessageStore
from tests.ha.test_loopback import ALL_ACK, Node, until
from tests.store.harness import message, real_store


async def store_node(broker_id: int, root: Path) -> tuple[Node, MessageStore]:
    home = root / str(broker_id)
    home.mkdir(exist_ok=True)
    store = real_store(home, enable_controller_mode=True)
    await store.open()
    node = Node(broker_id, home, ALL_ACK, cast(Any, store))
    await node.start()
    return node, store


async def put(node: Node, store: MessageStore, body: bytes) -> PutStatus:
    status = node.service.check_put()
    if status is not PutStatus.PUT_OK:
        return status
    result = store.append(message(body=body))
    node.service.appended()
    return await node.service.wait_put(result.end, node.service.reign_number)


def content(store: MessageStore) -> bytes:
    out, at = b"", max(store.min_offset, 0)
    while at < store.max_offset:
        size = store.readable(at, 1 << 20)
        out += bytes(store.view(at, size))
        at += size
    return out


async def stop(node: Node, store: MessageStore) -> None:
    await node.service.close()
    await store.close()


@pytest.mark.slow
async def test_a_failover_on_mapped_files(tmp_path: Path) -> None:
    """The whole of it: catch up over files, join, a dirty tail, a new master, the old one's return."""
    one, first = await store_node(1, tmp_path)
    two, second = await store_node(2, tmp_path)
    assert await one.service.change_to_master(1, frozenset({1}), 1)
    for number in range(200):
        assert await put(one, first, b"%d " % number * 40) is PutStatus.PUT_OK
    assert await two.service.change_to_slave(1, 1, one.address)
    await until(lambda: one.ids == {1, 2})
    results = await asyncio.gather(*(put(one, first, bytes(500)) for _ in range(50)))
    assert set(results) == {PutStatus.PUT_OK}
    assert content(first) == content(second)
    one.answers = False
    await stop(two, second)
    assert await put(one, first, b"dirty" * 30) is PutStatus.FLUSH_SLAVE_TIMEOUT
    await stop(one, first)

    two, second = await store_node(2, tmp_path)
    assert await two.service.change_to_master(2, frozenset({2}), 5)
    two.set_epoch = 5
    for number in range(20):
        assert await put(two, second, b"new %d" % number) is PutStatus.PUT_OK
    one, first = await store_node(1, tmp_path)
    assert await one.service.change_to_slave(2, 2, two.address)
    await until(lambda: two.ids == {1, 2})
    assert await put(two, second, b"last") is PutStatus.PUT_OK
    assert content(first) == content(second)
    assert b"dirty" not in content(first)
    await until(lambda: first.dispatched_offset == second.max_offset)
    await stop(one, first)
    await stop(two, second)
    assert one.failed == two.failed == []


STORE_ALONE = ("commitlog", "consumequeue", "batchconsumequeue", "index")
FILES_ALONE = ("checkpoint", "abort", "epochs-2", "epochs-2.bak")


@pytest.mark.costly
async def test_slave_that_was_away_longer_than_files_are_kept_is_told_so_and_comes_back_emptied(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its operator would see connections that close, and find nothing to do about it."""
    one, first = await store_node(1, tmp_path)
    two, second = await store_node(2, tmp_path)
    assert await one.service.change_to_master(1, frozenset({1}), 1)
    assert await put(one, first, b"both have it") is PutStatus.PUT_OK
    assert await two.service.change_to_slave(1, 1, one.address)
    await until(lambda: one.ids == {1, 2})
    await stop(two, second)
    await until(lambda: one.ids == {1})
    for number in range(200):
        first.append(message(number, body=bytes(500)))
    one.service.appended()
    await first.wait_dispatched(first.max_offset)
    files = first.commit_log.files
    files.leave_before(files.first + 3 * files.size)
    one.service.give(ev.Trimmed(first.min_offset))

    two, second = await store_node(2, tmp_path)
    assert await two.service.change_to_slave(1, 1, one.address)
    told = ""

    def is_told() -> bool:
        nonlocal told
        told += capsys.readouterr().out
        return "fileReservedTime" in told

    await until(is_told)
    await stop(two, second)
    for name in STORE_ALONE:
        shutil.rmtree(tmp_path / "2" / name, ignore_errors=True)
    for name in FILES_ALONE:
        (tmp_path / "2" / name).unlink(missing_ok=True)

    two, second = await store_node(2, tmp_path)
    assert await two.service.change_to_slave(1, 1, one.address)
    await until(lambda: second.max_offset == first.max_offset)
    assert content(first) == content(second)
    assert second.min_offset == first.min_offset
    await stop(one, first)
    await stop(two, second)
