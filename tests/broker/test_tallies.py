"""What was counted by name in a minute, an hour and a day, beside a walk through every count."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.broker.admin.stats_data import stats_data
from rmqha.broker.common.refusal import Refusal
from rmqha.broker.common.statistics import GROUP_GET, TOPIC_PUT, Statistics
from rmqha.broker.common.tallies import DAY, HOUR, MINUTE, PART, SAMPLE_MS, Samples, Window

HOUR_SAMPLES, DAY_SAMPLES = 360, 8_640


def sampled(statistics: Statistics, samples: int, since: int = 0) -> int:
    """Let so many samples pass; the next one's number."""
    for number in range(since, since + samples):
        list(statistics.sample(number * SAMPLE_MS, 0))
    return since + samples


def test_windows_when_a_topic_is_new_then_they_say_what_came_within_one_sample() -> None:
    """A chart must not stay empty for the first hour, as Java's hour and day do."""
    statistics = Statistics(10)
    at = sampled(statistics, 3)
    statistics.put("T", 2, 700)
    statistics.put("T", 1, 200)
    name = (TOPIC_PUT, "T", "")
    assert statistics.window(name, MINUTE, "messages") == Window(0, 0.0, 0.0)
    sampled(statistics, 1, at)
    assert statistics.window(name, MINUTE, "messages") == Window(3, 0.3, 1.5)
    assert statistics.window(name, HOUR, "messages") == Window(3, 0.1, 1.5)
    assert statistics.window(name, DAY, "size") == Window(900, 30.0, 450.0)


def test_windows_when_time_passes_then_each_forgets_what_it_no_longer_spans() -> None:
    """Messages of two hours ago are in no rate of a minute, nor of an hour; of a day they are."""
    statistics = Statistics(10)
    at = sampled(statistics, 1)
    statistics.got("T", "G", 32, 1_000)
    at = sampled(statistics, 2 * HOUR_SAMPLES, at)
    statistics.got("T", "G", 1, 10)
    sampled(statistics, 1, at)
    name = (GROUP_GET, "T", "G")
    found = [statistics.window(name, window, "messages") for window in (MINUTE, HOUR, DAY)]
    assert [one.sum if one else None for one in found] == [1, 1, 33]
    assert statistics.group_get_tps("T", "G") == pytest.approx(1 / 60, abs=0.005)


def test_name_when_nothing_comes_for_a_day_then_it_is_forgotten_and_not_before() -> None:
    """The table is bounded by what lives; until a day is over its sum is somebody's chart."""
    statistics = Statistics(10)
    at = sampled(statistics, 1)
    statistics.put("T", 1, 1)
    at = sampled(statistics, DAY_SAMPLES - HOUR_SAMPLES, at)
    assert statistics.written() == {"T": 1}
    sampled(statistics, 2 * HOUR_SAMPLES, at)
    assert statistics.written() == {}


def test_names_when_the_table_is_full_then_who_was_silent_for_a_minute_makes_room() -> None:
    """statisticsNamesMax bounds the table, and a burst of topics must not fill it for a day."""
    statistics = Statistics(2)
    statistics.put("A", 1, 1)
    at = sampled(statistics, 8)
    statistics.put("B", 1, 1)
    statistics.put("C", 1, 1)
    assert statistics.written() == {"A": 1, "B": 1}
    at = sampled(statistics, 1, at)
    assert statistics.written() == {"B": 1}
    statistics.put("C", 1, 1)
    assert statistics.written() == {"B": 1, "C": 1}
    assert statistics.totals.put == 4


def test_topic_when_deleted_then_its_names_begin_anew() -> None:
    """A topic that is made once more has nothing to do with the one before."""
    statistics = Statistics(10)
    statistics.put("T", 5, 5)
    statistics.put("U", 5, 5)
    statistics.got("T", "G", 5, 5)
    statistics.forget("T")
    assert (statistics.written(), statistics.read()) == ({"U": 5}, {})


def test_sample_when_there_are_very_many_names_then_others_have_turns_in_between() -> None:
    """Of 10,000 topics that are written to one took a quarter of a second, every ten seconds."""
    count = 4 * PART
    statistics = Statistics(count + 1)
    for number in range(count):
        statistics.put(f"T{number}", 1, 1)

    def tps(number: int) -> float:
        return statistics.topic_put_tps(f"T{number}")

    sample = statistics.sample(0, 0)
    next(sample)
    assert (tps(0), tps(count - 1)) == (0.1, 0.0)
    statistics.forget("T1")
    statistics.forget(f"T{count - 1}")
    statistics.put("new", 3, 3)
    assert len(list(sample)) == 3 + 3, "of the sample, and of the look for who was silent for a day"
    assert (tps(0), tps(count - 2), tps(count - 1)) == (0.1, 0.1, 0.0)
    assert statistics.topic_put_tps("new") == 0.0
    sampled(statistics, 1, 1)
    assert statistics.topic_put_tps("new") == 0.3
    assert len(statistics.written()) == count - 1


def test_names_when_very_many_fall_silent_then_they_go_in_parts() -> None:
    """One that comes back in the meantime stays, one that is deleted is not missed."""
    count = 2 * PART
    statistics = Statistics(count)
    for number in range(count):
        statistics.put(f"T{number}", 1, 1)
    at = sampled(statistics, 6)
    sample = statistics.sample(at * SAMPLE_MS, 0)
    parts = 0
    for _ in sample:
        parts += 1
        if len(statistics.written()) == count - PART:
            statistics.put(f"T{count - 1}", 1, 1)
            statistics.forget(f"T{count - 2}")
    assert parts == 4, "of the sample, and of those that go"
    assert statistics.written() == {f"T{count - 1}": 2}


@given(st.lists(st.lists(st.integers(1, 9), max_size=3), min_size=1, max_size=900))
def test_windows_when_counted_at_random_then_they_are_what_a_walk_finds(
    counts: list[list[int]],
) -> None:
    """Marks that are left out where nothing changed change no sum."""
    samples = Samples()
    tally, born = samples.tally(), -1
    ticks: list[list[int]] = [[], [], []]
    for number, part in enumerate(counts):
        for count in part:
            tally.messages += count
            tally.calls += 1
        list(samples.take(number * SAMPLE_MS, [tally]))
        for window, every in ((MINUTE, 1), (HOUR, 60), (DAY, 360)):
            if not number % every:
                ticks[window].append(number)
    for window, kept in ((MINUTE, 7), (HOUR, 7), (DAY, 25)):
        begin = [born, *ticks[window]][-kept:][0]
        want = sum(sum(part) for part in counts[begin + 1 :])
        found = samples.look(tally, window, "messages")
        calls = sum(len(part) for part in counts[begin + 1 :])
        assert found.sum == want
        assert found.average == (want / calls if calls else 0.0)
        seconds = (len(counts) - 1 - begin) * SAMPLE_MS / 1000
        assert found.rate == pytest.approx(want / seconds if seconds else 0.0)


@pytest.mark.parametrize(
    ("name", "key", "total"),
    [
        ("TOPIC_PUT_NUMS", "T", 2), ("TOPIC_PUT_SIZE", "T", 500), ("GROUP_GET_NUMS", "T@G", 3),
        ("GROUP_GET_SIZE", "T@G", 700), ("SNDBCK_PUT_NUMS", "T@G", 1), ("BROKER_PUT_NUMS", "c", 2),
        ("BROKER_GET_NUMS", "c", 3),
    ],
)  # fmt: skip
def test_stats_when_asked_by_javas_names_then_each_is_what_was_counted(
    name: str, key: str, total: int
) -> None:
    """The exporter reads these seven; a mix-up of two of them is a wrong chart."""
    statistics = Statistics(10)
    statistics.put("T", 2, 500)
    statistics.got("T", "G", 3, 700)
    statistics.sent_back("T", "G", 100)
    list(statistics.sample(0, 0))
    found = stats_data(statistics, name, key, "c")
    assert not isinstance(found, Refusal)
    assert list(found) == ["statsDay", "statsHour", "statsMinute"]
    assert [one["sum"] for one in found.values()] == [total] * 3
    assert all(one["tps"] == total / 10 and one["avgpt"] == total for one in found.values())


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("TOPIC_PUT_NUMS", "U"), ("GROUP_GET_NUMS", "T"), ("BROKER_PUT_NUMS", "other"), ("", ""),
        ("TOPIC_PUT_LATENCY", "0@T"), ("BROKER_PUT_NUMS", ""),
    ],
)  # fmt: skip
def test_stats_when_nothing_was_counted_then_javas_refusal(name: str, key: str) -> None:
    """An invented 0 would be a measurement that nobody made."""
    statistics = Statistics(10)
    statistics.put("T", 2, 500)
    refusal = Refusal(1, f"The stats <{name}> <{key}> not exist")
    assert stats_data(statistics, name, key, "c") == refusal
