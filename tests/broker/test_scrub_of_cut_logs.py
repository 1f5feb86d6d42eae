"""A scrub whose log is cut behind its back, and has grown past its place when it looks again."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rmqha.broker.sync.aio.scrubbing import Answered, Scrub
from rmqha.broker.sync.scrub import Pace
from rmqha.runtime.aio.clock import SystemClock
from rmqha.runtime.logs import Logger
from rmqha.store.aio.message_store import MessageStore
from tests.store.harness import message, real_store


class Alone(Scrub):
    """Of a replica that has no others."""

    async def _ask_all(self, begin: int, end: int, own: str) -> list[Answered]:
        """Nobody answers."""
        return []


async def scrubbed(root: Path) -> tuple[MessageStore, Alone, Pace, list[int]]:
    """A log of forty records, and a scrub that has read it all."""
    store = real_store(root, enable_controller_mode=True, mapped_file_size_commit_log=1 << 20)
    await store.open()
    places = [store.append(message(number)).offset for number in range(40)]
    store.set_confirm_offset(store.max_offset)
    broker = SimpleNamespace(store=store, clock=SystemClock(), ha_core=None)
    scrub = Alone(cast(Any, broker), cast(Any, None), Logger(node="test"))
    pace = Pace(1 << 20, 1 << 60, 0)
    await look(scrub, pace)
    assert pace.position == store.max_offset
    return store, scrub, pace, places


async def look(scrub: Scrub, pace: Pace) -> int | None:
    """Read on, as ``Scrub.run`` does."""
    begin = await scrub._next(pace)
    if begin is not None:
        pace.read(0, await scrub._range(begin))
    return begin


@pytest.mark.parametrize("within", [0, 60])
async def test_scrub_when_the_log_was_cut_and_has_grown_past_its_place_then_it_finds_no_damage(
    tmp_path: Path, within: int
) -> None:
    """It read on in the middle of a record, told of damage that was none, and left out the rest."""
    store, scrub, pace, places = await scrubbed(tmp_path)
    await store.truncate(places[6])
    first = store.max_offset
    for number in range(40):
        store.append(
            message(number, body=b"of the next master, and a little longer" + bytes(within))
        )
    store.set_confirm_offset(store.max_offset)
    assert pace.position < store.max_offset
    assert await look(scrub, pace) == first
    assert pace.position == store.max_offset
    assert not store.mending.damaged
    assert await look(scrub, pace) is None
    await store.close()


async def test_scrub_when_the_log_is_cut_while_it_reads_then_it_tells_no_damage(
    tmp_path: Path,
) -> None:
    """What it was about to read is other bytes by now."""
    store, scrub, pace, places = await scrubbed(tmp_path)
    pace.position = places[20]
    begin = await scrub._next(pace)
    assert begin == places[20]
    await store.truncate(places[6])
    for number in range(40):
        store.append(message(number, body=b"of the next master, and a little longer"))
    store.set_confirm_offset(store.max_offset)
    assert await scrub._range(begin) == begin
    assert not store.mending.damaged
    await look(scrub, pace)
    assert pace.position == store.max_offset
    await store.close()
