"""When a controller says that it is ready: the next one of its group may be restarted then."""

from __future__ import annotations

import pytest

from rmqha.controller.readiness import not_ready


@pytest.mark.parametrize(
    ("leader_id", "may_vote", "part"),
    [
        (None, True, "no leader"),
        (None, False, "no leader"),
        ("n1", False, "no vote yet"),
        ("n1", True, None),
    ],
)
def test_node_when_it_knows_a_leader_and_may_vote_then_it_is_ready(
    leader_id: str | None, may_vote: bool, part: str | None
) -> None:
    """One without a vote is not: to stop another one leaves three without a majority."""
    missing = not_ready(leader_id=leader_id, may_vote=may_vote)
    assert missing is None if part is None else part in (missing or "")


@pytest.mark.parametrize(
    ("is_removed", "votes", "part"),
    [(True, False, "removed from the group"), (False, False, "joins the group")],
)
def test_node_when_the_group_does_not_count_it_then_it_is_not_ready(
    is_removed: bool, votes: bool, part: str
) -> None:
    """To stop another one would leave fewer than a majority, or nothing."""
    missing = not_ready(leader_id="n1", may_vote=True, is_removed=is_removed, votes=votes)
    assert part in (missing or "")
