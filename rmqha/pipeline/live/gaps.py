"""Places of a queue that the answers to pulls pass over without a word. Pure.

A Java broker goes on with the next message that it still has when the one at a queue's place has gone
with its log file: its answer begins behind a hole, has one in its middle, or ends behind one.

Source: DefaultMessageStore.getMessage, RocketMQ 5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


class Answer(NamedTuple):
    """A pull's answer: the offset that was asked for, and the one where to go on."""

    first: int
    following: int


class Gap(NamedTuple):
    """Offsets from ``first`` on, before ``stop``, that no message was brought of."""

    first: int
    stop: int


def gaps(
    answers: Sequence[Answer], offsets: Ints, of_answer: Ints, count_of: Callable[[int], int]
) -> list[Gap]:
    """The gaps in answers, in order.

    Args:
        offsets: of the records, in order.
        of_answer: the number of each one's answer.
        count_of: how many offsets the record of a row takes; asked only of those before a gap.
    """
    numbers = np.arange(len(answers))
    firsts = np.searchsorted(of_answer, numbers, side="left").tolist()
    stops = np.searchsorted(of_answer, numbers, side="right").tolist()
    found = []
    # Of each record that another offset than the next one follows: its row, and that offset.
    followed = []
    for answer, first, stop in zip(answers, firsts, stops, strict=True):
        if first == stop:
            found.append(Gap(*answer))
            continue
        found.append(Gap(answer.first, int(offsets[first])))
        followed.append((stop - 1, answer.following))
    jumps = (offsets[1:] > offsets[:-1] + 1) & (of_answer[1:] == of_answer[:-1])
    followed += [(row, int(offsets[row + 1])) for row in np.flatnonzero(jumps).tolist()]
    for row, following in followed:
        if following > offsets[row] + 1:
            found.append(Gap(int(offsets[row]) + count_of(row), following))
    return sorted(one for one in found if one.first < one.stop)
