"""Announcements of very many elections: each costs what it costs alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rmqha.base.ids import BrokerId, MasterEpoch
from rmqha.controller.liveness import Liveness
from rmqha.controller.metadata import announce
from rmqha.controller.metadata.announce import Announcer, SlaveDelays
from rmqha.controller.metadata.apply import apply
from rmqha.controller.metadata.events import BrokerIdTaken, MasterElected
from rmqha.controller.metadata.messages import RouteFollowed, RouteUnknown, RouteUpdated
from rmqha.controller.metadata.state import MetadataState

NAMES = tuple(f"s{number}" for number in range(4))
MASTER = BrokerId(1)


def announcer_of(names: tuple[str, ...]) -> tuple[Announcer, MetadataState]:
    state = MetadataState()
    for name in names:
        apply(state, BrokerIdTaken("c", name, "h:1", MASTER, "x"))
    return Announcer(state, Liveness()), state


def elect(
    one: Announcer, state: MetadataState, name: str, now_ms: int, delays: SlaveDelays
) -> None:
    epoch = MasterEpoch(state.sets[name].master_epoch + 1)
    apply(state, MasterElected(name, MASTER, epoch, "broker", "asked", False))
    one.elected(now_ms, state.sets[name], delays)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["elect", "open", "followed", "updated", "unknown", "heard", "due", "clear"]
        ),
        st.sampled_from(NAMES),
        st.integers(0, 400),
    ),
    max_size=60,
)


@given(STEPS)
def test_deadline_when_asked_then_it_is_the_least_of_all(steps: list[tuple[str, str, int]]) -> None:
    """By the delays of elections, what is seen of routes, and heartbeats."""
    one, state = announcer_of(NAMES)
    now_ms = 1_000
    for what, name, pause_ms in steps:
        now_ms += pause_ms
        epoch = state.sets[name].master_epoch
        if what in ("elect", "open"):
            open_ms = 1_000 if what == "open" else 0
            elect(one, state, name, now_ms, SlaveDelays(300 + 5 * open_ms, open_ms, 8_000))
        elif what == "followed":
            one.route_news(now_ms, RouteFollowed(name, epoch))
        elif what == "updated":
            one.route_news(now_ms, RouteUpdated(name, epoch))
        elif what == "unknown":
            one.route_news(now_ms, RouteUnknown(name, epoch))
        elif what == "heard":
            one.master_heard(now_ms, name, MASTER, epoch)
        elif what == "due":
            one.due(now_ms)
            assert all(pending.due_ms > now_ms for pending in one._pending.values())
        else:
            one.clear()
        least = min((pending.due_ms for pending in one._pending.values()), default=None)
        assert one.next_deadline_ms() == least


class Counted(dict[str, object]):
    """Counts the looks at all."""

    looks = 0

    def values(self):  # type: ignore[no-untyped-def]  # as dict's
        Counted.looks += 1
        return super().values()

    items = values  # type: ignore[assignment]  # the same


def test_deadline_when_very_many_wait_then_nobody_looks_at_all_of_them() -> None:
    """It is asked for behind each chunk of requests: a millisecond at 10,000 elections."""
    names = tuple(f"s{number}" for number in range(500))
    one, state = announcer_of(names)
    one._pending = Counted()  # type: ignore[assignment]
    for at, name in enumerate(names):
        elect(one, state, name, 1_000 + at, SlaveDelays(300))
        assert one.next_deadline_ms() == 1_300
    one.due(1_300)
    assert one.next_deadline_ms() == 1_301
    assert Counted.looks == 0


def test_announcements_when_very_many_are_due_then_in_parts() -> None:
    """Each tells all slaves of a set; others are heard between two parts."""
    count = announce.SETS_A_PART + 7
    names = tuple(f"s{number}" for number in range(count))
    one, state = announcer_of(names)
    for name in names:
        elect(one, state, name, 1_000, SlaveDelays(300))
    one.due(2_000)
    assert sum(map(one.waits_for, names)) == 7
    assert one.next_deadline_ms() == 1_300
    one.due(2_000)
    assert one.next_deadline_ms() is None


def test_heap_when_a_set_is_elected_again_and_again_then_it_does_not_grow() -> None:
    one, state = announcer_of(NAMES)
    for number in range(1_000):
        elect(one, state, NAMES[0], number, SlaveDelays(300))
        one.route_news(number, RouteFollowed(NAMES[0], state.sets[NAMES[0]].master_epoch))
    assert len(one._heap) < 100
