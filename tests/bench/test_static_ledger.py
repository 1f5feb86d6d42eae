"""The ledger of the remap bench finds each fault that is put into what was read."""

from __future__ import annotations

from tests.bench.static_ledger import UNDECIDED, Ledger, Verdict, judge

COUNT = 20


def ledger() -> Ledger:
    """Two queues; 5 of the second was sent twice."""
    told = [(number, number) for number in range(COUNT)]
    return Ledger({0: list(told), 1: list(told)}, {1: {5}})


def whole() -> dict[int, list[tuple[int, int]]]:
    """Everything, where it was told to be."""
    return {queue: [(number, number) for number in range(COUNT)] for queue in (0, 1)}


def test_everything_when_it_is_there_then_clean() -> None:
    """A remap leaves a gap of offsets; that is nothing."""
    book, found = ledger(), whole()
    book.told[0] = [(n, n if n < 10 else n + 10_000) for n in range(COUNT)]
    found[0] = [(offset, number) for number, offset in book.told[0]]
    assert judge(book, found) == Verdict()
    assert judge(book, found).is_clean


def test_message_when_one_is_dropped_then_lost() -> None:
    """Wherever it was: first, amid, last, or the whole queue."""
    for at in (0, 7, COUNT - 1):
        found = whole()
        del found[0][at]
        verdict = judge(ledger(), found)
        assert verdict.lost == 1, at
        assert not verdict.is_clean
        assert f"{at}, acknowledged at {at}" in verdict.examples[0]
    assert judge(ledger(), {0: whole()[0]}).lost == COUNT


def test_messages_when_two_are_swapped_then_out_of_order_and_misplaced() -> None:
    """Both stand where the other one was told to be."""
    found = whole()
    found[0][3], found[0][4] = (3, 4), (4, 3)
    verdict = judge(ledger(), found)
    assert (verdict.out_of_order, verdict.misplaced, verdict.lost) == (1, 2, 0)


def test_message_when_it_is_early_or_late_then_it_alone_is_out_of_order() -> None:
    """And not all those that it has passed."""
    for old, new in ((3, 15), (15, 3)):
        found = whole()
        numbers = [number for _, number in found[0]]
        numbers.insert(new, numbers.pop(old))
        found[0] = list(enumerate(numbers))
        assert judge(ledger(), found).out_of_order == 1, (old, new)


def test_offset_when_it_goes_back_then_sent_back() -> None:
    """A reader that was shown something again has not got it in another order."""
    found = whole()
    found[0][8:8] = found[0][5:8]
    verdict = judge(ledger(), found)
    assert (verdict.sent_back, verdict.doubled, verdict.out_of_order) == (1, 3, 0)
    assert not verdict.is_clean


def test_message_when_it_comes_again_then_counted_by_what_was_known() -> None:
    """After an unknown outcome that is to be expected, and else a fault."""
    found = whole()
    found[1].append((COUNT, 5))
    assert judge(ledger(), found) == Verdict(repeated=1, examples=judge(ledger(), found).examples)
    assert judge(ledger(), found).is_clean
    found = whole()
    found[1].append((COUNT, 6))
    assert judge(ledger(), found).doubled == 1
    assert not judge(ledger(), found).is_clean


def test_offset_when_java_told_none_then_anywhere_will_do() -> None:
    """During a remap Java's brokers answer -1."""
    book, found = ledger(), whole()
    book.told[0][9] = (9, UNDECIDED)
    assert judge(book, found).is_clean
    del found[0][9]
    assert judge(book, found).lost == 1
