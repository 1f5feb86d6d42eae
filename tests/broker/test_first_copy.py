"""A slave follows its master's log when its tables are known, and on disk."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from rmqha.base.errors import DiskFailed
from rmqha.broker.sync.aio.first_copy import FirstCopy
from rmqha.ha.events import Role
from rmqha.runtime.aio.tasks import Tasks
from rmqha.runtime.logs import Logger


class Clock:
    async def sleep(self, _: int) -> None:
        await asyncio.sleep(0)


class Slave:
    """One whose disk is slow or fails as a test wants."""

    def __init__(self, *, is_known: bool, is_kept: bool, failures: int = 0) -> None:
        self.metadata = SimpleNamespace(is_known=is_known, is_kept=is_kept)
        self.happened: list[str] = []
        self.failures = failures
        self.is_slow = asyncio.Event()
        self.is_slow.set()
        self.saving, self.is_connected = asyncio.Event(), asyncio.Event()
        self.tasks = Tasks(Logger())
        broker: Any = SimpleNamespace(role=Role.SLAVE, clock=Clock())
        metadata: Any = self.metadata
        sync: Any = self
        self.first = FirstCopy(
            broker, metadata, sync, connect=self.connect, save=self.save, tasks=self.tasks
        )  # fmt: skip

    def connect(self, address: str) -> None:
        self.happened.append(address)
        self.is_connected.set()

    async def copy(self) -> bool:
        self.happened.append("copied")
        self.metadata.is_known, self.metadata.is_kept = True, False
        return True

    async def save(self) -> None:
        self.saving.set()
        await self.is_slow.wait()
        if self.failures:
            self.failures -= 1
            raise DiskFailed("no room")
        self.happened.append("saved")

    async def connected(self) -> list[str]:
        await asyncio.wait_for(self.is_connected.wait(), 5)
        await self.tasks.close()
        return self.happened


async def test_tables_when_unknown_then_copied_and_saved_before_it_connects() -> None:
    """The log goes on from them."""
    slave = Slave(is_known=False, is_kept=True)
    slave.first.follow("m:1")
    assert await slave.connected() == ["copied", "saved", "m:1"]


async def test_tables_when_somebody_else_has_copied_them_then_saved_before_it_connects() -> None:
    """The periodic look at the master may have been quicker."""
    slave = Slave(is_known=True, is_kept=False)
    slave.is_slow.clear()
    slave.first.follow("m:1")
    await asyncio.wait_for(slave.saving.wait(), 5)
    assert slave.happened == []
    slave.is_slow.set()
    assert await slave.connected() == ["saved", "m:1"]


async def test_tables_when_the_disk_fails_then_it_connects_once_they_are_saved() -> None:
    """Without them on disk it is no replica that may be elected after a power cut."""
    slave = Slave(is_known=False, is_kept=True, failures=2)
    slave.first.follow("m:1")
    assert await slave.connected() == ["copied", "saved", "m:1"]


async def test_tables_when_known_and_kept_then_it_connects_at_once() -> None:
    """Nobody waits for a disk then."""
    slave = Slave(is_known=True, is_kept=True)
    slave.first.follow("m:1")
    assert slave.happened == ["m:1"]


async def test_tables_when_others_come_while_they_are_saved_then_saved_once_more() -> None:
    """What is on disk is not what is known now."""
    slave = Slave(is_known=False, is_kept=True)
    slave.is_slow.clear()
    slave.first.follow("m:1")
    await asyncio.wait_for(slave.saving.wait(), 5)
    slave.metadata.is_kept = False
    slave.is_slow.set()
    assert await slave.connected() == ["copied", "saved", "saved", "m:1"]


async def test_master_when_another_one_reigns_before_tables_are_copied_then_that_one_is_followed() -> (
    None
):
    """The copy for the former master ended last, and its address was followed for ever."""
    slave = Slave(is_known=False, is_kept=True)
    slave.is_slow.clear()
    slave.first.follow("m:1")
    await asyncio.wait_for(slave.saving.wait(), 5)
    slave.metadata.is_known = slave.metadata.is_kept = True
    slave.first.follow("m:2")
    slave.is_slow.set()
    for _ in range(10):
        await asyncio.sleep(0)
    assert [one for one in slave.happened if one.startswith("m:")] == ["m:2"]
