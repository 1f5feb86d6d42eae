"""Deliveries: once of each reign, as they were sent, in time; and pops for as long as was said."""

from __future__ import annotations

import pytest

from rmqha.base.errors import InvariantBroken
from rmqha.verify.deliveries import Delivered, check_once, check_properties
from rmqha.verify.pop_times import PopTimes
from rmqha.verify.services import DELAYED, Promise, ServicePromises


@pytest.mark.parametrize("start", [51, 101, 200])
def test_once_when_somebody_took_over_since_a_message_was_sent_then_silent(start: int) -> None:
    """The log ended behind its first record, behind its first copy, or just before the second."""
    found = [Delivered(b"a", 200, 50), Delivered(b"b", 150, 150), Delivered(b"a", 100, 50)]
    assert check_once(found, [0, start]) == 2


@pytest.mark.parametrize("start", [50, 201])
def test_once_when_nobody_took_over_since_a_message_was_sent_then_broken(start: int) -> None:
    """All are of the reign that starts with its first record, or of the one before."""
    found = [Delivered(b"a", 100, 50), Delivered(b"a", 200, 50)]
    with pytest.raises(InvariantBroken, match="delivered twice in one reign"):
        check_once(found, [0, start])


def test_properties_when_brokers_have_added_some_then_silent() -> None:
    check_properties(b"a", {"KEYS": "k"}, {"KEYS": "k", "POP_CK": "1"})


@pytest.mark.parametrize("found", [{}, {"KEYS": "other"}])
def test_properties_when_one_is_gone_or_another_one_then_broken(found: dict[str, str]) -> None:
    with pytest.raises(InvariantBroken, match="with other properties"):
        check_properties(b"a", {"KEYS": "k"}, found)


def promises() -> ServicePromises:
    """One message that is due at 1000."""
    return ServicePromises(promised={b"a": Promise(DELAYED, 1_000)})


@pytest.mark.parametrize(("found", "peace_ms", "now_ms"), [
    ([b"a"], 0, 9_000), ([], 0, 1_300), ([], 5_000, 5_300),
])  # fmt: skip
def test_late_when_it_is_there_or_its_time_is_not_over_then_silent(
    found: list[bytes], peace_ms: int, now_ms: int
) -> None:
    promises().check_late(found, peace_ms, now_ms, 300)


@pytest.mark.parametrize(("peace_ms", "now_ms"), [(0, 1_301), (5_000, 5_301)])
def test_late_when_it_is_not_there_in_time_then_broken(peace_ms: int, now_ms: int) -> None:
    """It was due, and there was peace, for longer than it may take."""
    with pytest.raises(InvariantBroken, match="a delayed message is late"):
        promises().check_late([], peace_ms, now_ms, 300)


def test_pop_when_its_time_is_over_or_another_reign_begins_then_others_get_it() -> None:
    """What was sent in another reign is not looked at at all."""
    times = PopTimes()
    times.was_sent("r1", b"a")
    assert not times.was_given("r1", b"a", 100, 1_100)
    assert times.was_given("r1", b"a", 1_100, 2_100)
    assert not times.was_given("r2", b"a", 1_200, 2_200)
    assert not times.was_given("r2", b"a", 1_300, 2_300)


def test_pop_when_its_time_is_not_over_then_broken() -> None:
    times = PopTimes()
    times.was_sent("r1", b"a")
    times.was_given("r1", b"a", 100, 1_100)
    with pytest.raises(InvariantBroken, match="before its invisible time is over"):
        times.was_given("r1", b"a", 1_099, 2_099)


@pytest.mark.parametrize(("visible_ms", "pop_ms"), [(300, 299), (6_000, 5_999)])
def test_changed_time_when_it_is_known_then_it_counts(visible_ms: int, pop_ms: int) -> None:
    """The shorter as well as the longer one."""
    times = PopTimes()
    times.was_sent("r1", b"a")
    times.was_given("r1", b"a", 100, 1_100)
    times.is_changing("r1", b"a")
    assert times.was_changed("r1", b"a", visible_ms)
    with pytest.raises(InvariantBroken, match="before its invisible time is over"):
        times.was_given("r1", b"a", pop_ms, pop_ms + 1_000)


def test_changed_time_when_nobody_said_so_then_nothing_is_known_of_it() -> None:
    """There may be two check points from then on, and each brings it back."""
    times = PopTimes()
    times.was_sent("r1", b"a")
    times.was_given("r1", b"a", 100, 1_100)
    times.is_changing("r1", b"a")
    assert not times.was_given("r1", b"a", 400, 1_400)
    times.is_changing("r1", b"b")
    assert not times.was_changed("r1", b"b", 5_000)
