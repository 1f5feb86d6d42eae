"""Random schedules of crashes, partitions and losses; Raft's safety is watched at every step."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.base.errors import RemoteProtocolError
from rmqha.controller.raft import events as ev
from rmqha.controller.raft import messages as m
from rmqha.controller.raft.settings import RaftSettings
from tests.controller.raft.cluster import Cluster

pytestmark = pytest.mark.slow


def shake(cluster: Cluster, rounds: int) -> list[bytes]:
    """Propose while things break; everything applied anywhere is checked by the watch."""
    choose = cluster.random
    proposed = []
    for number in range(rounds):
        record = b"r%d" % number
        cluster.propose(record)
        proposed.append(record)
        what = choose.random()
        alive = sorted(cluster.cores)
        if what < 0.06 and len(alive) > 1:
            cluster.crash(choose.choice(alive))
        elif what < 0.16:
            down = [node for node in cluster.members if node not in cluster.cores]
            if down:
                cluster.start(choose.choice(down))
        elif what < 0.20:
            cluster.isolate(choose.choice(cluster.members))
        elif what < 0.24:
            one, other = choose.sample(cluster.members, 2)
            cluster.cut(one, other)
        elif what < 0.34:
            cluster.heal()
        elif what < 0.37 and cluster.leader():
            cluster.give(str(cluster.leader()), ev.TransferRequested())
        cluster.run(choose.choice((1, 5, 20, 100)))
    return proposed


@pytest.mark.parametrize("seed", range(60))
def test_random_faults_keep_one_log_and_the_group_recovers(seed: int) -> None:
    """Any violation of figure 3 of the Raft paper raises at the step that commits it."""
    cluster = Cluster(
        3 + 2 * (seed % 2),
        seed=seed,
        loss=(0.0, 0.02, 0.1)[seed % 3],
        delay_ms=((1, 3), (1, 30), (0, 80))[seed // 3 % 3],
        fsync_ms=((1, 4), (0, 40))[seed % 2],
        snapshot_every=(0, 7)[seed // 2 % 2],
        settings=RaftSettings(
            trailing_entries=3, snapshot_chunk_bytes=100, entries_per_request_max=4
        ),
    )
    shake(cluster, 200)
    cluster.heal()
    cluster.set_weather()
    for node in cluster.members:
        if node not in cluster.cores:
            cluster.start(node)
    cluster.run(1_500)  # a deposed leader may still believe in itself for a moment
    cluster.wait_leader(10_000)
    cluster.propose(b"after")
    cluster.run(2_000)
    logs = [cluster.applied[node] for node in cluster.members]
    assert all(log == logs[0] for log in logs)
    assert logs[0][-1] in (b"after", b"")
    assert b"after" in logs[0]


def test_the_same_seed_tells_the_same_story() -> None:
    """Without this no failure could be replayed."""

    def story() -> list[str]:
        cluster = Cluster(5, seed=11, loss=0.05, snapshot_every=9)
        shake(cluster, 80)
        return cluster.lines

    assert story() == story()


text = st.text(max_size=8)
number = st.integers(min_value=0, max_value=(1 << 62))
term = st.integers(min_value=0, max_value=m.TERM_MAX)
founders = st.lists(st.tuples(text, text), max_size=3).map(tuple)
entry = st.builds(m.Entry, number, term, st.binary(max_size=20))
message = st.one_of(
    st.builds(m.PreVoteRequest, term, text, number, term),
    st.builds(m.PreVoteResponse, term, text, st.booleans()),
    st.builds(m.VoteRequest, term, text, number, term, st.booleans()),
    st.builds(m.VoteResponse, term, text, st.booleans()),
    st.builds(
        m.AppendRequest, term, text, number, term,
        st.lists(entry, max_size=4).map(tuple), number, number,
    ),
    st.builds(m.AppendResponse, term, text, st.booleans(), number, number, number, text),
    st.builds(
        m.SnapshotRequest, term, text, number, term, number, number,
        st.binary(max_size=20), number, number,
    ),
    st.builds(m.SnapshotResponse, term, text, number, number, number, text),
    st.builds(m.TimeoutNow, term, text),
    st.builds(m.StandingTold, term, text, text, text, founders, number, number),
    st.builds(m.Readmitted, term, text, text, founders),
)  # fmt: skip


@given(message)
def test_messages_survive_the_wire(original: m.Message) -> None:
    """Also the type must come back: tuples of equal fields compare equal."""
    back = m.decode_message(m.encode_message(original))
    assert original == back
    assert type(original) is type(back)


@given(st.binary(max_size=60))
@settings(max_examples=300)
def test_foreign_bytes_are_refused_as_a_protocol_error(data: bytes) -> None:
    """A peer that sends rubbish loses its connection, not our process."""
    try:
        m.decode_message(data)
    except RemoteProtocolError:
        pass
