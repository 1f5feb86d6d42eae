"""Any story in which broker sets are lost, given up by force, and come back; and commands die in it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rmqha.statictopic.known import PlanRefused, is_stale, is_unfinished
from rmqha.statictopic.plan import Change, grow, remap, retell
from tests.statictopic.model import ModelCluster

pytestmark = pytest.mark.slow

NAMES = "abc"
Act = tuple[Any, ...]
ACTS = st.one_of(
    st.tuples(st.just("lose"), st.sampled_from(NAMES)),
    st.tuples(st.just("back")),
    st.tuples(
        st.just("change"),
        st.dictionaries(st.integers(0, 1), st.sampled_from(NAMES)),
        st.booleans(),
        st.none() | st.integers(0, 5),
    ),
)


class LostStory:
    """Two queues; one set at most is away at a time, and every command may use force.

    Messages are sent between all acts but where a set has come back and nobody has told it yet what
    it missed: it leads what it led, as another one does by now.
    """

    def __init__(self) -> None:
        self.cluster = ModelCluster(NAMES)
        self.now_ms = 10_000
        self.cluster.run(grow(self.cluster.known(), 2, ["a", "b"], self.now_ms))
        self.is_back = False

    def play(self, acts: list[Act]) -> None:
        """Play it, take back whoever is away, and see that everything holds."""
        for act in acts:
            self._send()
            self.now_ms += 5_000
            self._act(*act)
        self._act("back")
        self.now_ms += 5_000
        if is_stale(self.cluster.known()):
            assert self.cluster.run(retell(self.cluster.known(), self.now_ms, force=True))
        self.is_back = False
        self._send()
        self.cluster.assert_settled()
        self.cluster.assert_offsets()
        self.cluster.assert_consumed()

    def _send(self) -> None:
        for logical in range(2) if not self.is_back else ():
            self.cluster.send(logical)

    def _act(self, kind: str, *words: Any) -> None:
        cluster = self.cluster
        if kind == "lose":
            cluster.away = cluster.away or {*words}
        elif kind == "back":
            self.is_back = self.is_back or bool(cluster.away)
            cluster.away = set()
        else:
            moves, force, crash_after = words
            try:
                is_done = cluster.run(self._change(moves, force=force), crash_after)
            except PlanRefused:
                return
            self.is_back = self.is_back and not (is_done and not cluster.away)

    def _change(self, moves: dict[int, str], *, force: bool) -> Change:
        known = self.cluster.known()
        if is_unfinished(known):
            return retell(known, self.now_ms, force=force)
        present = {logical: name for logical, name in moves.items() if name in known.brokers}
        return remap(known, present, self.now_ms, force=force)


@settings(max_examples=400)
@example(
    acts=[
        ("lose", "a"), ("change", {0: "c"}, True, None), ("change", {0: "b"}, False, None),
        ("back",), ("change", {}, False, 1), ("change", {1: "a"}, False, None),
    ]
)  # fmt: skip
@given(acts=st.lists(ACTS, max_size=12))
def test_story_when_sets_are_lost_and_come_back_then_every_message_is_found_where_it_was(
    acts: list[Act],
) -> None:
    """Whoever gave a set up too early, or was killed while taking it back, has lost nothing."""
    LostStory().play(acts)
