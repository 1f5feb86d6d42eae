"""Clients, groups, offsets and locks as tables: no sockets, no clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from rmqha.base.errors import RemoteProtocolError
from rmqha.base.ids import ConnectionId
from rmqha.broker.common.json_members import MessageQueue, queue_table
from rmqha.broker.common.refusal import Refusal
from rmqha.broker.groups.consumers import ConsumerData, ConsumerTable, subscription
from rmqha.broker.groups.heartbeat import Heartbeat
from rmqha.broker.groups.memberships import CHANNEL_EXPIRED_MS, Client
from rmqha.broker.groups.offset_table import ConsumerOffsets
from rmqha.broker.groups.producers import ProducerTable
from rmqha.broker.groups.queue_locks import LEASE_MS, QueueLocks
from rmqha.broker.topics.group_table import (
    GroupConfig,
    GroupTable,
    changed_group,
    group_error,
    system_groups,
)
from rmqha.remoting import fastjson


def client(connection: int, name: str | None = None) -> Client:
    """A client on a connection."""
    return Client(ConnectionId(connection), name or f"c{connection}", "JAVA", 479, "h:1")


def data(group: str = "G", *topics: str, model: str = "CLUSTERING", version: int = 1) -> Any:
    """A group as a heartbeat describes it."""
    wanted = tuple(subscription(topic, "*", version=version) for topic in topics or ("T",))
    return ConsumerData(group, "CONSUME_PASSIVELY", model, "CONSUME_FROM_LAST_OFFSET", wanted)


def test_consumer_when_it_joins_or_leaves_then_the_others_are_told_and_renewals_are_quiet() -> None:
    """A missed notification costs 20 s without a share; one too many costs a rebalance."""
    table = ConsumerTable(10)
    assert table.register(0, client(1), data()).changed
    assert not table.register(1, client(1), data()).changed
    assert table.register(2, client(2), data()).changed
    assert table.register(3, client(2), data("G", "T", "Other")).changed
    assert table.client_ids("G") == ["c1", "c2"]
    assert table.unregister("G", ConnectionId(1))
    assert not table.unregister("G", ConnectionId(1))
    assert not table.unregister("G", ConnectionId(2)), "nobody is left to be told"
    assert table.get("G") is None


def test_topic_when_its_consumers_want_it_no_more_then_it_is_none_of_the_group_s() -> None:
    """Else it could be pulled with a filter that nobody has any more, and tools would show it."""
    table = ConsumerTable(10)
    table.register(0, client(1), data("G", "T", "Gone"))
    assert table.register(1, client(1), data("G", "T", "New")).changed
    group = table.get("G")
    assert group is not None
    assert set(group.subscriptions) == {"T", "New"}


def test_broadcasting_group_when_it_changes_then_nobody_is_told() -> None:
    """Its members share nothing, so a rebalance would be for nothing."""
    table = ConsumerTable(10)
    assert not table.register(0, client(1), data(model="BROADCASTING")).changed
    assert not table.register(0, client(2), data(model="BROADCASTING")).changed
    assert table.closed(ConnectionId(1)) == []


def test_connection_when_it_closes_then_all_its_groups_lose_it_at_once() -> None:
    """Waiting for the 120 s would leave queues without a consumer."""
    table = ConsumerTable(10)
    for group in ("A", "B"):
        table.register(0, client(1), data(group))
        table.register(0, client(2), data(group))
    assert table.closed(ConnectionId(1)) == ["A", "B"]
    assert table.client_ids("A") == table.client_ids("B") == ["c2"]


def test_silent_client_when_its_time_is_over_then_it_is_dropped_and_its_connection_named() -> None:
    """A client that hangs keeps its socket; the others must get its queues."""
    table = ConsumerTable(10)
    table.register(0, client(1), data())
    table.register(5, client(2), data())
    assert table.expire(CHANNEL_EXPIRED_MS, 9) == ([], [])
    assert table.expire(CHANNEL_EXPIRED_MS + 1, 9) == ([ConnectionId(1)], ["G"])
    assert table.client_ids("G") == ["c2"]


def test_heartbeat_without_subscriptions_when_they_are_not_known_then_it_says_so() -> None:
    """A new master knows nobody: believing "as before" would leave the group without topics."""
    table = ConsumerTable(10)
    assert table.renew(0, client(1), "G", 77).unknown
    assert table.client_ids("G") == []
    table.register(1, client(1), data(), fingerprint=77)
    assert not table.renew(2, client(1), "G", 77).unknown
    assert table.renew(3, client(1), "G", 78).unknown
    assert table.renew(3, client(2), "G", 77).unknown, "another member's word does not count"


def test_heartbeat_without_subscriptions_when_its_consumer_has_left_then_it_is_not_believed() -> (
    None
):
    """Else who left a group, and is in it again by another client's word, subscribes to nothing."""
    table = ConsumerTable(10)
    table.register(0, client(1), data(), fingerprint=7)
    table.register(0, client(2), data(), fingerprint=7)
    assert not table.renew(1, client(1), "G", 7).unknown
    assert table.unregister("G", client(1).connection)
    assert table.renew(2, client(1), "G", 7).unknown
    assert table.client_ids("G") == [client(2).client_id]


def test_ids_when_nobody_joins_then_they_are_not_sorted_again_and_a_new_name_counts() -> None:
    """Each of a thousand members asks for the list of all, and sends a heartbeat every 30 s."""
    table = ConsumerTable(10)
    table.register(0, client(2), data())
    table.register(0, client(1), data())
    ids = table.client_ids("G")
    table.register(1, client(1), data())
    assert table.client_ids("G") is ids
    table.register(2, client(1, "z"), data())
    assert table.client_ids("G") == ["c2", "z"]


def test_subscription_when_an_older_heartbeat_comes_late_then_the_newer_one_stays() -> None:
    """Two members' heartbeats overlap: the version decides, not the order."""
    table = ConsumerTable(10)
    table.register(0, client(1), data(version=5))
    table.register(1, client(2), data(version=4))
    group = table.get("G")
    assert group is not None
    assert group.subscriptions["T"].sub_version == 5


@pytest.mark.parametrize(("version", "kept"), [(4, "a"), (5, "a"), (6, "b")])
def test_subscription_when_members_differ_then_only_a_newer_version_takes_its_place(
    version: int, kept: str
) -> None:
    """Two members of one version that want different tags would turn the group over with each beat."""
    table = ConsumerTable(10)
    for number, expression, of_version in ((1, "a", 5), (2, "b", version)):
        wanted = (subscription("T", expression, version=of_version),)
        beat = ConsumerData(
            "G", "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET", wanted
        )
        table.register(number, client(number), beat)
    group = table.get("G")
    assert group is not None
    assert group.subscriptions["T"].sub_string == kept
    assert group.subscriptions["T"].tags == (kept,)


def test_table_when_full_then_newcomers_are_refused_and_members_renew() -> None:
    """Memory stays bounded, and nobody who is in is thrown out."""
    table = ConsumerTable(1)
    assert not table.register(0, client(1), data()).refused
    assert table.register(0, client(2), data()).refused
    assert not table.register(1, client(1), data()).refused
    producers = ProducerTable(1)
    assert producers.register(0, "P", client(1))
    assert not producers.register(0, "P", client(2))
    assert producers.register(1, "P", client(1))


def picked(
    table: ProducerTable, may_take: Callable[[Client], bool] = lambda _: True
) -> ConnectionId | None:
    """Whose turn it is of those that may take something."""
    return next((one.connection for one in table.turns("P") if may_take(one)), None)


def test_producers_when_picked_then_they_take_turns_and_the_gone_are_not_picked() -> None:
    """Transaction checks must not all go to one producer, and never to a closed connection."""
    table = ProducerTable(10)
    assert picked(table) is None
    for number in (1, 2):
        table.register(0, "P", client(number, "same"))
    assert [picked(table) for _ in range(4)] == [1, 2, 1, 2]
    found = table.find(0, "same")
    assert found is not None
    assert found.connection == 2
    table.closed(0, ConnectionId(2))
    assert [picked(table), picked(table)] == [1, 1]
    assert table.expire(CHANNEL_EXPIRED_MS + 1, 9) == [ConnectionId(1)]
    assert picked(table) is None
    assert table.groups == []


def test_producers_when_some_may_not_take_it_then_the_others_take_turns() -> None:
    """Whoever says so is a member, and may not be told what the group is asked about."""
    table = ProducerTable(10)
    for number in range(4):
        table.register(0, "P", client(number))
    assert [picked(table, lambda one: one.connection % 2 == 1) for _ in range(3)] == [1, 3, 1]
    assert picked(table, lambda _: False) is None
    assert picked(table) == 2


def test_producers_when_some_go_while_they_are_looked_at_then_they_are_left_out() -> None:
    """Thousands are looked at in parts; and a group that is gone has no turn any more."""
    table = ProducerTable(10)
    for number in range(3):
        table.register(0, "P", client(number))
    turns = table.turns("P")
    assert next(turns).connection == 0
    table.closed(0, ConnectionId(1))
    assert [one.connection for one in turns] == [2]
    turns = table.turns("P")
    next(turns)
    for number in (0, 2):
        table.closed(0, ConnectionId(number))
    assert list(turns) == []
    assert table._turns == {}


class ConsumerMachine(RuleBasedStateMachine):
    """Any order of joining, leaving, closing and silence leaves the tables in agreement."""

    connections = Bundle("connections")

    def __init__(self) -> None:
        super().__init__()
        self.table = ConsumerTable(6)
        self.model: dict[str, dict[int, int]] = {}
        self.now = 0
        self.next = 0

    @rule(target=connections)
    def connect(self) -> int:
        """A new connection."""
        self.next += 1
        return self.next

    @rule(connection=connections, group=st.sampled_from("AB"), ms=st.integers(0, 70_000))
    def beat(self, connection: int, group: str, ms: int) -> None:
        """A heartbeat."""
        self.now += ms
        members = self.model.setdefault(group, {})
        count = sum(map(len, self.model.values()))
        is_new = connection not in members
        done = self.table.register(self.now, client(connection), data(group))
        assert done.refused == (is_new and count >= 6)
        if not done.refused:
            members[connection] = self.now
            assert done.changed == is_new

    @rule(connection=connections, group=st.sampled_from("AB"))
    def leave(self, connection: int, group: str) -> None:
        """Request 35."""
        was = self.model.get(group, {}).pop(connection, None) is not None
        told = self.table.unregister(group, ConnectionId(connection))
        assert told == (was and bool(self.model[group]))

    @rule(connection=consumes(connections))
    def close(self, connection: int) -> None:
        """The connection ends."""
        groups = [g for g in sorted(self.model) if connection in self.model[g]]
        told = self.table.closed(ConnectionId(connection))
        for group in groups:
            del self.model[group][connection]
        assert sorted(told) == [g for g in groups if self.model[g]]

    @rule(ms=st.integers(0, 130_000))
    def scan(self, ms: int) -> None:
        """The scan for silent clients."""
        self.now += ms
        while self.table.expire(self.now, 2)[0]:
            pass
        for members in self.model.values():
            for connection in [c for c, seen in members.items()
                               if self.now - seen > CHANNEL_EXPIRED_MS]:  # fmt: skip
                del members[connection]

    @invariant()
    def agrees(self) -> None:
        """The same members everywhere; a group lives while it has one."""
        for group in "AB":
            members = self.model.get(group, {})
            assert {one.connection for one in self.table.clients(group)} == set(members)
            assert (self.table.get(group) is not None) == bool(members)
            assert self.table.client_ids(group) == sorted(client(one).client_id for one in members)


TestConsumerMachine = ConsumerMachine.TestCase


QUEUES = [MessageQueue("T", "b", number) for number in range(3)]


def test_lock_when_held_then_others_wait_until_it_is_given_back_or_over() -> None:
    """Two members that consume one queue in order would break the order."""
    locks = QueueLocks(10)
    assert locks.lock(0, "G", "a", QUEUES[:2]) == QUEUES[:2]
    assert locks.lock(1, "G", "b", QUEUES) == QUEUES[2:]
    assert locks.lock(1, "Other", "b", QUEUES[:1]) == QUEUES[:1]
    locks.unlock("G", "b", QUEUES[:1])
    assert locks.lock(2, "G", "b", QUEUES[:1]) == []
    locks.unlock("G", "a", QUEUES[:1])
    assert locks.lock(3, "G", "b", QUEUES[:2]) == QUEUES[:1]
    assert locks.lock(LEASE_MS, "G", "b", QUEUES[1:2]) == []
    assert locks.lock(LEASE_MS + 1, "G", "b", QUEUES[1:2]) == QUEUES[1:2]


def test_locks_when_full_or_over_then_the_count_is_right() -> None:
    """The bound must neither leak nor lock everybody out."""
    locks = QueueLocks(2)
    assert locks.lock(0, "G", "a", QUEUES) == QUEUES[:2]
    assert len(locks) == 2
    assert [*locks.expire(LEASE_MS + 1)] == []
    assert len(locks) == 0
    assert locks.lock(LEASE_MS + 2, "G", "b", QUEUES) == QUEUES[:2]


def test_offsets_when_reset_then_commits_wait_for_the_pull_that_is_told() -> None:
    """A member still commits the old place; taking that would undo the operator's reset."""
    offsets = ConsumerOffsets(10)
    assert offsets.commit("G", "T", 0, 100, 0)
    assert offsets.reset("G", "T", 0, 7, 0)
    assert offsets.commit("G", "T", 0, 101, 0)
    assert offsets.query("G", "T", 0) == 7
    assert offsets.take_reset("G", "T", 0) == 7
    assert offsets.query("G", "T", 0) == 7
    assert offsets.take_reset("G", "T", 0) is None
    assert offsets.commit("G", "T", 0, 8, 0)
    assert offsets.query("G", "T", 0) == 8


def test_offsets_when_a_group_or_a_topic_goes_then_a_reset_of_it_goes_as_well() -> None:
    """One of the same name that is made later begins anew."""
    offsets = ConsumerOffsets(10)
    for group, topic in (("G", "T"), ("Other", "T"), ("G", "Gone")):
        assert offsets.reset(group, topic, 0, 7, 0)
    offsets.forget_group("Other")
    offsets.forget_topic("Gone")
    assert offsets.pending_reset("Other", "T", 0) is None
    assert offsets.pending_reset("G", "Gone", 0) is None
    assert offsets.pending_reset("G", "T", 0) == 7


def test_offsets_when_cut_then_only_those_beyond_the_end_move() -> None:
    """After a truncated tail a consumer would skip what is written in its place (#4771)."""
    offsets = ConsumerOffsets(10)
    for queue_id, offset in ((0, 5), (1, 50), (2, 99)):
        offsets.commit("G", "T", queue_id, offset, 0)
    ends = {("T", 0): 10, ("T", 1): 20}
    cut = offsets.cut(lambda topic, queue_id: ends.get((topic, queue_id)))
    assert list(cut) == [[("G", "T", 1, 50, 20)]]
    assert [offsets.query("G", "T", q) for q in range(3)] == [5, 20, 99]


KEYS = st.tuples(st.sampled_from("ab"), st.sampled_from("TU"), st.integers(0, 3))


@given(st.lists(st.tuples(
    st.sampled_from(["commit", "forget group", "forget topic", "load"]),
    st.sampled_from("abc"), st.sampled_from("xyz"), st.integers(0, 2),
), max_size=30))  # fmt: skip
def test_offsets_whatever_happens_then_topics_and_groups_are_those_of_the_table(
    story: list[tuple[str, str, str, int]],
) -> None:
    """317 went through all offsets for each group: 2.3 s with 5,000 of them."""
    offsets = ConsumerOffsets(100)
    for what, group, topic, queue_id in story:
        if what == "commit":
            offsets.commit(group, topic, queue_id, 5, 0)
        elif what == "load":
            offsets.load(offsets.page(0).members)
        else:
            before = len(offsets)
            gone = offsets.forget_group(group) if "group" in what else offsets.forget_topic(topic)
            assert len(offsets) == before - gone
        table = {(topic, group) for topic, group, queues in offsets.each() if queues}
        for one in "abc":
            assert offsets.topics_of(one) == sorted(t for t, g in table if g == one)
        for one in "xyz":
            assert offsets.groups_of(one) == sorted(g for t, g in table if t == one)


@given(st.lists(st.tuples(KEYS, st.integers(0, 1 << 62)), max_size=30))
def test_offsets_when_written_and_read_then_they_are_the_same(
    commits: list[tuple[tuple[str, str, int], int]],
) -> None:
    """The file is all that is left after a restart; a slave gets the same."""
    offsets = ConsumerOffsets(8)
    expected: dict[tuple[str, str, int], int] = {}
    for (group, topic, queue_id), offset in commits:
        key = (group, topic, queue_id)
        stored = offsets.commit(group, topic, queue_id, offset, 1)
        assert stored == (key in expected or len(expected) < 8)
        if stored:
            expected[key] = offset
    assert len(offsets) == len(expected)
    again, merged = ConsumerOffsets(8), ConsumerOffsets(8)
    value = fastjson.loads(fastjson.dumps(offsets.page(0).members))
    again.load(value)
    merged.merge(value)
    for group, topic, queue_id in expected:
        assert again.query(group, topic, queue_id) == expected[group, topic, queue_id]
        assert merged.query(group, topic, queue_id) == expected[group, topic, queue_id]
    assert again.page(0).members == offsets.page(0).members


def test_offsets_when_java_wrote_the_file_then_bare_keys_are_read() -> None:
    """fastjson writes number keys without quotes."""
    offsets = ConsumerOffsets(8)
    offsets.load(fastjson.loads(b'{"offsetTable":{"%RETRY%G@G":{0:5},"T@G":{0:1,1:2}}}'))
    assert offsets.topics_of("G") == ["%RETRY%G", "T"]
    assert offsets.groups_of("T") == ["G"]
    assert offsets.forget_group("G") == 3
    assert len(offsets) == 0


TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
NAMED = st.dictionaries(
    st.sampled_from(
        [
            "clientID", "consumerDataSet", "producerDataSet", "groupName", "subscriptionDataSet",
            "topic", "offsetTable", "T@G", "subscriptionGroupTable", "dataVersion", "withoutSub",
        ]
    ),
    ANY_JSON | st.lists(st.fixed_dictionaries({"groupName": ANY_JSON}), max_size=2),
)  # fmt: skip


@pytest.mark.slow
@given(NAMED | ANY_JSON)
def test_bodies_when_they_are_garbage_then_one_error_is_raised_and_nothing_changes(
    value: Any,
) -> None:
    """A body from anywhere must end as an answer, never as a traceback."""
    offsets = ConsumerOffsets(8)
    offsets.commit("G", "T", 0, 5, 0)
    before = offsets.page(0)
    body = fastjson.dumps(value)
    for read in (Heartbeat.decode, _groups):
        try:
            read(body)
        except RemoteProtocolError:
            pass
    if isinstance(value, dict):
        try:
            offsets.merge(value)
        except RemoteProtocolError:
            assert offsets.page(0) == before


def test_heartbeat_when_from_go_then_its_codes_in_quotes_are_numbers() -> None:
    """client-go writes codeSet's numbers as texts; fastjson reads them, and so must a broker."""
    body = (
        b'{"clientID":"c@1","producerDataSet":[],"consumerDataSet":[{"groupName":"G",'
        b'"consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING",'
        b'"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","unitMode":false,'
        b'"subscriptionDataSet":[{"classFilterMode":false,"topic":"T","subString":"TagA || TagB",'
        b'"tagsSet":["TagA","TagB"],"codeSet":["2598919","2598920"],'
        b'"subVersion":1795279451000000000,"expressionType":"TAG"}]}]}'
    )
    (group,) = Heartbeat.decode(body).consumers
    (wanted,) = group.subscriptions
    assert wanted.hashes == {2598919, 2598920}
    assert wanted.members()["codeSet"] == [2598919, 2598920]


@pytest.mark.parametrize("code", ["x", "", "1.0", str(1 << 63), None, True, 1.5, []])
def test_heartbeat_when_a_code_is_no_number_then_refused(code: object) -> None:
    """Not skipped: a filter with a hole in it would hide messages."""
    subscribed = {"topic": "T", "subString": "A", "codeSet": [code]}
    data = {"groupName": "G", "subscriptionDataSet": [subscribed]}
    with pytest.raises(RemoteProtocolError):
        Heartbeat.decode(fastjson.dumps({"clientID": "c", "consumerDataSet": [data]}))


def _groups(body: bytes) -> GroupTable:
    value = fastjson.loads(body)
    return GroupTable.of(value if isinstance(value, dict) else {})


@pytest.mark.parametrize(
    "body",
    [
        b"", b"null", b"[]", b"{}", b"{", b'{"clientID":5}',
        b'{"clientID":"c","consumerDataSet":{}}',
        b'{"clientID":"c","consumerDataSet":[{}]}',
        b'{"clientID":"c","consumerDataSet":[{"groupName":"G","subscriptionDataSet":[5]}]}',
        b'{"clientID":"c","producerDataSet":[null]}',
        b'{"clientID":"c","heartbeatFingerprint":"x"}',
    ],
)  # fmt: skip
def test_heartbeat_when_malformed_then_it_is_refused_whole(body: bytes) -> None:
    """Half a heartbeat that counts would leave a group with wrong topics."""
    with pytest.raises(RemoteProtocolError):
        Heartbeat.decode(body)


def test_groups_when_written_and_read_then_they_are_the_same_and_unknown_members_stay() -> None:
    """A file of a newer Java broker must come out as it went in."""
    table = GroupTable(system_groups())
    java = {
        "groupName": "G", "retryMaxTimes": 3, "consumeBroadcastEnable": False, "newThing": [1],
        "groupRetryPolicy": {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": 5}},
    }  # fmt: skip
    assert table.put(GroupConfig.of(java), 7)
    assert not table.put(GroupConfig.of(java), 8), "the same again is no change"
    again = GroupTable.of(fastjson.loads(fastjson.dumps(table.members())))
    assert again.members() == table.members()
    found = again.get("G")
    assert found is not None
    assert found.members()["newThing"] == [1]
    assert again.version.counter == 1


@pytest.mark.parametrize("name", ["", " ", "a b", "a/b", "x" * 249, "ü"])
def test_group_name_when_java_refuses_it_then_so_do_we(name: str) -> None:
    """A group's name becomes part of a topic's, and that one a directory."""
    assert group_error(name) is not None


def test_group_when_it_is_changed_then_its_attributes_stay_and_its_name_is_not_asked() -> None:
    """``mqadmin updateSubGroup --attributes +x=1`` was answered with success, and an attribute "+x"
    was kept."""
    old = GroupConfig("my.group", retry_max_times=3, attributes={"lite": "1"})
    wanted = GroupConfig("my.group", retry_max_times=5)
    both = GroupConfig("my.group", retry_max_times=5, attributes={"lite": "1"})
    assert changed_group(old, wanted) == changed_group(old, both) == both
    assert changed_group(None, GroupConfig("G")) == GroupConfig("G")
    for name in ("+lite", "-lite", "lite"):
        refused = changed_group(old, GroupConfig("my.group", attributes={name: "2"}))
        assert refused == (1, "unsupported key: lite")
    refused = changed_group(None, wanted)
    assert isinstance(refused, Refusal)
    assert refused.code == 29


@pytest.mark.parametrize("name", ["my.group", "x" * 300, "a b"])
def test_groups_when_java_has_them_under_any_name_then_their_table_is_read(name: str) -> None:
    """Java's 200 checks no name. One such group kept a store from opening, and a slave from all
    topics and groups."""
    table = GroupTable([GroupConfig(name), GroupConfig("G")])
    again = GroupTable.of(fastjson.loads(fastjson.dumps(table.members())))
    assert again.groups.keys() == {name, "G"}
    with pytest.raises(RemoteProtocolError, match="blank"):
        GroupConfig.of({"groupName": " "})


def test_queue_table_when_written_then_keys_are_objects_and_our_reader_takes_it() -> None:
    """fastjson 2 of 5.4 clients refuses the same key as text."""
    body = queue_table([(QUEUES[0], {"maxOffset": 1}), (QUEUES[1], 5)], consumeTps=0.5)
    assert body == (
        b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:{"maxOffset":1},'
        b'{"brokerName":"b","queueId":1,"topic":"T"}:5},"consumeTps":0.5}'
    )


def test_offsets_when_asked_for_since_then_what_changed_and_nothing_else() -> None:
    """A slave that misses a change has that position until the group commits again."""
    table = ConsumerOffsets(100)
    for group, offset in (("A", 1), ("B", 2), ("C", 3)):
        table.commit(group, "T", 0, offset, 0)
    seen = table.changes
    assert table.page(seen).members["offsetTable"] == {}
    table.commit("B", "T", 0, 2, 0)  # as it was
    table.commit("A", "T", 1, 7, 0)
    assert table.page(seen).members["offsetTable"] == {"T@A": {"0": 1, "1": 7}}
    later = table.changes
    table.reset("C", "T", 0, 0, 0)
    table.forget_group("A")
    assert table.page(seen).members["offsetTable"] == {"T@C": {"0": 0}}
    assert list(table.cut(lambda topic, queue_id: 1)) == [[("B", "T", 0, 2, 1)]]
    assert table.page(later).members["offsetTable"] == {"T@B": {"0": 1}, "T@C": {"0": 0}}
    assert table.page(0).changes == table.changes
