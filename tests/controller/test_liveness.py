"""The live table: who is alive, to the millisecond, whatever connections do."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rmqha.base.ids import BrokerId
from rmqha.controller.live_room import LiveRoom
from rmqha.controller.liveness import DEFAULT_PRIORITY, Liveness
from rmqha.remoting.heartbeat import Heartbeat

ONE, TWO = BrokerId(1), BrokerId(2)


def beat(live: Liveness, now_ms: int, connection: int, broker_id: int = 1, **more: object) -> None:
    fields = {"clusterName": "c", "brokerName": "a", "brokerId": broker_id, **more}
    texts = {key: str(value) for key, value in fields.items()}
    live.heartbeat(now_ms, connection, Heartbeat.of(texts))


def alive(live: Liveness, now_ms: int, broker_id: BrokerId = ONE) -> bool:
    return live.alive(now_ms, "c", "a", broker_id)


def test_alive_when_the_timeout_passes_then_dead_and_reported_once() -> None:
    """Java: alive while last + timeout >= now."""
    live = Liveness()
    beat(live, 0, 1, heartbeatTimeoutMills=3000)
    assert live.next_deadline_ms() == 3001
    assert alive(live, 3000)
    assert not alive(live, 3001)
    assert live.expire(3000) == []
    assert live.expire(3001) == [("c", "a", ONE)]
    assert live.expire(9999) == []
    assert live.next_deadline_ms() is None


def test_close_when_it_is_a_stale_connection_s_then_ignored() -> None:
    """#11045: a half-open connection's late close must not evict a healthy master."""
    live = Liveness()
    beat(live, 0, 1)
    beat(live, 10, 2)
    live.connection_closed(20, 1)
    assert alive(live, 5_000)
    assert live.next_deadline_ms() == 10_011


def test_close_when_nobody_reconnects_then_dead_after_the_grace() -> None:
    """kill -9 is noticed in 100 ms, not in 10 s."""
    live = Liveness(close_grace_ms=100)
    beat(live, 0, 1)
    live.connection_closed(50, 1)
    assert alive(live, 149)
    assert not alive(live, 150)
    assert live.next_deadline_ms() == 150
    assert live.expire(150) == [("c", "a", ONE)]


def test_close_when_heard_on_another_connection_in_the_grace_then_alive() -> None:
    """A 3 s call timeout closes the connection of a healthy broker."""
    live = Liveness()
    beat(live, 0, 1)
    live.connection_closed(50, 1)
    live.heard(60, 2, "c", "a", ONE)
    assert alive(live, 5_000)
    assert live.next_deadline_ms() == 10_061
    live.connection_closed(70, 2)
    assert not alive(live, 170)


def test_close_when_a_newer_connection_already_asked_then_it_takes_over() -> None:
    """The old connection's close may come after the first request on the new one."""
    live = Liveness()
    beat(live, 0, 1)
    live.heard(10, 2, "c", "a", ONE)
    live.connection_closed(20, 1)
    assert alive(live, 5_000)
    live.connection_closed(5_000, 2)
    assert not alive(live, 5_100)


def test_heartbeat_when_it_comes_from_an_older_connection_then_not_bound_to_it() -> None:
    """Frames buffered in a connection that is about to close."""
    live = Liveness()
    beat(live, 0, 2)
    beat(live, 10, 1)
    live.connection_closed(20, 1)
    assert alive(live, 5_000)


def test_close_when_a_connection_is_shared_then_all_its_brokers_get_the_grace() -> None:
    """A BrokerContainer's brokers share one connection; Java evicts only one of them."""
    live = Liveness()
    beat(live, 0, 1, broker_id=1)
    beat(live, 0, 1, broker_id=2)
    live.connection_closed(10, 1)
    assert live.expire(110) == [("c", "a", ONE), ("c", "a", TWO)]


def test_heard_on_when_a_set_asks_then_only_its_brokers_of_that_connection_live_longer() -> None:
    """#10812: 1004 names no broker, but the connection does."""
    live = Liveness()
    beat(live, 0, 1, broker_id=1)
    beat(live, 0, 2, broker_id=2)
    live.heard_on(9_000, 1, "a")
    live.heard_on(9_000, 2, "another")
    live.heard_on(9_000, 77, "a")
    assert live.expire(11_000) == [("c", "a", TWO)]


def test_positions_when_older_then_kept_and_when_reconnected_then_replaced() -> None:
    """Java's monotonic rule, but a restarted broker is ranked by what it has now."""
    live = Liveness()
    beat(live, 0, 1, epoch=2, maxOffset=50, confirmOffset=40)
    beat(live, 1, 1, epoch=2, maxOffset=49, confirmOffset=1)
    said = live.info("c", "a", ONE)
    assert said is not None
    assert (said.epoch, said.max_offset, said.confirm_offset) == (2, 50, 40)
    beat(live, 2, 2, epoch=1, maxOffset=9)
    assert (said.epoch, said.max_offset, said.confirm_offset) == (1, 9, -1)


def test_heartbeat_when_the_timeout_shrinks_then_the_deadline_comes_forward() -> None:
    """A lazily corrected heap must not sleep past an earlier deadline."""
    live = Liveness()
    beat(live, 0, 1)
    beat(live, 1, 1, heartbeatTimeoutMills=10)
    assert live.next_deadline_ms() == 12
    beat(live, 2, 1, heartbeatTimeoutMills="nonsense")
    assert live.next_deadline_ms() == 10_003


def test_table_when_full_then_the_longest_dead_makes_room() -> None:
    """Everything is bounded; living brokers are never thrown out."""
    live = Liveness(brokers_max=2)
    beat(live, 0, 1, broker_id=1)
    beat(live, 0, 2, broker_id=2)
    beat(live, 0, 3, broker_id=3)
    assert live.info("c", "a", BrokerId(3)) is None
    live.connection_closed(1, 1)
    live.expire(200)
    beat(live, 200, 3, broker_id=3)
    assert alive(live, 200, BrokerId(3))
    assert live.info("c", "a", ONE) is None


STEPS = st.lists(
    st.tuples(st.sampled_from("bhco"), st.integers(1, 4), st.integers(1, 5), st.integers(0, 40)),
    max_size=60,
)


@given(steps=STEPS)
def test_expire_when_anything_happens_then_exactly_at_next_deadline(
    steps: list[tuple[str, int, int, int]],
) -> None:
    """A timer driven by ``next_deadline_ms`` misses no death, and alive() agrees with it."""
    live = Liveness(close_grace_ms=10)
    now_ms = 0
    reported: set[BrokerId] = set()
    for what, broker_id, connection, pause_ms in steps:
        end_ms = now_ms + pause_ms
        due_ms = live.next_deadline_ms()
        while due_ms is not None and due_ms <= end_ms:
            gone = live.expire(due_ms)
            assert gone, "a deadline with nothing to report"
            assert live.expire(due_ms) == []
            for _, _, dead in gone:
                assert alive(live, due_ms - 1, dead)
                assert not alive(live, due_ms, dead)
                assert dead not in reported
                reported.add(dead)
            due_ms = live.next_deadline_ms()
        now_ms = end_ms
        if what == "b":
            beat(live, now_ms, connection, broker_id, heartbeatTimeoutMills=20 + connection)
        elif what == "h":
            live.heard(now_ms, connection, "c", "a", BrokerId(broker_id))
        elif what == "o":
            live.heard_on(now_ms, connection, "a")
        else:
            live.connection_closed(now_ms, connection)
        reported = {one for one in reported if not alive(live, now_ms, one)}
    living = {broker_id for _, _, broker_id in live.living(now_ms)}
    assert living == {BrokerId(n) for n in range(1, 5) if alive(live, now_ms, BrokerId(n))}
    assert len(live._heap) <= 2 * 4 + 65


REGISTERED = frozenset(("c", "a", BrokerId(number)) for number in range(1, 100))


def guarded(brokers_max: int, share: int = 100) -> Liveness:
    """Brokers 1 to 99 of set a are registered, everybody else is a stranger."""
    return Liveness(
        brokers_max=brokers_max, strangers_per_connection=share,
        is_registered=lambda identity: identity in REGISTERED,
    )  # fmt: skip


def test_registered_broker_when_strangers_fill_the_table_then_it_finds_room() -> None:
    """Forged heartbeats kept every new broker out for as long as their connection was open."""
    live = guarded(brokers_max=50)
    for number in range(50):
        beat(live, 0, 7, broker_id=1000 + number)
    for number in range(1, 81):
        beat(live, 1, 100 + number, broker_id=number)
    assert all(alive(live, 1, BrokerId(number)) for number in range(1, 81))
    assert len(live.living(1)) == 80
    # All that are left are registered: a stranger displaces none of them, alive or dead.
    live.connection_closed(2, 101)
    live.expire(200)
    beat(live, 200, 8, broker_id=2000)
    assert live.info("c", "a", BrokerId(2000)) is None
    assert live.info("c", "a", ONE) is not None


def test_strangers_when_the_table_is_full_then_dead_ones_make_room_first() -> None:
    """In the order of dying; living strangers stay as long as any other entry can go."""
    live = guarded(brokers_max=3)
    beat(live, 0, 1, broker_id=1001)
    beat(live, 0, 2, broker_id=1002)
    beat(live, 0, 3, broker_id=1)
    live.connection_closed(1, 2)
    live.connection_closed(1, 3)
    live.expire(500)
    beat(live, 500, 4, broker_id=2)
    assert live.info("c", "a", BrokerId(1002)) is None
    assert live.info("c", "a", BrokerId(1001)) is not None
    beat(live, 500, 5, broker_id=3)
    assert live.info("c", "a", BrokerId(1001)) is None
    assert live.info("c", "a", ONE) is not None


def test_strangers_when_one_connection_brings_many_then_it_has_a_share() -> None:
    """Filling the table takes as many connections as the server bounds."""
    live = guarded(brokers_max=1_000, share=10)
    for number in range(30):
        beat(live, 0, 1, broker_id=1000 + number)
    assert len(live.living(0)) == 10
    for number in range(30):
        beat(live, 0, 2, broker_id=1000 + number)
    # A newer connection takes over what it names, but no more than its own share either.
    assert len(live.living(0)) == 10
    assert len(live._by_connection[2]) == 10
    for number in range(30):
        beat(live, 0, 1, broker_id=2000 + number)
    assert len(live.living(0)) == 20
    for number in range(1, 40):
        beat(live, 0, 2, broker_id=number)
    assert len(live.living(0)) == 59


def test_stranger_when_it_is_registered_then_it_is_one_no_more() -> None:
    """And the other way round, when an operator removes it."""
    known: set[tuple[str, str, BrokerId]] = set()
    live = Liveness(brokers_max=2, is_registered=lambda identity: identity in known)
    beat(live, 0, 1, broker_id=1)
    beat(live, 0, 2, broker_id=2)
    known |= {("c", "a", ONE), ("c", "a", BrokerId(3))}
    live.registration_changed(("c", "a", ONE))
    beat(live, 1, 3, broker_id=3)
    assert live.info("c", "a", TWO) is None
    assert alive(live, 1)
    known.clear()
    live.registrations_replaced()
    known.add(("c", "a", BrokerId(4)))
    beat(live, 2, 4, broker_id=4)
    assert live.info("c", "a", ONE) is None


def test_timeout_when_it_is_longer_than_is_believed_then_cut() -> None:
    """A day of silence is no sign of life, whoever claims so."""
    live = Liveness(timeout_ms_max=60_000)
    beat(live, 0, 1, heartbeatTimeoutMills=86_400_000)
    assert live.next_deadline_ms() == 60_001


def test_stranger_when_its_name_is_too_long_then_it_is_not_kept() -> None:
    """No broker of such a name can be registered."""
    live = Liveness()
    beat(live, 0, 1, brokerName="x" * 256)
    beat(live, 0, 1, clusterName="x" * 256)
    assert live.living(0) == []


def test_heard_in_when_brokers_come_and_go_then_the_set_and_its_first_time() -> None:
    """An election must know who else lives in the set, and since when."""
    live = Liveness(brokers_max=2)
    assert live.first_heard_ms("c", "a") is None
    beat(live, 5, 1, broker_id=1, epoch=3)
    beat(live, 9, 2, broker_id=2, epoch=4)
    assert live.first_heard_ms("c", "a") == 5
    assert {one: said.epoch for one, said in live.heard_in("c", "a")} == {ONE: 3, TWO: 4}
    for connection in (1, 2):
        live.connection_closed(10, connection)
    live.expire(500)
    for number in (1, 2):
        beat(live, 500, 3, broker_id=number, brokerName="b")
    assert live.first_heard_ms("c", "a") is None
    assert list(live.heard_in("c", "a")) == []


def test_offsets_of_a_busy_broker_only_rise_until_it_comes_back() -> None:
    """Requests that overtake each other must not lower a rank; a restart must be able to."""
    live = Liveness()
    story = [
        # now_ms, connection, epoch, offset; what is believed then
        (0, 1, 2, 100, (2, 100, 90)),
        (10, 1, 2, 200, (2, 200, 190)),
        (20, 1, 2, 150, (2, 200, 190)),
        (30, 1, 3, 120, (3, 120, 110)),
        (40, 1, 2, 999, (3, 120, 110)),
        (50, 2, 3, 50, (3, 50, 40)),
        (60, 1, 3, 40, (3, 50, 40)),
        (70, 1, 3, 60, (3, 60, 50)),
        (3000, 2, 1, 10, (1, 10, 0)),
    ]
    for now_ms, connection, epoch, offset, believed in story:
        beat(live, now_ms, connection, epoch=epoch, maxOffset=offset, confirmOffset=offset - 10,
             heartbeatTimeoutMills=1000)  # fmt: skip
        one = live.info("c", "a", ONE)
        assert one is not None
        assert (one.epoch, one.max_offset, one.confirm_offset) == believed
        assert one.connection == max(connection, one.connection or 0)


def test_timeout_and_priority_are_those_of_the_last_heartbeat() -> None:
    """An operator who changes them must not have to restart the controllers."""
    live = Liveness(timeout_ms_max=5000)
    for said, shown in (
        ({"heartbeatTimeoutMills": 3000, "electionPriority": 1}, (3000, 1)),
        ({"heartbeatTimeoutMills": 9000}, (5000, DEFAULT_PRIORITY)),
        ({"heartbeatTimeoutMills": 0, "electionPriority": 7}, (5000, 7)),
    ):
        beat(live, 0, 1, **said)
        one = live.info("c", "a", ONE)
        assert one is not None
        assert (one.timeout_ms, one.priority) == shown


def test_watcher_when_it_ends_after_it_spoke_for_a_broker_then_the_broker_is_bound_as_before() -> (
    None
):
    """The process beside a stalled broker has connections of its own: their end says nothing of it."""
    live = Liveness(close_grace_ms=100)
    beat(live, 0, 1)
    beat(live, 2_000, 2, stalledMs=2_000)
    live.connection_closed(2_500, 2)
    assert alive(live, 5_000)
    live.connection_closed(6_000, 1)
    assert not alive(live, 6_100)


def test_watcher_when_only_it_was_heard_then_the_broker_s_own_connection_takes_over() -> None:
    """A controller that has just begun to lead hears the watcher first."""
    live = Liveness(close_grace_ms=100)
    beat(live, 0, 9, stalledMs=2_000)
    assert not live.is_closed("c", "a", ONE)
    beat(live, 1_000, 3)
    live.connection_closed(1_500, 9)
    assert alive(live, 5_000)
    live.connection_closed(6_000, 3)
    assert not alive(live, 6_100)


def test_broker_when_its_disk_is_full_then_its_own_connection_is_bound_and_what_it_has_is_seen() -> (
    None
):
    """It came back with less, over a new connection, and the old one was never seen to close. Taken for
    somebody else's word it was not held back from an election, and dead when the old one timed out."""
    live = Liveness(close_grace_ms=100)
    beat(live, 0, 1, epoch=1, maxOffset=1_000, confirmOffset=1_000)
    beat(live, 2_000, 2, epoch=1, maxOffset=400, confirmOffset=400, noRoomMs=1)
    one = live.info("c", "a", ONE)
    assert one is not None
    assert (one.max_offset, one.lacks_to, one.stalled_ms) == (400, 1_000, 1)
    live.connection_closed(3_000, 1)
    assert alive(live, 3_200)
    beat(live, 4_000, 2, epoch=1, maxOffset=400, confirmOffset=400)
    assert one.stalled_ms == 0


def test_relayed_when_the_connection_was_closed_here_then_it_is_no_sign_of_life() -> None:
    """The broker ended, or knows that it is given up: what a peer heard was before that."""
    live = Liveness(close_grace_ms=100)
    beat(live, 0, 1)
    live.connection_closed(50, 1)
    live.relayed(60, "c", "a", ONE, 0)
    assert live.expire(150) == [("c", "a", ONE)]


def test_strangers_when_a_connection_has_its_share_then_it_takes_over_nobody_else_s() -> None:
    """One that names all that others brought would carry them all, and their close would be its own."""
    live = guarded(brokers_max=1_000, share=10)
    for number in range(10):
        beat(live, 0, 1, broker_id=1000 + number)
        beat(live, 0, 2, broker_id=2000 + number)
    for number in range(10):
        beat(live, 0, 2, broker_id=1000 + number)
    assert [len(live._by_connection[one]) for one in (1, 2)] == [10, 10]


def test_spared_broker_when_it_was_told_dead_then_it_makes_room_for_nobody() -> None:
    live = guarded(brokers_max=1)
    beat(live, 0, 1, broker_id=1)
    assert live.expire(20_000) == [("c", "a", ONE)]
    live.spare(20_000, "c", "a", ONE)
    beat(live, 20_001, 2, broker_id=2)
    assert alive(live, 20_001)


def test_forgotten_broker_when_it_had_asked_on_another_connection_then_that_carries_nobody() -> (
    None
):
    """It would count as one of that connection's strangers for as long as it is open."""
    live = guarded(brokers_max=1)
    beat(live, 0, 1, broker_id=1)
    live.heard(1, 2, "c", "a", ONE)
    live.expire(20_000)
    beat(live, 20_000, 3, broker_id=2)
    assert live.info("c", "a", ONE) is None
    assert [*live._by_connection] == [3]


def test_watcher_when_its_connection_ends_then_the_next_one_is_the_broker_s_own() -> None:
    """A heartbeat that lay in an older connection pulled the entry back, and its close ended it."""
    live = Liveness(close_grace_ms=100)
    beat(live, 0, 9, stalledMs=2_000)
    live.heard(1_000, 12, "c", "a", ONE)
    live.connection_closed(1_500, 9)
    beat(live, 1_600, 5)
    live.connection_closed(1_700, 5)
    assert alive(live, 5_000)


def test_dead_stranger_when_it_is_registered_then_it_is_a_dead_broker() -> None:
    """And the other way round: whoever comes next takes its place in either case."""
    room = LiveRoom()
    room.added(("c", "a", ONE), registered=False)
    room.died(("c", "a", ONE))
    room.turned(("c", "a", ONE), registered=True)
    assert room.victim(registered=False) is None
    assert room.victim(registered=True) == ("c", "a", ONE)
    room.turned(("c", "a", ONE), registered=False)
    assert room.victim(registered=False) == ("c", "a", ONE)


def test_forgotten_broker_when_its_deadline_passes_then_nobody_hears_of_its_death() -> None:
    """A living stranger made room; its end in the heap is void, and is no death of anybody."""
    live = guarded(brokers_max=1)
    beat(live, 0, 1, broker_id=1001, heartbeatTimeoutMills=1_000)
    beat(live, 0, 2, broker_id=1, heartbeatTimeoutMills=100_000)
    assert live.next_deadline_ms() == 100_001
    assert live.expire(5_000) == []
    # Whoever is told dead is known as such: the room of the table would be counted wrongly.
    beat(live, 6_000, 3, broker_id=2, heartbeatTimeoutMills=100_000)
    assert live.living(6_000) == [("c", "a", ONE), ("c", "a", TWO)]
