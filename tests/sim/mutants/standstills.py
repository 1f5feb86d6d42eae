"""Bugs by which a leader goes on that can do nothing any more."""

from __future__ import annotations

import pytest

from rmqha.controller.raft import append, reads
from rmqha.controller.raft.core import RaftCore
from rmqha.controller.raft.node import Node
from tests.sim.mutants.mutant import Mutant

RULE = "nothing is committed although a majority could"


def reads_put_the_heartbeat_off(patch: pytest.MonkeyPatch) -> None:
    """Where reads come all along nobody ever judges who answers, or whether a successor took over."""
    honest = append.ask_all

    def pushing(node: Node, now_ms: int) -> None:
        node.next_heartbeat_ms = now_ms + node.settings.heartbeat_ms
        honest(node, now_ms)

    patch.setattr(append, "ask_all", pushing)


def deaf_leaders_stay(patch: pytest.MonkeyPatch) -> None:
    """A leader judges by the newest round that nobody has answered, not by the oldest."""
    honest = reads.open_round

    def forgetting(node: Node, now_ms: int) -> None:
        honest(node, now_ms)
        while len(node.round_started_ms) > 1:
            node.round_started_ms.popleft()

    patch.setattr(reads, "open_round", forgetting)


def full_leaders_stay(patch: pytest.MonkeyPatch) -> None:
    """A leader without space hands over to nobody."""
    patch.setattr(RaftCore, "_hand_over_if_useless", lambda self, now_ms: None)


MUTANTS = (
    Mutant(reads_put_the_heartbeat_off, RULE, 41),
    Mutant(deaf_leaders_stay, RULE, 41),
    Mutant(full_leaders_stay, RULE, 142),
)
