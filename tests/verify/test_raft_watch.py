"""What is asked of a log at the moment its node is elected."""

from __future__ import annotations

import pytest

from rmqha.base.errors import InvariantBroken
from rmqha.controller.raft.log import RaftLog
from rmqha.controller.raft.messages import Entry
from rmqha.verify.raft import RaftWatch


def watch_with_two_committed() -> RaftWatch:
    """Entry 1 of term 1 and entry 2 of term 2 are committed."""
    watch = RaftWatch()
    watch.leader_elected("n0", 1, 0)
    watch.entry_applied("n0", 1, 1, b"one")
    watch.leader_elected("n1", 2, 1)
    watch.entry_applied("n1", 2, 2, b"two")
    return watch


def test_leader_elected_when_its_log_is_long_but_not_the_committed_one_then_broken() -> None:
    """Votes that compare lengths before terms elect just such a leader."""
    other = RaftLog([Entry(1, 1, b"one"), Entry(2, 1, b"other"), Entry(3, 1, b"more")])
    with pytest.raises(InvariantBroken, match="without all committed entries"):
        watch_with_two_committed().leader_elected("n2", 3, 3, other)


def test_leader_elected_when_it_holds_what_is_committed_then_silent() -> None:
    """Also when that is compacted away."""
    log = RaftLog([Entry(1, 1, b"one"), Entry(2, 2, b"two"), Entry(3, 2, b"more")])
    watch_with_two_committed().leader_elected("n2", 3, 3, log)
    watch_with_two_committed().leader_elected("n2", 3, 5, RaftLog([Entry(5, 2, b"")], 4, 2))
