"""The table of timers: what it holds, and that nothing it does takes longer the more it holds."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.broker.deferred import timer_table
from rmqha.broker.deferred.timer_table import NOWHERE, TimerTable, _Nearest, _Runs
from rmqha.broker.deferred.timers import Due, TimerMark

MANY, QUICK_MS = 200_000, 20.0
WALL_MS = 1_000_000


@given(seed=st.integers(0, 1 << 32))
def test_nearest_when_compared_with_a_sorted_list_then_the_same(seed: int) -> None:
    dice = random.Random(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timer_table, "STALE_MAX", dice.choice((0, 3)))
        patch.setattr(timer_table, "GONE_MAX", dice.choice((1, 2, 5)))
        times = dice.choice((1, 3, 1_000))
        table, model = _Nearest(), list[Due]()
        for at in range(dice.randint(1, 80)):
            timer = Due(dice.randint(0, times), at, 0)
            table.add(timer)
            model = sorted([*model, timer])
            while model and dice.random() < 0.45:
                is_first = dice.random() < 0.5
                assert table.first == model[0]
                assert (table.pop_first() if is_first else table.pop_last()) == model.pop(
                    0 if is_first else -1
                )
            assert len(table) == len(model)
            assert table.first == (model[0] if model else None)
            point = dice.randint(0, times), dice.randint(0, at)
            before = [one for one in model if one.point < point]
            assert sorted(table.before(point, 1_000)) == before
            assert len(table.before(point, 2)) == min(2, len(before))


@given(seed=st.integers(0, 1 << 32))
def test_runs_when_some_go_then_the_first_is_never_passed(seed: int) -> None:
    dice = random.Random(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timer_table, "RUN", 4)
        runs, waiting = _Runs(), set[int]()
        for _ in range(60):
            offset = dice.randint(0, 40)
            if offset in waiting:
                waiting.discard(offset)
                runs.remove(offset)
            else:
                waiting.add(offset)
                runs.add(offset)
            if dice.random() < 0.5:
                assert runs.first == (min(waiting) // 4 * 4 if waiting else NOWHERE)


def test_order_when_timers_come_and_go_for_long_then_it_does_not_grow() -> None:
    """Its farthest one was asked for once; times that are over do not stay for ever."""
    table = _Nearest()
    for at in range(2):
        table.add(Due(1 << 40, at, 0))
    table.pop_last()
    for at in range(20_000):
        table.add(Due(at, at, 0))
        assert table.first is not None
        table.pop_first()
    assert len(table) == 1
    assert max(len(table._order), len(table._backwards or ())) <= timer_table.STALE_MAX + 4
    for at in range(20_000):
        table.add(Due(at, at, 0))
        table.add(Due((1 << 41) - at, at, 0))
        table.pop_last()
        assert table.first is not None
        table.pop_first()
    assert len(table._order) <= timer_table.STALE_MAX + 4


def quickest_ms(work: Callable[[], object]) -> float:
    """Of a few times, in processor time."""
    found = []
    for _ in range(5):
        begun = time.process_time()
        work()
        found.append((time.process_time() - begun) * 1_000)
    return min(found)


@pytest.mark.costly
@pytest.mark.parametrize("times", [1, 1_000, MANY])
def test_table_when_it_holds_very_many_then_nobody_waits_for_it(times: int) -> None:
    """A mark looked at all of them every second, and one more than it may hold had all of them sorted:
    75 and 200 ms with 100,000, 350 and 1,200 with the half million that are the default."""
    table, dice = TimerTable(MANY, TimerMark(), 0), random.Random(1)
    for at in range(MANY):
        table.add(Due(WALL_MS + dice.randrange(times), at, 0), f"key{at}" if at % 2 else "")

    def one_more() -> None:
        table.add(Due(WALL_MS, table.position, 0))
        assert len(table) == MANY

    def some_delivered() -> None:
        assert len(table.take(WALL_MS + times, 100)) == 100
        table.settled()

    assert quickest_ms(lambda: table.mark(WALL_MS - 1)) < QUICK_MS
    assert quickest_ms(one_more) < QUICK_MS
    assert quickest_ms(some_delivered) < QUICK_MS
    assert quickest_ms(lambda: table.mark(WALL_MS - 1)) < QUICK_MS


def test_mark_when_the_first_timers_are_delivered_then_a_restart_does_not_begin_with_them() -> None:
    """It begins where the run of the first one begins that waits."""
    table = TimerTable(MANY, TimerMark(), 0)
    run = timer_table.RUN
    for at in range(3 * run):
        table.add(Due(1 if at < 2 * run + 5 else WALL_MS, at, 0))
    while table.take(1, run):
        table.settled()
    assert table.mark(2).first == 2 * run
    again = TimerTable(MANY, table.mark(2), 2 * run + 3)
    again.add(Due(WALL_MS, 2 * run + 5, 0))
    assert again.mark(3).first == 2 * run + 3, "nothing before it was left"


def table_of(*dues_ms: int, most: int = 10) -> TimerTable:
    """A table that has read timers which are due then."""
    table = TimerTable(most, TimerMark(), 0)
    for due_ms in dues_ms:
        table.add(Due(due_ms, table.position, 0))
    return table


def test_mark_when_timers_were_taken_and_are_not_safe_then_they_are_not_passed() -> None:
    table = table_of(20, 10, 30)
    assert [one.due_ms for one in table.take(25, 9)] == [10, 20]
    assert (table.mark(25).read_ms, table.mark(25).first) == (9, 0)
    assert [one.due_ms for one in table.take(30, 9)] == [30]
    assert table.mark(35).read_ms == 9
    table.settled()
    assert (table.mark(35).read_ms, table.mark(35).first) == (35, 3)


def test_mark_when_late_timers_wait_then_they_are_named_until_they_are_safe() -> None:
    table = table_of()
    assert table.mark(500).read_ms == 500
    table.add(Due(100, 0, 0))
    assert (table.mark(500).read_ms, table.mark(500).late) == (500, (0,))
    table.take(500, 1)
    assert table.mark(500).late == (0,)
    table.settled()
    assert table.mark(500).late == ()


def test_mark_when_too_many_are_late_then_the_time_goes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A restart delivers some of them twice, and loses none."""
    monkeypatch.setattr(timer_table, "LATE_MAX", 3)
    table = table_of()
    assert table.mark(500).read_ms == 500
    for at in range(3):
        table.add(Due(100 + at, at, 0))
    assert table.mark(500).late == (0, 1, 2)
    table.add(Due(103, 3, 0))
    assert (table.mark(500).read_ms, table.mark(500).late) == (99, ())


def test_timers_when_the_log_is_read_again_then_they_wait_for_those_before_them() -> None:
    table = table_of(30, 10, 20, 25, most=2)
    assert [one.due_ms for one in table.take(50, 9)] == [10, 20]
    table.settled()
    assert table.position == 0
    table.add(Due(30, 0, 0))
    assert table.take(50, 9) == [], "25 is still to be read"
    for at, due_ms in ((1, 10), (2, 20), (3, 25)):
        table.add(Due(due_ms, at, 0))
    assert [one.due_ms for one in table.take(50, 9)] == [25, 30]


def test_recalls_when_their_time_is_over_then_they_are_forgotten_one_by_one() -> None:
    """A key that is taken back for two times keeps the later one."""
    table = table_of()
    for due_ms, recalls in ((5, ""), (10, "key"), (20, "key"), (20, "other")):
        table.add(Due(due_ms, table.position, 0), recalls)
    assert table.is_recalled("key", 20)
    table.take(10, 9)
    table.settled()
    assert table.is_recalled("key", 20)
    assert table.is_recalled("other", 20)
    assert len(table._recalls) == 2
    table.take(20, 9)
    table.settled()
    assert (table._recalls, table._recalled) == ([], {})


def come_of(
    log: list[tuple[int, str, str]], most: int, until_ms: int, dice: random.Random
) -> list[tuple[int, str]]:
    """What a table delivers of a log of (time, key, key that is taken back)."""
    table, came = TimerTable(most, TimerMark(), 0), list[tuple[int, str]]()
    while True:
        while table.position < len(log):
            at = table.position
            table.add(Due(log[at][0], at, 0), log[at][2])
        found = table.take(until_ms, dice.randint(1, 4))
        for one in found:
            key = log[one.queue_offset][1]
            if key and not table.is_recalled(key, one.due_ms):
                came.append((one.due_ms, key))
        table.settled()
        assert len(table._recalled) <= len(log)
        if not found and table.position >= len(log):
            return came


@given(seed=st.integers(0, 1 << 32))
def test_recalls_when_more_than_the_table_holds_then_each_takes_its_timer_back(seed: int) -> None:
    """They were forgotten beyond ``timersInMemoryMax``, and what they took back came all the same."""
    dice = random.Random(seed)
    times, most = dice.choice((2, 10, 100)), dice.randint(2, 6)
    log = [(dice.randint(1, times), f"{number}", "") for number in range(dice.randint(1, 30))]
    recalled = dice.sample(log, dice.randint(0, len(log)))
    log += [(due_ms, "", key) for due_ms, key, _ in recalled]
    expected = sorted((due_ms, key) for due_ms, key, _ in log if key)
    taken_back = {key for _, _, key in log}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timer_table, "STALE_MAX", dice.choice((0, 1_000)))
        came = come_of(log, most, times, dice)
    assert sorted(came) == [one for one in expected if one[1] not in taken_back]


def test_recalls_when_there_are_many_far_ones_then_only_near_ones_are_held() -> None:
    """The farther come first here, so that each stands before the horizon when it is read."""
    table, count = TimerTable(10, TimerMark(), 0), 5_000
    for at in range(count):
        table.add(Due(count - at, at, 0), f"key{at}")
    assert len(table) == 10
    assert len(table._recalled) <= 10 + 2 * timer_table.STALE_MAX
    assert all(table.is_recalled(f"key{at}", count - at) for at in range(count - 10, count))
    same = TimerTable(10, TimerMark(), 0)
    began = time.perf_counter()
    for at in range(20 * timer_table.STALE_MAX):
        same.add(Due(7, at, 0), f"key{at}")
    assert time.perf_counter() - began < 5, "each looked at all of them"


def come_after(mark: TimerMark, dues_ms: list[int], now_ms: int, most: int) -> set[int]:
    """Queue offsets of what a table delivers that begins from a mark."""
    table, found = TimerTable(most, mark, mark.first), set[int]()
    for _ in range(3 * len(dues_ms)):
        while table.position < len(dues_ms):
            table.add(Due(dues_ms[table.position], table.position, 0))
        found.update(one.queue_offset for one in table.take(now_ms, most))
        table.settled()
    return found


def test_mark_when_left_out_timers_stand_first_then_a_restart_begins_with_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those that are held come sooner, and stand behind them in the log."""
    monkeypatch.setattr(timer_table, "RUN", 1)
    dues_ms = [100 + at for at in range(6)] + [10 + at for at in range(4)]
    table = table_of(*dues_ms, most=4)
    assert table.mark(5).first == 0
    assert come_after(table.mark(5), dues_ms, 500, most=4) == set(range(10))
    assert len(table.take(50, 3)) == 3
    table.settled()
    assert come_after(table.mark(50), dues_ms, 500, most=4) == {*range(6), 9}


@pytest.mark.parametrize("count", [0, 1, 5])
def test_mark_when_late_ones_are_read_again_then_none_of_them_counts_as_delivered(
    count: int,
) -> None:
    """The mark before them was of a later time than theirs."""
    table, dues_ms = table_of(most=4), [100 + at for at in range(10)]
    assert table.mark(5_000).read_ms == 5_000
    for at, due_ms in enumerate(dues_ms):
        table.add(Due(due_ms, at, 0))
    assert len(table.take(5_000, 9)) == 4
    table.settled()
    assert table.position == 4, "reading again"
    for at in range(4, 4 + count):
        table.add(Due(dues_ms[at], at, 0))
    assert come_after(table.mark(5_000), dues_ms, 6_000, most=4) >= set(range(4, 10))


@pytest.mark.parametrize("count", [0, 1, 5])
def test_mark_when_it_is_made_in_the_middle_of_reading_again_then_a_restart_reads_the_rest(
    count: int,
) -> None:
    """Nothing of the rest is held, and still it waits."""
    dues_ms = [100 + at for at in range(10)]
    table = table_of(*dues_ms, most=4)
    assert len(table.take(103, 9)) == 4
    table.settled()
    for at in range(4, 4 + count):
        table.add(Due(dues_ms[at], at, 0))
    mark = table.mark(103)
    assert mark.first <= 4
    assert come_after(mark, dues_ms, 500, most=4) == set(range(4, 10))


def test_recall_when_the_timer_has_another_time_then_it_is_not_its() -> None:
    """A message that was sent once more, for later, keeps its key."""
    table = TimerTable(10, TimerMark(), 0)
    table.add(Due(WALL_MS, 0, 0), recalls="T+U")
    assert table.is_recalled("T+U", WALL_MS)
    assert not table.is_recalled("T+U", WALL_MS + 1_000)
    assert not table.is_recalled("T+V", WALL_MS)


def told_by(mark: TimerMark, come: set[int], dues_ms: list[int]) -> set[int]:
    """Of what has come, what a mark says of it: all else comes once more."""
    point = (mark.read_ms + 1, mark.same_ms_to)
    return {
        at for at in come
        if at < mark.first
        or (at < mark.read_to and (dues_ms[at], at) < point and at not in mark.late)
    }  # fmt: skip


@given(seed=st.integers(0, 1 << 32))
def test_counts_of_topics_when_timers_are_left_out_and_read_again_then_each_counts_once(
    seed: int,
) -> None:
    """Whatever a table may hold, and wherever the one before it ended: what was read and has not come.

    Where late timers filled a table, it read again from before its mark's point, and what the mark
    said to be delivered came once more.
    """
    dice = random.Random(seed)
    times, most = dice.choice((2, 10, 100)), dice.randint(2, 6)
    dues_ms = [dice.randint(1, times) for _ in range(dice.randint(1, 30))]
    topics = [dice.choice(("A", "B", "")) for _ in dues_ms]
    table, come, now_ms = TimerTable(most, TimerMark(), 0), set[int](), 0
    for _ in range(60):
        for _ in range(dice.randint(0, 8)):
            if (at := table.position) < len(dues_ms):
                table.add(Due(dues_ms[at], at, 0, topics[at]), "" if topics[at] else f"key{at}")
        now_ms += dice.randint(0, times // 2)
        found = [one.queue_offset for one in table.take(now_ms, dice.randint(1, 4))]
        assert come.isdisjoint(found), "it came already"
        come.update(found)
        table.settled()
        if dice.random() < 0.1:
            mark = table.mark(now_ms)
            come = told_by(mark, come, dues_ms)
            table = TimerTable(most, mark, mark.first)
            while table.position < len(dues_ms):
                at = table.position
                table.add(Due(dues_ms[at], at, 0, topics[at]), "" if topics[at] else f"key{at}")
        read_to = table._counted_to
        waits = [topic for at, topic in enumerate(topics[:read_to]) if at not in come and topic]
        assert table.waiting == Counter(waits)


@given(seed=st.integers(0, 1 << 32))
def test_timers_when_a_table_ends_in_the_middle_of_reading_then_none_is_lost_or_comes_twice(
    seed: int,
) -> None:
    """Late ones of the mark before may not have been read when others of the same time have come."""
    dice = random.Random(seed)
    times, most = dice.choice((2, 10, 100)), dice.randint(2, 6)
    dues_ms = [dice.randint(1, times) for _ in range(dice.randint(1, 30))]
    table, come, now_ms = TimerTable(most, TimerMark(), 0), set[int](), 0

    def turn(reads: int, takes: int) -> None:
        for _ in range(reads):
            if (at := table.position) < len(dues_ms):
                table.add(Due(dues_ms[at], at, 0))
        found = [one.queue_offset for one in table.take(now_ms, takes)]
        assert come.isdisjoint(found), "it came already"
        come.update(found)
        table.settled()

    for _ in range(40):
        now_ms += dice.randint(0, times // 2)
        turn(dice.randint(0, 8), dice.randint(1, 4))
        if dice.random() < 0.2:
            mark = table.mark(now_ms)
            come = told_by(mark, come, dues_ms)
            table = TimerTable(most, mark, mark.first)
    now_ms += times
    for _ in range(20 * len(dues_ms) + 20):
        turn(50, 50)
    assert come == set(range(len(dues_ms)))
