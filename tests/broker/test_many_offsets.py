"""Hundreds of thousands of consumer offsets: the loop turns while they are written, told and copied."""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.base.errors import RemoteProtocolError
from rmqha.broker.aio.replica import BrokerReplica
from rmqha.broker.common.change_order import BLOCK_CHANGES
from rmqha.broker.common.table_slices import head_of, table_slices
from rmqha.broker.groups.offset_table import ConsumerOffsets
from rmqha.broker.topics.group_table import GroupConfig
from rmqha.broker.topics.topic_table import TopicConfig
from rmqha.ha.events import Role
from rmqha.remoting import fastjson
from tests.broker.replicas import TOPIC, ReplicaCluster, master_of
from tests.broker.test_consumer_requests import connect

GROUPS, QUEUES = 20_000, 8
SHOWN_GROUPS = 5_000
TURN_S_MAX = 0.08
"""Of the loop's own processor time. Each of the works takes more than twice as long for 160,000 offsets."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[ReplicaCluster]:
    """Two replicas in sync; the master gets 160,000 offsets."""
    with ReplicaCluster(
        seed=31, replicas=2, flushConsumerOffsetInterval=500, syncSlaveMetadataPeriod=300
    ) as one:
        one.boot_all()
        one.until(one.in_sync, "SyncStateSet of two")
        yield one


@contextmanager
def turns() -> Iterator[list[float]]:
    """Processor time of each turn of anything in the loop, in seconds."""
    found, run = [], asyncio.events.Handle._run

    def timed(handle: asyncio.events.Handle) -> Any:
        began = time.thread_time()
        try:
            return run(handle)
        finally:
            found.append(time.thread_time() - began)

    gc.collect()
    gc.disable()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio.events.Handle, "_run", timed)
        yield found
    gc.enable()


def fill(offsets: ConsumerOffsets, by: int) -> None:
    """Every group is somewhere else in each of its queues."""
    for group in range(GROUPS):
        for queue_id in range(QUEUES):
            assert offsets.commit(f"g{group}", TOPIC, queue_id, group + by, 0)


def slave_of(cluster: ReplicaCluster) -> BrokerReplica:
    """The other one."""
    (found,) = [one for one in cluster.replicas.values() if one.role is Role.SLAVE]
    return found


@pytest.mark.slow
def test_offsets_when_there_are_many_then_no_turn_is_long(cluster: ReplicaCluster) -> None:
    """The file held the loop for 1.7 s at 960,000 offsets, every 5 s: heartbeats come too late."""
    master, slave = master_of(cluster), slave_of(cluster)
    asking = connect(cluster, "java")
    for round_number in (1, 2):
        fill(master.offsets.table, round_number)
        master.offsets.changed()
        with turns() as found:
            answer = asking.ask(43)
            cluster.until(
                lambda by=round_number: slave.offsets.table.query("g19999", TOPIC, 7)
                == 19_999 + by,
                "the copy",
            )
            cluster.run_for(1_500)
        table = fastjson.loads(answer.body)["offsetTable"]
        assert len(table) >= GROUPS
        assert table[f"{TOPIC}@g7"] == {str(queue): 7 + round_number for queue in range(QUEUES)}
        content = cluster.disks[cluster.host_of(master)].files["/store/config/consumerOffset.json"]
        assert json.loads(content.durable)["offsetTable"] == table
        assert slave.offsets.table.page(0, 1 << 30).members["offsetTable"] == table
        assert max(found) < TURN_S_MAX
        assert sum(found) > 2 * TURN_S_MAX


@pytest.mark.slow
def test_317_when_there_are_many_groups_then_no_turn_is_long(cluster: ReplicaCluster) -> None:
    """An operator's question must not cost the master its lease."""
    master = master_of(cluster)
    master.topics.table.put(TopicConfig(TOPIC, QUEUES, QUEUES), 0)
    for group in range(SHOWN_GROUPS):
        assert master.groups.table.put(GroupConfig(f"g{group}"), 0)
    fill(master.offsets.table, 3)
    asking = connect(cluster, "admin")
    with turns() as found:
        answer = asking.ask(317)
    listed = fastjson.loads(answer.body)["consumeStatsList"]
    shown = [(name, tables) for entry in listed for name, tables in entry.items()]
    of_users = sum(len(tables) for name, tables in shown if not name.startswith("CID_RMQ_SYS_"))
    assert of_users == SHOWN_GROUPS
    # The longest one copies the whole answer, which a busy machine may take its time for.
    assert max(found) < sum(found) / 3
    assert len([turn for turn in found if turn > sum(found) / 1_000]) > SHOWN_GROUPS // 100


@pytest.mark.costly
def test_slave_when_it_is_elected_while_it_copies_then_it_takes_no_more() -> None:
    """Its consumers have gone on meanwhile; the old master's positions would take them back."""
    with ReplicaCluster(seed=33, replicas=2, syncSlaveMetadataPeriod=300) as cluster:
        cluster.boot_all()
        cluster.until(cluster.in_sync, "SyncStateSet of two")
        master, slave = master_of(cluster), slave_of(cluster)
        merge, merged = slave.offsets.table.merge, []

        def elected_after_one(*args: Any) -> Any:
            merged.append(args)
            count = merge(*args)
            slave.role = Role.MASTER
            return count

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(slave.offsets.table, "merge", elected_after_one)
            fill(master.offsets.table, 1)
            cluster.until(lambda: merged, "the first slice")
            cluster.run_for(2_000)
        assert len(merged) == 1
        assert len(slave.offsets.table) < GROUPS * QUEUES


# -- pages (pure) ------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(0, 9)), max_size=20),
    st.lists(st.integers(0, 5), min_size=1, max_size=8),
    st.integers(1, 5),
)
def test_pages_whatever_changes_between_them_then_they_tell_everything(
    commits: list[tuple[int, int, int]], turns: list[int], size: int
) -> None:
    """A slave that passes a change over has that position until the group commits again."""
    master, slave = ConsumerOffsets(100), ConsumerOffsets(100)
    since, left = 0, iter(commits)
    for count in turns:
        for group, queue_id, offset in islice(left, count):
            master.commit(f"g{group}", "T", queue_id, offset, 0)
        page = master.page(since, size)
        slave.merge(fastjson.loads(fastjson.dumps(page.members)))
        since = page.changes
    while not page.is_last:
        page = master.page(since, size)
        slave.merge(fastjson.loads(fastjson.dumps(page.members)))
        assert page.changes > since
        since = page.changes
    assert dict(_flat(slave)) == dict(_flat(master))


def _flat(table: ConsumerOffsets) -> Iterator[tuple[tuple[str, str, int], int]]:
    for topic, group, queues in table.each():
        for queue_id, offset in queues.items():
            yield (topic, group, queue_id), offset


def test_pages_when_old_changes_are_far_back_then_they_are_found() -> None:
    """Changes lie in blocks; one that loses its keys, or keeps only some, must not end the search."""
    table = ConsumerOffsets(10_000)
    for group in range(3 * BLOCK_CHANGES):
        table.commit(f"g{group}", "T", 0, 1, 0)
    for group in range(1, 2 * BLOCK_CHANGES):
        table.commit(f"g{group}", "T", 0, 2, 0)
    page = table.page(0, 3)
    names = [f"T@g{group}" for group in (0, 2 * BLOCK_CHANGES, 2 * BLOCK_CHANGES + 1)]
    assert list(page.members["offsetTable"]) == names
    assert not page.is_last
    rest = table.page(page.changes, 1 << 30)
    assert len(rest.members["offsetTable"]) == 3 * BLOCK_CHANGES - 3
    assert rest.is_last


# -- slices of an answer (pure) ------------------------------------------------------------------------

NAMES = st.text(max_size=4).filter(lambda text: text.isprintable())
TABLES = st.dictionaries(
    st.tuples(NAMES, NAMES).map("@".join),
    st.dictionaries(st.integers(0, 9), st.integers(0, 1 << 62), max_size=3), max_size=6,
)  # fmt: skip


@pytest.mark.costly
@given(TABLES, st.integers(1, 60), st.sampled_from(["ours", "bare", "pretty", "table first"]))
def test_slices_of_a_table_however_it_is_written_then_together_they_are_the_table(
    table: dict[str, dict[int, int]], size: int, style: str
) -> None:
    """Java writes bare number keys; what is lost at a cut is a group that consumes everything anew."""
    version = {"counter": 7, "stateVersion": 0, "timestamp": 12}
    value = {"dataVersion": version, "offsetTable": table}
    if style == "table first":
        value = {"offsetTable": table, "dataVersion": version, "rmqhaChanges": "a:1"}
    body = fastjson.dumps_bare(value) if style == "bare" else fastjson.dumps(value)
    if style == "pretty":
        body = json.dumps(value, indent="\t").encode()
    found, rest = {}, {}
    for one in table_slices(body, size):
        found.update(one["offsetTable"])
        rest = one
    assert found == {name: {str(k): v for k, v in queues.items()} for name, queues in table.items()}
    assert rest["dataVersion"] == version
    assert ("rmqhaChanges" in rest) == (style == "table first")
    before = {} if style == "table first" else {"dataVersion": version}
    assert {**head_of(body), "offsetTable": {}} == {**before, "offsetTable": {}}


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"7", b'{"offsetTable":{"a@b":{0:1},', b'{"offsetTable":{"a@b":{0:1}', b"{{",
     b'{"offsetTable":{"a@b":{0:1}}', b'{"offsetTable":{"a@b":{0:x}}}'],
)  # fmt: skip
def test_slices_when_a_body_is_broken_then_that_is_said(body: bytes) -> None:
    """An error of another kind would end the copying for good."""
    with pytest.raises(RemoteProtocolError):
        list(table_slices(body, 1))
