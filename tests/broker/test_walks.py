"""How many files a request passes, and that none of its ways leads where it has nothing to do."""

from __future__ import annotations

import pytest

from tests.bench.bench_walks import WALKS

CLIMBS_MAX = {
    "a message, the quick way": 7,
    "a message with a flag": 7,
    "a message without a key": 8,
    "half of a transaction": 11,
    "a delayed message": 10,
    "a timer": 12,
    "a pull": 34,
    "a heartbeat": 4,
    "a 1001 through its broker": 38,
}


@pytest.mark.costly
@pytest.mark.few
@pytest.mark.parametrize("name", WALKS)
def test_walk_when_a_request_is_followed_then_it_climbs_no_more_than_is_known(name: str) -> None:
    """Each climb is a file more to open for who wants to know what a request does."""
    walk = WALKS[name]()
    assert 0 < walk.climbs <= CLIMBS_MAX[name], walk.stays


@pytest.mark.costly
def test_1001_when_followed_through_its_broker_then_it_turns_back_nowhere() -> None:
    """From replication down through membership to the controllers, and the same way back.

    It once went up to the broker's top and down again, to find who speaks to controllers.
    """
    walk = WALKS["a 1001 through its broker"]()
    rooms = {"/".join(one.split("/")[:2]) for one in walk.stays if one.startswith("broker/")}
    assert rooms == {"broker/membership"}
    others = {one.split("/")[0] for one in walk.stays if not one.startswith("broker/")}
    assert others == {"ha", "remoting", "runtime", "base"}
    entered = [
        one for one, before in zip(walk.stays[1:], walk.stays, strict=False)
        if one.startswith("ha/") and before.startswith("broker/")
    ]  # fmt: skip
    assert entered == ["ha/aio/service.py"], "replication is told once, with the answer"
