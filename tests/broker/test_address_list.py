"""Which servers a broker takes to be behind a name, and what it tells of that."""

from __future__ import annotations

from rmqha.base.machine import Note
from rmqha.broker.naming.address_list import (
    ADDRESSES_MAX,
    REASON_CHARACTERS_MAX,
    AddressList,
    listed_in,
)

A, B, C, D = (f"10.0.0.{number}:9876" for number in range(1, 5))
NAME, PERIOD_MS = "namesrv:9876", 120_000


def listed(*addresses: str) -> AddressList:
    """A list that has been looked up."""
    one = AddressList("namesrvAddr", NAME, PERIOD_MS)
    one.found(addresses)
    return one


def told(notes: list[Note]) -> tuple[str, str, dict[str, object]]:
    """The only note."""
    (note,) = notes
    return note.event, note.level, dict(note.facts)


def test_list_when_found_then_it_is_sorted_without_doubles_and_told_once() -> None:
    """Resolvers give the same addresses in another order each time."""
    one = AddressList("namesrvAddr", NAME, PERIOD_MS)
    assert told(one.found([C, A, C, B])) == (
        "addresses_found", "info",
        {"key": "namesrvAddr", "name": NAME, "addresses": (A, B, C), "gone": ()},
    )  # fmt: skip
    assert one.found([B, C, A]) == []
    assert (one.addresses, one.pause_ms) == ((A, B, C), PERIOD_MS)


def test_list_when_a_server_comes_and_one_goes_then_both_are_told() -> None:
    """The new list counts as a whole: who is gone is not waited for."""
    one = listed(A, B)
    event, _, facts = told(one.found([B, C]))
    assert (event, facts["addresses"], facts["gone"]) == ("addresses_found", (B, C), (A,))


def test_list_when_nothing_is_found_then_the_one_of_before_stays_and_it_is_told_once() -> None:
    """#6873: servers do not go with their resolver. And nobody reads a line every ten seconds."""
    one = listed(A)
    assert told(one.failed("no such name")) == (
        "addresses_not_found", "warning",
        {"key": "namesrvAddr", "name": NAME, "reason": "no such name", "kept": (A,)},
    )  # fmt: skip
    assert one.failed("no such name") == []
    assert told(one.found([]))[2]["reason"] == "it has no address"
    assert one.addresses == (A,)
    assert told(one.found([A]))[:2] == ("addresses_found", "info"), "its end is told as well"
    assert one.found([A]) == []
    assert told(one.failed("no such name"))[0] == "addresses_not_found", "again, after a success"


def test_list_when_one_of_the_addresses_is_none_then_nothing_of_it_counts() -> None:
    """An address server's page of an error may have semicolons, too."""
    one = listed(A)
    event, _, facts = told(one.found([B, "<html>"]))
    assert (event, one.addresses) == ("addresses_not_found", (A,))
    assert "'<html>' is not host:port" in str(facts["reason"])
    facts = told(one.found(["x" * 100_000]))[2]
    assert len(str(facts["reason"])) == REASON_CHARACTERS_MAX


def test_list_when_it_is_too_long_then_the_same_first_ones_count_and_it_is_told() -> None:
    """A name of anything: each address costs a task and a connection."""
    many = [f"10.0.1.{number:03}:9876" for number in range(ADDRESSES_MAX + 5)]
    one = AddressList("namesrvAddr", NAME, PERIOD_MS)
    _, level, facts = told(one.found(many[::-1]))
    assert (level, facts["left_out"]) == ("warning", 5)
    assert one.addresses == tuple(many[:ADDRESSES_MAX])


def test_pause_when_lookups_fail_then_it_grows_to_ten_seconds_and_ends_with_a_success() -> None:
    """Whoever starts before its resolver does is not kept for two minutes."""
    one, pauses = listed(A), []
    for _ in range(20):
        one.failed("no such name")
        pauses.append(one.pause_ms)
    assert pauses[:5] == [1_000, 2_000, 4_000, 8_000, 10_000]
    assert pauses[-1] == 10_000
    # So many that the doubled pause would be no number any more.
    one._failures = 1 << 62
    assert one.pause_ms == 10_000
    one.found([A])
    assert one.pause_ms == PERIOD_MS
    quick = AddressList("namesrvAddr", NAME, 50)
    quick.failed("no such name")
    assert quick.pause_ms == 50, "never later than after a success"


def test_list_when_somebody_counts_a_majority_then_it_has_no_fewer_until_others_are_there() -> None:
    """One pod of three is ready: its word alone is no majority of the group."""
    one = listed(A, B, C)
    one.found([B], may_shrink=False)
    assert one.addresses == (A, B, C)
    one.found([B, D], may_shrink=False)
    assert one.addresses == (A, B, D)
    one.found([B, C, D], may_shrink=False)
    assert one.addresses == (B, C, D)
    one.found([D], may_shrink=True)
    assert one.addresses == (D,)


def test_body_when_read_then_the_first_line_counts() -> None:
    """As in Java."""
    assert listed_in(f"\r\n {A}; {B};\r\nsecond;line\n") == [A, B]
    assert listed_in(" \n ") == []
