"""Reading all of it again: what is whole, what was given out damaged, what was not given out."""

from __future__ import annotations

from typing import Any, cast

import pytest

from rmqha.base.errors import RmqhaError
from rmqha.chaos.aio.reread import PAUSE_MS, REFUSED_MAX, TRIES, read_again
from rmqha.testing.ledger import body_of, number_of
from rmqha.testing.real.wire import MESSAGE_MAGIC_V1, Stored, parse_messages

ENDS = (6, 0, 2, 0)


UNREADABLE, CUT = b"\x00 another topic's bytes", b"\x00 another length"


class Broker:
    """Two queues of bodies; ``None`` is refused, for ``patience`` pulls or for ever.

    A run with ``UNREADABLE`` cannot be read at all, one with ``CUT`` only up to it.
    """

    def __init__(self, bodies: dict[int, list[bytes | None]], patience: int | None = None) -> None:
        self.bodies, self.patience, self.slept_ms = bodies, patience, 0.0
        self.begins = 0

    async def first_offset(self, _: str, __: str, queue: int) -> int:
        assert self.bodies[queue], "of an empty queue nobody asks"
        return self.begins

    async def pull(
        self, _: str, topic: str, queue: int, at: int, count: int
    ) -> tuple[list[Stored], int]:
        if self.bodies[queue][at] is None and self.patience != 0:
            if self.patience is not None:
                self.patience -= 1
            raise RmqhaError("a record that is damaged")
        run = self.bodies[queue][at : at + count]
        if None in run[1:]:
            run = run[: run.index(None, 1)]
        if UNREADABLE in run:
            raise ValueError("no text")
        told = run[: run.index(CUT)] if CUT in run else run
        found = [Stored(queue, n, 0, topic, one or body_of(n)) for n, one in enumerate(told, at)]
        return found, at + len(run)

    async def sleep(self, delay_ms: float) -> None:
        self.slept_ms += delay_ms


async def again(broker: Broker) -> Any:
    return await read_again(cast(Any, broker), cast(Any, broker), "b:1", "t", ENDS)


def bodies(*numbers: int) -> list[bytes | None]:
    return [body_of(number) for number in numbers]


async def test_topic_when_all_is_as_it_was_sent_then_every_number_is_there() -> None:
    found = await again(Broker({0: bodies(0, 1, 2, 3, 4, 5), 2: bodies(6, 7)}))
    assert (found.whole, found.damaged, found.refused) == (set(range(8)), 0, [])


async def test_bodies_when_a_bit_of_them_differs_then_they_are_damaged_wherever_it_is() -> None:
    flipped = bytearray(body_of(1))
    flipped[-1] ^= 1
    unreadable = b"\x7f" + body_of(2)
    other = body_of(7).replace(b"7:", b"5:")  # the number's own digit: it passes for another
    found = await again(
        Broker(
            {0: [*bodies(0), bytes(flipped), unreadable, *bodies(3, 4, 5)], 2: [body_of(6), other]}
        )
    )
    assert found.damaged == 2
    assert found.whole == {0, 3, 4, 5, 6}, "what passes for another is missed"


@pytest.mark.parametrize("broken", [UNREADABLE, CUT])
async def test_run_when_one_of_it_cannot_be_read_then_that_one_is_damaged_and_no_other(
    broken: bytes,
) -> None:
    """The broker gave it out; those before and behind it in the same answer are whole."""
    numbers = [*range(40), *range(41, 100)]
    sent = [*bodies(*numbers[:40]), broken, *bodies(*numbers[40:])]
    sent[70:70] = [broken, broken]
    broker = Broker({0: sent})
    found = await read_again(cast(Any, broker), cast(Any, broker), "b:1", "t", (len(sent),))
    assert (found.whole, found.damaged, found.refused) == (set(numbers), 3, [])
    assert broker.slept_ms == 0


@pytest.mark.timeout(10)
async def test_broker_when_it_sends_its_reader_back_then_reading_ends() -> None:
    """A queue that lost its end names an earlier place to go on; that is no progress."""

    class Short(Broker):
        async def pull(
            self, address: str, topic: str, queue: int, at: int, count: int
        ) -> tuple[list[Stored], int]:
            if at >= 4:
                return [], 2
            return await super().pull(address, topic, queue, at, min(count, 4 - at))

    found = await again(Short({0: bodies(0, 1, 2, 3), 2: bodies(6, 7)}))
    assert found.whole == {0, 1, 2, 3, 6, 7}
    assert [one.partition(":")[0] for one in found.refused] == [
        "t queue 0 offset 4", "t queue 0 offset 5",
    ]  # fmt: skip


async def test_oldest_when_the_broker_deleted_them_then_they_are_told_apart() -> None:
    """A disk of Java's that filled up looked like a power cut that lost a third."""
    broker = Broker({0: bodies(0, 1, 2, 3, 4, 5), 2: bodies(6, 7)})
    broker.begins = 2
    found = await again(broker)
    assert (found.whole, found.deleted, found.refused) == ({2, 3, 4, 5}, 4, [])


async def test_place_when_it_is_refused_for_a_while_then_it_is_waited_for() -> None:
    broker = Broker(
        {0: [*bodies(0), None, *bodies(2, 3, 4, 5)], 2: bodies(6, 7)}, patience=TRIES - 1
    )
    found = await again(broker)
    assert (found.whole, found.refused) == (set(range(8)), [])
    assert broker.slept_ms == (TRIES - 1) * PAUSE_MS


async def test_place_when_it_is_refused_for_ever_then_it_is_named_and_passed() -> None:
    found = await again(Broker({0: [*bodies(0), None, *bodies(2, 3, 4, 5)], 2: bodies(6, 7)}))
    assert found.whole == {0, 2, 3, 4, 5, 6, 7}
    assert found.refused == ["t queue 0 offset 1: a record that is damaged"]


@pytest.mark.timeout(10)
@pytest.mark.parametrize("size", [0, -1, 1 << 20])
def test_answer_when_a_flipped_length_fits_nothing_then_reading_it_ends(size: int) -> None:
    """A length of 0 was read again and again, for ever."""
    magic = (MESSAGE_MAGIC_V1 & 0xFFFFFFFF).to_bytes(4)
    assert parse_messages(size.to_bytes(4, signed=True) + magic + bytes(200)) == []


def test_number_when_the_body_has_none_then_it_is_unknown() -> None:
    assert number_of(body_of(12)) == 12
    assert [number_of(body) for body in (b"", b":x", b"1x:", b"-1:")] == [None] * 4


async def test_topic_when_nothing_of_it_is_given_out_then_reading_ends() -> None:
    nothing: list[bytes | None] = [None] * 1000
    broker = Broker({0: nothing})
    found = await read_again(cast(Any, broker), cast(Any, broker), "b:1", "t", (1000,))
    assert len(found.refused) == REFUSED_MAX
    assert broker.slept_ms == REFUSED_MAX * (TRIES - 1) * PAUSE_MS
