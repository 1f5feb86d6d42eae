"""What a master delivers by itself while writes wait for the disk: room is made first, and only then."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from rmqha.broker.common.aio import writer
from rmqha.broker.deferred.aio.deliveries import LOOK_MS
from rmqha.broker.pop.check_points import CheckPoint, Due
from rmqha.ha.events import Role
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.store.aio.room import Stretch
from tests.broker.replicas import NAME, TOPIC, ReplicaCluster, master_of
from tests.broker.test_cold_deliveries import KINDS, SOON, deliver_later, delivered, expected
from tests.broker.test_producer_services import half, send, stored, wall_ms
from tests.broker.test_roomy_sends import hang, run_short, sent

COUNT = 6
DUE_MS = 20_000
"""All kinds are due before."""
PLACES = {36: ("SCHEDULE_TOPIC_XXXX", 2), 37: (TOPIC, 4)}
"""Where messages are then: a topic, and how many of its queues are looked at."""


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[ReplicaCluster]:
    """One replica, which reigns."""
    with ReplicaCluster(seed=17, replicas=1, **(SOON | getattr(request, "param", {}))) as one:
        one.boot_all()
        yield one


def watched_room(cluster: ReplicaCluster) -> list[int]:
    """How far the log had come whenever room was made for somebody."""
    store, made = master_of(cluster).store, []
    make = store.room.make

    async def watching(length: int, *, ahead: int = 0) -> int:
        made.append(store.max_offset)
        return await make(length, ahead=ahead)

    store.room.make = watching  # type: ignore[method-assign]  # to see each
    return made


@pytest.mark.costly
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_services_when_the_disk_stands_still_then_they_wait_and_others_are_served(
    cluster: ReplicaCluster, kind: str
) -> None:
    """Each wrote all that was due in one turn of the loop, and everybody waited for that."""
    deliver_later(cluster, kind, COUNT)
    master, before = master_of(cluster), delivered(cluster, kind)
    made = watched_room(cluster)
    run_short(master)
    hang(cluster, 8_000)
    cluster.until(lambda: made, "room asked for", 7_000)
    cluster.run_for(200)
    assert (delivered(cluster, kind), {*made}) == (before, {master.store.max_offset})
    began_s = cluster.loop.time()
    fields = {"topic": TOPIC, "queueId": "0"}
    found = cluster.ask(master.config.address, RequestCode.GET_MAX_OFFSET, fields)
    assert found.code == ResponseCode.SUCCESS
    assert cluster.loop.time() - began_s < 0.1
    wanted = expected(kind, COUNT)
    cluster.until(lambda: delivered(cluster, kind) >= wanted, "all deliveries", DUE_MS)
    cluster.run_for(3_000)
    if kind != "transactions":  # which are asked about again and again
        assert delivered(cluster, kind) == wanted


@pytest.mark.costly
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_services_when_writes_wait_then_each_writes_no_more_than_there_is_room_for(
    cluster: ReplicaCluster, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "ROOM_BYTES", 1_500)
    deliver_later(cluster, kind, 2 * COUNT)
    made = watched_room(cluster)
    run_short(master_of(cluster))
    wanted = expected(kind, 2 * COUNT)
    before = delivered(cluster, kind)
    hang(cluster, 8_000)
    cluster.until(lambda: delivered(cluster, kind) > before, "the first", DUE_MS)
    began_s = cluster.loop.time()
    cluster.until(lambda: delivered(cluster, kind) >= wanted, "all deliveries", DUE_MS)
    assert (cluster.loop.time() - began_s) * 1000 < LOOK_MS, "what there was no room for is next"
    steps = [after - before for before, after in itertools.pairwise(made)]
    assert len(made) >= 2
    # Pops are written check point by check point: this one holds all messages.
    assert kind == "pops" or max(steps) < 2_500


@pytest.mark.costly
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_services_when_the_reign_ends_while_they_wait_for_room_then_nothing_is_written(
    cluster: ReplicaCluster, kind: str
) -> None:
    """A slave that wrote something of its own would have another log than its master."""
    deliver_later(cluster, kind, COUNT)
    master, made = master_of(cluster), watched_room(cluster)
    run_short(master)
    hang(cluster, 8_000)
    cluster.until(lambda: made, "room asked for", 7_000)
    end = master.store.max_offset
    master.role = Role.SLAVE
    cluster.run_for(10_000)
    assert master.store.writes.oldest_ms == 0, "the disk works again"
    assert master.store.max_offset == end


def test_check_points_when_the_reign_ends_while_they_wait_for_room_then_none_is_done_with(
    cluster: ReplicaCluster,
) -> None:
    """A slave makes no retry topic, and one without such a topic is dropped."""
    master = master_of(cluster)
    due = Due(CheckPoint(TOPIC, "G", 0, 0, 1, 1_000, NAME, (0,)), 0, (0,))
    master.role = Role.SLAVE
    written: list[Due] = []
    found = master.pop.revive._revive_some([due], written, Stretch(master.store.room, 1_000))
    assert (found, written) == ((0, False), [])


@pytest.mark.parametrize("code", [36, 37])
def test_stored_messages_when_written_once_more_on_demand_then_they_stand_in_the_row(
    cluster: ReplicaCluster, code: int
) -> None:
    """A consumer that sends messages back, or a producer that commits, writes as much as one that sends."""
    ends = [half(cluster, number) for number in range(COUNT)]
    master = master_of(cluster)
    run_short(master)
    hang(cluster, 1_000)
    end, answers = master.store.max_offset, list[RemotingCommand]()
    for one in ends:
        back = {"offset": one["commitLogOffset"], "group": "G", "delayLevel": "1"}
        fields = back if code == 36 else {**one, "commitOrRollback": "8"}
        cluster.ask_later(master.config.address, code, fields, told=answers.append)
    cluster.run_for(500)
    assert (answers, master.store.max_offset) == ([], end)
    cluster.until(lambda: len(answers) == COUNT, "answers", 1_000)
    assert {one.code for one in answers} == {ResponseCode.SUCCESS}
    cluster.until(lambda: len(stored(cluster, *PLACES[code])) == COUNT, "all", 1_000)


@pytest.mark.parametrize("cluster", [{"recallMessageEnable": "true"}], indirect=True)
def test_recall_when_writes_wait_then_it_stands_in_the_row(cluster: ReplicaCluster) -> None:
    """It is a record as well."""
    due = wall_ms(cluster) + 60_000
    handle = send(cluster, 1, f"TIMER_DELIVER_MS\x01{due}\x02").ext_fields["recallHandle"]
    master, answers = master_of(cluster), list[RemotingCommand]()
    run_short(master)
    hang(cluster, 1_000)
    end, fields = master.store.max_offset, {"topic": TOPIC, "recallHandle": handle}
    code = RequestCode.RECALL_MESSAGE
    cluster.ask_later(master.config.address, code, fields, told=answers.append)
    cluster.run_for(500)
    assert (answers, master.store.max_offset) == ([], end)
    cluster.until(lambda: answers, "an answer", 1_000)
    assert answers[0].code == ResponseCode.SUCCESS


def test_services_when_nothing_is_due_then_no_room_is_made(cluster: ReplicaCluster) -> None:
    """A page that is made in vain is written to the disk, which has too much to do already."""
    made = watched_room(cluster)
    run_short(master_of(cluster))
    cluster.run_for(3_000)
    assert (master_of(cluster).store.room.is_short, made) == (True, [])


def test_services_when_sends_stand_in_the_row_then_they_have_their_turns(
    cluster: ReplicaCluster,
) -> None:
    """Who makes room while another writes into it makes the same room."""
    deliver_later(cluster, "delays", COUNT)
    run_short(master_of(cluster))
    room, inside, overlaps = master_of(cluster).store.room, 0, 0
    make = room.make

    async def watching(length: int, *, ahead: int = 0) -> int:
        nonlocal inside, overlaps
        overlaps += inside
        inside += 1
        try:
            return await make(length, ahead=ahead)
        finally:
            inside -= 1

    room.make = watching  # type: ignore[method-assign]  # to see each
    cluster.run_for(1_000)
    hang(cluster, 1_500)
    rounds = [sent(cluster, 5)]

    def delays() -> int:
        """A round of sends follows the other."""
        if len(rounds[-1]) == 5:
            rounds.append(sent(cluster, 5))
        return delivered(cluster, "delays") - sum(map(len, rounds))

    cluster.until(lambda: delays() == COUNT, "all deliveries", DUE_MS)
    assert overlaps == 0
    assert len(rounds) >= 2
    assert {one.code for some in rounds for one in some} == {ResponseCode.SUCCESS}
