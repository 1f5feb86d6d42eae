"""Seeds of bits that flip in commit logs; and bugs put in on purpose, which they must find."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from rmqha.base.errors import RmqhaError
from rmqha.broker.sync import scrub
from rmqha.broker.sync.aio.scrubbing import Scrub
from rmqha.sim.rot_swarm import ROT_WANTED, run_rot_seed
from rmqha.store.aio.message_store import MessageStore
from rmqha.store.aio.pulling import Pulled, Pulling

SEEDS = 24
SEEDS_PER_TEST = 8
SEEDS_MAX = 12

Patch = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.sim
@pytest.mark.slow
@pytest.mark.parametrize("first", range(1, SEEDS, SEEDS_PER_TEST))
def test_bits_that_flip_are_never_served_and_all_are_mended(first: int) -> None:
    """A broken property raises with the seed and the end of its trace."""
    happened: Counter[str] = Counter()
    for seed in range(first, first + SEEDS_PER_TEST):
        happened.update(run_rot_seed(seed).counts)
    assert [what for what in ROT_WANTED if not happened[what]] == []
    assert happened["bit mended"] > 4 * SEEDS_PER_TEST
    assert happened["record served"] > 100 * SEEDS_PER_TEST


@pytest.mark.slow
def test_rot_when_a_seed_is_played_twice_then_it_is_the_same_story() -> None:
    """A seed that found something must find it again."""
    assert run_rot_seed(3).digest == run_rot_seed(3).digest


def pulls_unchecked(patch: pytest.MonkeyPatch) -> None:
    """What was found is shown as it is, as Java does."""

    def trusting(self: Pulling, found: Pulled) -> Pulled:
        return found

    patch.setattr(Pulling, "whole", trusting)


def scrub_compares_nothing(patch: pytest.MonkeyPatch) -> None:
    """The CRC alone is believed."""

    async def idle(self: Scrub, begin: int, end: int) -> None:
        return

    patch.setattr(Scrub, "_compare", idle)


def whole_is_believed(patch: pytest.MonkeyPatch) -> None:
    """Any other replica is right."""
    patch.setattr(
        "rmqha.broker.sync.aio.scrubbing.choose",
        lambda own, copies: next((one for one in copies if one != own), None),
    )


def nothing_is_written(patch: pytest.MonkeyPatch) -> None:
    """A repair is told and not made."""

    async def idle(self: MessageStore, offset: int, record: bytes) -> None:
        return

    patch.setattr(MessageStore, "rewrite", idle)


@pytest.mark.sim
@pytest.mark.slow
@pytest.mark.turns(3)
@pytest.mark.parametrize(
    "bug", [pulls_unchecked, scrub_compares_nothing, whole_is_believed, nothing_is_written]
)
def test_rot_when_a_bug_is_put_in_then_some_seed_finds_it(
    monkeypatch: pytest.MonkeyPatch, bug: Patch
) -> None:
    """Stories that find no bug prove nothing."""
    bug(monkeypatch)
    for seed in range(1, SEEDS_MAX + 1):
        try:
            run_rot_seed(seed)
        except RmqhaError:
            return
    raise AssertionError(f"{SEEDS_MAX} seeds found nothing")


@pytest.mark.parametrize(
    ("own", "copies", "wanted"),
    [
        (None, [], None),
        (None, [b"a"], b"a"),
        (None, [b"a", b"b"], None),
        (None, [b"a", b"b", b"a"], b"a"),
        (b"x", [b"a"], None),
        (b"x", [b"a", b"a"], b"a"),
        (b"x", [b"a", b"a", b"x"], None),
        (b"x", [b"a", b"a", b"a", b"x"], b"a"),
        (b"x", [b"x", b"x"], None),
        (b"x", [b"a", b"b"], None),
    ],
)
def test_choice_when_copies_differ_then_only_a_majority_is_believed(
    own: bytes | None, copies: list[bytes], wanted: bytes | None
) -> None:
    """A repair that guesses destroys the last whole copy."""
    assert scrub.choose(own, copies) == wanted


def test_pace_when_it_reads_then_a_second_brings_as_many_bytes_as_were_asked_for() -> None:
    """A scrub is to be noticed by nobody."""
    pace = scrub.Pace(1_000, 60_000, 0)
    now_ms = 0
    while (begin := pace.next(now_ms, 0, 10_000)) is not None:
        pace.read(now_ms, begin + 500)
        now_ms += pace.wait_ms(now_ms)
    assert now_ms == 10_000
    assert pace.next(59_000, 0, 10_000) is None
    assert pace.next(60_000, 0, 10_000) == 0
    assert pace.passes == 1
    pace.read(60_000, 9_000)
    assert pace.next(61_000, 0, 4_000) == 0
