"""What a node says of replicas that were here a moment ago: it knows no members, only who is there."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rmqha.web.document import BrokerSetView, NodeView, ReplicaView, StatusDocument
from rmqha.web.history import History
from rmqha.web.presence import WINDOW_MS
from rmqha.web.verdict import judge

NAME_SERVER = NodeView("name server", "here:1", "0", 0)
BROKER = NodeView("broker", "h:1", "0", 0, role="master")
REPLICAS = (
    ReplicaView(0, "h:1", "master", alive=True), ReplicaView(2, "h:2", "slave", alive=True),
    ReplicaView(3, "h:3", "slave", alive=True),
)  # fmt: skip
TWO_LEFT = "Of 3 replicas of a that were here within the last ten minutes 2 are left."
ONE_LEFT = "Of 3 replicas of a that were here within the last ten minutes 1 is left."


class Page:
    """The page of one node, over time."""

    def __init__(self, node: NodeView = NAME_SERVER) -> None:
        self.node = node
        self.time_ms = 1_000_000
        self.history = History()

    def says(self, after_ms: int = 1_000, **sets: int | tuple[ReplicaView, ...]) -> tuple[str, ...]:
        """The level, and what is said of sets with the first so many replicas, a while later."""
        self.time_ms += after_ms
        views = (
            BrokerSetView("C", name, REPLICAS[:found] if isinstance(found, int) else found)
            for name, found in sets.items()
        )
        document = StatusDocument(self.time_ms, self.node, broker_sets=tuple(views))
        self.history.add(document)
        verdict = judge(document, self.history.since, self.history.before)
        return (verdict.level, *(one.text for one in verdict.sentences))


@pytest.mark.parametrize("node", [NAME_SERVER, BROKER], ids=["name server", "broker"])
def test_verdict_when_replicas_have_left_then_it_says_how_many_there_were(node: NodeView) -> None:
    """It said that all was well: all that it saw were alive."""
    page = Page(node)
    level, well = page.says(a=3)
    assert (level, well) == (
        "good",
        "All is well as far as is known here: 3 replicas of a are alive.",
    )
    assert page.says(a=2) == ("warn", TWO_LEFT)
    begun_ms = page.time_ms
    assert page.says(a=1) == ("warn", ONE_LEFT)
    assert set(page.history.since.values()) == {begun_ms}
    assert page.says(a=3) == (level, well)
    assert page.says(a=2) == ("warn", TWO_LEFT)
    assert page.says(WINDOW_MS - 1_000, a=2) == ("warn", TWO_LEFT)
    # Nobody knows now whether a third is still wanted: it is said no more than what is seen.
    later = page.says(1, a=2)
    assert later == ("good", "All is well as far as is known here: 2 replicas of a are alive.")


def test_verdict_when_fewer_and_fewer_are_left_then_each_count_is_remembered_for_its_time() -> None:
    """Three ten minutes ago, two a minute ago, and one now."""
    page = Page()
    page.says(a=3)
    page.says(WINDOW_MS - 60_000, a=2)
    page.says(50_000, a=1)
    assert page.says(20_000, a=1) == (
        "warn", "Of 2 replicas of a that were here within the last ten minutes 1 is left.",
    )  # fmt: skip


def test_verdict_when_all_have_left_then_it_does_not_say_that_none_has_come_yet() -> None:
    """A name server in front of a dead cluster was green."""
    page = Page()
    assert page.says() == ("good", "No broker has registered here yet.")
    page.says(a=3, b=1)
    gone = "is not registered here any more: within the last ten minutes there were"
    assert page.says(b=1) == ("bad", f"a {gone} 3 replicas of it.")
    assert page.says() == ("bad", f"a {gone} 3 replicas of it.", f"b {gone} 1 replica of it.")
    assert page.says(WINDOW_MS + 2_000) == ("warn", "No broker is registered here any more.")
    assert page.says(a=1)[0] == "good"


def test_verdict_when_a_broker_is_no_master_then_it_does_not_miss_whom_it_cannot_see() -> None:
    """A slave sees its master only, and a master that became one saw three a moment ago."""
    page = Page(BROKER)
    page.says(a=3)
    page.node = replace(BROKER, role="slave")
    assert page.says(a=2)[0] == "good"


def test_verdict_when_a_controller_tells_of_a_set_then_presence_adds_nothing() -> None:
    """It knows the members, and who of them is down; and sets are taken away on purpose there."""
    page = Page(replace(NAME_SERVER, kind="controller"))
    page.says(a=3)
    assert page.says(a=2) == ("good", "All is well: all 2 replicas of a are alive.")
    assert page.says() == ("good", "No broker is registered here.")
    page = Page()
    view = BrokerSetView("C", "a", REPLICAS, sync_state_set=(1, 2, 3))
    for found in (view, replace(view, replicas=REPLICAS[:2])):
        document = StatusDocument(page.time_ms, NAME_SERVER, broker_sets=(found,))
        page.history.add(document)
    assert not page.history.before.most


def test_counts_when_they_stay_the_same_then_one_is_kept() -> None:
    """A document a second of 10,000 sets, for ten minutes."""
    page = Page()
    for number in range(100):
        page.says(a=3 - number // 60)
    (counts,) = page.history._presence._counts.values()
    assert [count for count, _ in counts] == [3, 2]
