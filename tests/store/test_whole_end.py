"""A slave's flush asks where whole records end; what is dispatched has been looked at already."""

from __future__ import annotations

from pathlib import Path

from tests.store.harness import message, real_store


async def test_a_flush_does_not_walk_over_dispatched_records_again(tmp_path: Path) -> None:
    """A walk over each record at each flush held up the event loop of a slave that catches up."""
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    master = real_store(tmp_path / "one", enable_controller_mode=True)
    slave = real_store(tmp_path / "two", enable_controller_mode=True)
    await master.open()
    await slave.open()
    ends = [master.append(message(number)).end for number in range(20)]
    slave.reserve(0, ends[-1])[:] = master.view(0, ends[-1])
    slave.received(0, ends[-1])
    slave.set_confirm_offset(ends[9])
    await slave.wait_dispatched(ends[9])
    # Whoever looked at the first record again would stop there.
    first = slave.commit_log.view(0, 4)
    kept, first[:] = bytes(first), bytes(4)
    assert slave.commit_log.whole_end() == ends[-1]
    first[:] = kept
    first.release()
    await slave.close()
    await master.close()
