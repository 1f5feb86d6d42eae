"""Records that are read before they are taken, and what they say once they are committed."""

from __future__ import annotations

import pytest

from rmqha.base.errors import StoreCorrupted
from rmqha.base.ids import BrokerId
from rmqha.controller.metadata import proposals as proposals_module
from rmqha.controller.metadata.events import BrokerIdTaken, Said, from_entry, to_proposal
from rmqha.controller.metadata.proposals import READ_MAX, Proposals


def event(number: int) -> BrokerIdTaken:
    return BrokerIdTaken("c", f"set-{number}", "h:1", BrokerId(1), "h:1;1")


def record(number: int) -> bytes:
    """What another leader proposes."""
    return to_proposal(2, number, event(number))


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Every record that is read from now on."""
    seen: list[bytes] = []

    def reading(one: bytes) -> Said:
        seen.append(one)
        return from_entry(one)

    monkeypatch.setattr(proposals_module, "from_entry", reading)
    return seen


def test_record_when_it_was_checked_then_it_is_not_read_again(read: list[bytes]) -> None:
    """Reading is the larger part of what an entry costs a follower."""
    proposals = Proposals()
    for number in range(9):
        proposals.check(record(number))
    for number in range(9):
        assert proposals.committed(record(number)) == (None, event(number))
    assert read == [record(number) for number in range(9)]
    # What says the same again, in a later entry, is another record of which nothing is kept.
    assert proposals.committed(record(3)) == (None, event(3))
    assert read[9:] == [record(3)]


def test_records_when_more_are_checked_than_may_be_kept_then_memory_ends_and_all_are_read(
    read: list[bytes],
) -> None:
    """A leader whose entries are never committed would fill its followers' memory."""
    proposals = Proposals()
    most = 0
    for number in range(2 * READ_MAX + 5):
        proposals.check(record(number))
        most = max(most, len(proposals._read))
    assert most == READ_MAX
    del read[:]
    for number in (0, READ_MAX, 2 * READ_MAX - 1, 2 * READ_MAX, 2 * READ_MAX + 4):
        assert proposals.committed(record(number)) == (None, event(number))
    assert read == [record(number) for number in (0, READ_MAX, 2 * READ_MAX - 1)]


def test_record_when_it_cannot_be_read_then_nothing_of_it_is_kept() -> None:
    """It would be applied as what it is not."""
    proposals = Proposals()
    with pytest.raises(StoreCorrupted):
        proposals.check(b"\xc1")
    with pytest.raises(StoreCorrupted):
        proposals.committed(b"\xc1")
