"""The six truncation examples of RIP-44 between the real RocketMQ and ours, both ways.

``p`` is the replica that returns, ``q`` the master it finds. Offsets of the RIP become the ends of
what was put; ``shared`` is where the logs must join.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmqha.testing.real.processes import tails_on_failure
from tests.interop import required
from tests.interop.ha_pair import Pair, first_difference, follow, put, same
from tests.interop.peers import JAVA, PYTHON, Peer

KB = 1_000
LARGEST = 20 * KB
SAME_BYTES_MAX = 64
"""Two records may begin alike; their times and keys do not."""


@pytest.fixture(params=[(JAVA, PYTHON), (PYTHON, JAVA)], ids=["java-returns", "python-returns"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    """``p`` and ``q``; the end kills them. allAckInSyncStateSet is off: tails grow alone."""
    required.require_classpath()
    made = Pair(tmp_path, request.param, "5.3.3", {"allAckInSyncStateSet": False})
    with tails_on_failure(lambda: [peer.child for peer in made.peers]):
        try:
            yield made
        finally:
            made.end()


def write(peer: Peer, seed: int) -> int:
    """Put a few records; returns the log's end."""
    put(peer, 200 * KB, largest=LARGEST, seed=seed)
    return peer.offsets().max


def both_have_it(master: Peer, slave: Peer) -> int:
    same(master, slave)
    return master.offsets().max


def example_1(p: Peer, q: Peer) -> int:
    """p led and had more than q when q took over."""
    p.start().ask("master 1 1")
    write(p, 1)
    follow(q.start(), p, 1)
    shared = both_have_it(p, q)
    q.kill()
    write(p, 2)
    p.kill()
    q.start().ask("master 2 2")
    write(q, 3)
    return shared


def example_2(p: Peer, q: Peer) -> int:
    """p has less of the epoch than q, which has begun another one since."""
    q.start().ask("master 1 2")
    write(q, 1)
    follow(p.start(), q, 1)
    shared = both_have_it(q, p)
    p.kill()
    write(q, 2)
    q.ask("master 2 2")
    write(q, 3)
    return shared


def example_3(p: Peer, q: Peer) -> int:
    """Both are in the same epoch, q further on: nothing is cut."""
    q.start().ask("master 1 2")
    write(q, 1)
    q.ask("master 2 2")
    write(q, 2)
    follow(p.start(), q, 2)
    shared = both_have_it(q, p)
    p.kill()
    write(q, 3)
    return shared


def example_4(p: Peer, q: Peer) -> int:
    """p had a term of its own that q has never heard of."""
    p.start().ask("master 1 1")
    write(p, 1)
    follow(q.start(), p, 1)
    shared = both_have_it(p, q)
    q.kill()
    write(p, 2)
    p.ask("master 2 1")
    write(p, 3)
    p.kill()
    q.start().ask("master 3 2")
    write(q, 4)
    return shared


def example_5(p: Peer, q: Peer) -> int:
    """The logs part in the second of two shared epochs."""
    p.start().ask("master 1 1")
    write(p, 1)
    p.ask("master 2 1")
    write(p, 2)
    follow(q.start(), p, 2)
    shared = both_have_it(p, q)
    q.kill()
    write(p, 3)
    p.kill()
    q.start().ask("master 3 2")
    write(q, 4)
    return shared


def example_6(p: Peer, q: Peer) -> int:
    """p began an epoch where q's older one goes on: back to the start of p's own."""
    q.start().ask("master 1 2")
    write(q, 1)
    follow(p.start(), q, 1)
    shared = both_have_it(q, p)
    p.kill()
    write(q, 2)
    q.kill()
    p.start().ask("master 2 1")
    write(p, 3)
    p.kill()
    q.start().ask("master 3 2")
    write(q, 4)
    return shared


EXAMPLES = [example_1, example_2, example_3, example_4, example_5, example_6]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.__name__)
def test_a_diverged_tail_is_cut_where_the_rip_says(
    pair: Pair, example: Callable[[Peer, Peer], int]
) -> None:
    """The logs join at the offset of the example, and are equal from there on."""
    p, q = pair.peers
    shared = example(p, q)
    last_epoch = q.offsets().epochs[-1][0]
    p.start()
    before = p.offsets().max
    differs = first_difference(p, q, min(before, q.offsets().max))
    assert shared <= differs <= shared + SAME_BYTES_MAX
    follow(p, q, last_epoch)
    write(q, 9)
    same(q, p)
    if p.side == PYTHON:
        found = re.findall(r'"offset":(\d+),[^\n]*"ha_log_truncated"', p.child.output())
        assert found == ([str(shared)] if before > shared else [])
