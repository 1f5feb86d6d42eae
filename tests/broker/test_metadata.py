"""Changes of topics and groups: what a record says, what is pending, and what a role's end undoes."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.auth.accounts import (
    Account,
    Decision,
    Entry,
    Policy,
    PolicyType,
    UserStatus,
    UserType,
)
from rmqha.auth.resources import Action, Pattern, Resource, ResourceType
from rmqha.base.errors import RemoteProtocolError
from rmqha.broker.common.versioned_table import vanished
from rmqha.broker.groups.offset_table import ConsumerOffsets
from rmqha.broker.topics.account_table import AccountTable
from rmqha.broker.topics.group_table import GroupConfig, GroupTable
from rmqha.broker.topics.mapping_table import MappingTable
from rmqha.broker.topics.metadata import Change, Metadata
from rmqha.broker.topics.topic_table import TopicConfig, TopicTable
from rmqha.remoting import fastjson
from rmqha.statictopic.mapping import LogicQueueMappingItem, TopicQueueMappingDetail

NAMES = st.sampled_from(["A", "B", "C", "D"])
TOPICS = st.builds(
    TopicConfig, NAMES, st.integers(1, 9), st.integers(1, 9), st.sampled_from([2, 4, 6]),
    attributes=st.dictionaries(st.sampled_from(["message.type", "reserve.time"]), st.text(), max_size=2),
)  # fmt: skip


@st.composite
def mappings(draw: st.DrawFn) -> TopicQueueMappingDetail:
    """A mapping as a 513 may bring it; of one topic its queues need not follow each other here."""
    queues = {}
    for logical in range(draw(st.integers(0, 2))):
        begin = draw(st.integers(0, 9))
        leader = LogicQueueMappingItem(1, logical, "b", draw(st.sampled_from([-1, begin + 1])))
        queues[logical] = (LogicQueueMappingItem(0, logical, "a", begin), leader)
    return TopicQueueMappingDetail(
        draw(NAMES),
        2,
        "b",
        draw(st.integers(0, 9)),
        dirty=draw(st.booleans()),
        hosted_queues=queues,
    )


GROUPS = st.builds(GroupConfig, NAMES, retry_max_times=st.integers(0, 20))


ENTRY = Entry(
    Resource(ResourceType.TOPIC, "t", Pattern.PREFIXED), (Action.PUB, Action.SUB), Decision.DENY,
    ("10.0.0.0/8",),
)  # fmt: skip


def accounts() -> st.SearchStrategy[Account]:
    """Users with and without a policy."""
    policies = st.sampled_from([(), (Policy(PolicyType.CUSTOM, (ENTRY,)),)])
    return st.builds(
        Account, NAMES, st.sampled_from(["p", "q"]), st.sampled_from(UserType),
        st.sampled_from(UserStatus), policies,
    )  # fmt: skip


@st.composite
def changes(draw: st.DrawFn) -> Change:
    """One change, of topics, mappings or groups; it does not end what it makes."""
    topics = draw(st.lists(TOPICS, max_size=3, unique_by=lambda one: one.name))
    groups = draw(st.lists(GROUPS, max_size=3, unique_by=lambda one: one.name))
    ended = draw(st.sets(NAMES)) - {one.name for one in topics}
    ended_groups = draw(st.sets(NAMES)) - {one.name for one in groups}
    made = draw(st.lists(accounts(), max_size=2, unique_by=lambda one: one.name))
    mapped = draw(st.lists(mappings(), max_size=2, unique_by=lambda one: one.name))
    return Change(
        accounts=tuple(made), ended_accounts=tuple(sorted(draw(st.sets(NAMES)) - {one.name for one in made})),
        mappings=tuple(one for one in mapped if one.name not in ended),
        topics=tuple(topics), groups=tuple(groups), ended_topics=tuple(sorted(ended)),
        ended_groups=tuple(sorted(ended_groups)), forgotten_groups=tuple(sorted(draw(st.sets(NAMES)))),
    )  # fmt: skip


@dataclass
class Holder:
    """Keeps one table."""

    table: TopicTable | GroupTable | MappingTable | AccountTable


@dataclass
class Broker:
    """The tables of one broker."""

    topics: Holder = field(default_factory=lambda: Holder(TopicTable()))
    groups: Holder = field(default_factory=lambda: Holder(GroupTable()))
    mappings: Holder = field(default_factory=lambda: Holder(MappingTable()))
    accounts: Holder = field(default_factory=lambda: Holder(AccountTable()))
    state: Metadata = field(init=False)

    def __post_init__(self) -> None:
        self.state = Metadata(self.topics, self.groups, self.mappings, self.accounts)  # type: ignore[arg-type]  # each is of its kind

    def entries(self) -> tuple[object, ...]:
        """Topics, mappings, groups and accounts as they are."""
        holders = self.topics, self.mappings, self.groups, self.accounts
        return tuple(dict(one.table.items) for one in holders)

    def written(self) -> tuple[object, ...]:
        """Topics, mappings, groups and accounts as the files have them."""
        state = self.state
        found = state.passed_topics(), state.passed_mappings(), state.passed_groups()
        return entries_of(*found, state.passed_accounts())


def entries_of(
    topics: dict[str, Any], mapped: dict[str, Any], groups: dict[str, Any], users: dict[str, Any]
) -> tuple[object, ...]:
    """What is in the tables, without their versions."""
    return (
        topics["topicConfigTable"], mapped["topicQueueMappingInfoMap"],
        groups["subscriptionGroupTable"], users["accounts"],
    )  # fmt: skip


def members(broker: Broker) -> tuple[object, ...]:
    """The same as :meth:`Broker.written`, of tables in which nothing is pending."""
    holders = broker.topics, broker.mappings, broker.groups, broker.accounts
    return entries_of(*(one.table.members() for one in holders))


@pytest.mark.costly
@given(changes())
def test_change_when_encoded_then_it_says_the_same(change: Change) -> None:
    """A slave that reads another change has other topics than its master."""
    assert Change.decode(change.encode()) == change


def test_change_when_it_has_a_mapping_then_that_is_read_in_one_go_or_as_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A slave's loop stands still for a long one; whoever else wrote it must be read as well."""
    segments = (LogicQueueMappingItem(0, 0, "b", 0), LogicQueueMappingItem(1, 0, "a", -1))
    mapping = TopicQueueMappingDetail("T", 1, "b", 1, hosted_queues={0: segments})
    change = Change(topics=(TopicConfig("T", 1, 1),), mappings=(mapping,), ended_topics=("U",))
    members = json.loads(change.encode())
    members["mappings"] = [mapping.members()]
    assert Change.decode(fastjson.dumps_bare(members)) == change
    monkeypatch.setattr(TopicQueueMappingDetail, "of", lambda _: pytest.fail("member by member"))
    assert Change.decode(change.encode()) == Change.decode(json.dumps(members).encode()) == change


@given(st.binary(max_size=200) | st.text(max_size=80).map(str.encode))
def test_change_when_anything_stands_there_then_it_is_read_or_refused(body: bytes) -> None:
    """A producer of a Java master may write to the topic; a broker must not end of it."""
    try:
        Change.decode(body)
    except RemoteProtocolError:
        pass


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@pytest.mark.slow
@given(
    st.dictionaries(
        st.sampled_from(
            ["topics", "mappings", "groups", "endedTopics", "endedGroups", "forgottenGroups"]
        ),
        JSON
        | st.lists(
            st.dictionaries(
                st.sampled_from(
                    [
                        "topicName",
                        "topic",
                        "bname",
                        "hostedQueues",
                        "groupName",
                        "perm",
                        "attributes",
                    ]
                ),
                JSON,
            )
        ),
    )
)
def test_change_when_its_members_are_of_any_kind_then_it_is_read_or_refused(
    value: dict[str, object],
) -> None:
    """The same for bodies that look like one."""
    try:
        Change.decode(json.dumps(value).encode())
    except RemoteProtocolError:
        pass


@pytest.mark.parametrize("name", ["%RETRY%G+T", "%RETRY%my.group", "x" * 255])
def test_change_when_java_made_its_topic_then_it_is_read(name: str) -> None:
    """A new master tells by records what it has copied from Java, a hundred topics in each: a name
    that nobody else may make a topic of must not keep the other ones from the replicas."""
    change = Change(topics=(TopicConfig(name), TopicConfig("T")))
    assert Change.decode(change.encode()) == change


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "a\0b", "x" * 256])
def test_change_when_its_topic_could_have_no_folder_then_it_is_refused(name: str) -> None:
    """Queues lie in a folder of the topic's name."""
    with pytest.raises(RemoteProtocolError):
        Change.decode(Change(topics=(TopicConfig(name),)).encode())


@pytest.mark.slow
@given(st.lists(changes(), max_size=8), st.data())
def test_tables_when_a_master_writes_then_files_and_slaves_have_what_was_passed(
    made: list[Change], data: st.DataObject
) -> None:
    """What is in a file may be all that is left, so nothing pending may be in it."""
    master, slave = Broker(), Broker()
    begun = passed = 0
    while passed < len(made):
        if begun < len(made) and (begun == passed or data.draw(st.booleans())):
            master.state.begin(made[begun], begun * 100, (begun + 1) * 100, 0)
            begun += 1
            continue
        end = (passed + 1) * 100
        settled_first = data.draw(st.booleans())
        if settled_first:
            master.state.settled(end)
        assert not master.state.passed(end - 100, end, made[passed], 0)
        assert slave.state.passed(end - 100, end, made[passed], 0)
        passed += 1
        if not settled_first:
            assert master.state.pending_from == end - 100
            assert master.state.settled(end) == 1
        assert master.state.pending_from == (end if begun > passed else None)
        assert master.written() == members(slave)
        ending = {name for one in made[passed:begun] for name in one.ended_topics}
        assert {name for name in "ABCD" if master.state.is_ending(name)} == ending
    assert master.entries() == slave.entries()


@pytest.mark.slow
@given(st.lists(changes(), max_size=6), st.integers(0, 6), st.integers(0, 6))
def test_role_when_it_ends_then_what_was_not_passed_never_was(
    made: list[Change], passed: int, settled: int
) -> None:
    """A truncated log takes the records with it; a topic deleted by one of them is still there."""
    master, slave = Broker(), Broker()
    for number, change in enumerate(made):
        master.state.begin(change, number * 100, (number + 1) * 100, 0)
    master.state.settled(settled * 100)
    for number, change in enumerate(made[:passed]):
        master.state.passed(number * 100, number * 100 + 100, change, 0)
        slave.state.passed(number * 100, number * 100 + 100, change, 0)
    assert master.state.undo(0) == max(0, len(made) - passed)
    assert master.entries() == slave.entries()
    assert master.written() == members(slave)
    assert master.state.last_end == slave.state.last_end == min(passed, len(made)) * 100
    # The records that other replicas have after all come as a slave's do.
    for number, change in enumerate(made[passed:], passed):
        assert master.state.passed(number * 100, number * 100 + 100, change, 0)
        slave.state.passed(number * 100, number * 100 + 100, change, 0)
    assert master.entries() == slave.entries()


@pytest.mark.slow
@given(st.lists(changes(), min_size=1, max_size=8), st.data())
def test_tables_when_copied_between_two_records_then_older_records_change_nothing(
    made: list[Change], data: st.DataObject
) -> None:
    """A fresh replica has its master's tables before it has the log that made them."""
    master, fresh = Broker(), Broker()
    copied = data.draw(st.integers(0, len(made)))
    for number, change in enumerate(made):
        if number == copied:
            fresh.topics.table = TopicTable(master.topics.table.items.values())
            fresh.groups.table = GroupTable(master.groups.table.items.values())
            fresh.mappings.table = MappingTable(master.mappings.table.items.values())
            fresh.accounts.table = AccountTable(master.accounts.table.items.values())
            fresh.state.mappings_from = number * 100
            fresh.state.topics_from = fresh.state.groups_from = number * 100
            fresh.state.accounts_from = number * 100
        master.state.passed(number * 100, number * 100 + 100, change, 0)
    if copied == len(made):
        return
    before = fresh.entries()
    for number, change in enumerate(made):
        if number <= copied:
            assert fresh.entries() == before
        news = fresh.state.passed(number * 100, number * 100 + 100, change, 0)
        assert news == (number >= copied)
    assert fresh.entries() == master.entries()


@pytest.mark.parametrize("cut", [0, 100, 250])
def test_cut_when_below_the_mark_then_the_records_that_follow_count(cut: int) -> None:
    """Another history's records come in place of those that made the tables."""
    broker = Broker()
    broker.state.topics_from = broker.state.groups_from = broker.state.mappings_from = 300
    broker.state.accounts_from = 300
    broker.state.cut(cut)
    assert broker.state.passed(cut, cut + 50, Change(topics=(TopicConfig("A"),)), 0)
    assert "A" in broker.topics.table.topics
    made = Change(
        mappings=(static(),), groups=(GroupConfig("G"),), accounts=(Account("ann", "a password"),)
    )
    assert broker.state.passed(cut, cut + 60, made, 0)
    assert broker.mappings.table.get("A") is not None
    assert broker.groups.table.get("G") is not None
    assert broker.accounts.table.get("ann") is not None


def test_vanished_when_first_looked_at_then_nothing_is() -> None:
    """A Java master that copied its topics three seconds ago would delete the youngest here."""
    table = TopicTable([TopicConfig("A")])
    assert vanished(None, table) == frozenset()
    assert vanished(frozenset({"A", "B"}), table) == {"B"}


def test_offsets_when_copied_late_then_those_of_an_ended_topic_are_left_out() -> None:
    """The master had answered before it deleted the topic; the log came faster than the answer."""
    table = ConsumerOffsets(100)
    value = {"offsetTable": {"A@G": {"0": 7}, "B@G": {"0": 7}, "B@H": {"0": 7}}}
    assert table.merge(value, {"A"}, {"H"}) == (1, 2)
    assert [table.query(group, topic, 0) for topic, group in ("AG", "BG", "BH")] == [None, 7, None]


def test_cut_when_a_passed_record_goes_then_the_tables_are_of_no_moment() -> None:
    """Without allAckInSyncStateSet the dispatcher waits for nobody, and what it passed may be cut."""
    broker = Broker()
    assert broker.state.passed(100, 200, Change(topics=(TopicConfig("A"),)), 0)
    assert broker.state.cut(200)
    assert not broker.state.cut(199)
    assert broker.state.cut(199)


def static(topic: str = "A", epoch: int = 1) -> TopicQueueMappingDetail:
    """One logical queue, led here."""
    return TopicQueueMappingDetail(
        topic, 1, "b", epoch, hosted_queues={0: (LogicQueueMappingItem(0, 0, "b", 0),)}
    )


def test_mapping_when_it_changes_in_any_way_then_the_topics_have_another_version() -> None:
    """Name servers take mapping infos only from a registration with a version that is new."""
    broker = Broker()
    seen = {broker.topics.table.version}
    made = Change(mappings=(static(),))
    broker.state.begin(made, 0, 100, 7)
    seen.add(broker.topics.table.version)
    broker.state.undo(8)
    seen.add(broker.topics.table.version)
    broker.state.passed(0, 100, made, 9)
    seen.add(broker.topics.table.version)
    broker.state.passed(100, 200, Change(mappings=(static(epoch=2),)), 10)
    seen.add(broker.topics.table.version)
    broker.state.passed(200, 300, Change(ended_topics=("A",)), 11)
    seen.add(broker.topics.table.version)
    assert len(seen) == 6
    assert broker.state.remapped == {"A"}


@pytest.mark.parametrize("later", [Change(topics=(TopicConfig("A"),)), Change()])
def test_mapping_when_it_stays_as_it_is_then_nobody_is_told(later: Change) -> None:
    """Whoever waits for a mapping would be woken by every topic that somebody makes."""
    broker = Broker()
    broker.state.passed(0, 100, Change(mappings=(static(),)), 0)
    broker.state.remapped.clear()
    broker.state.passed(100, 200, later, 0)
    broker.state.passed(200, 300, Change(mappings=(static(),), ended_topics=("B",)), 0)
    assert broker.state.remapped == set()


def test_record_when_its_mapping_breaks_a_rule_then_it_is_refused() -> None:
    """A producer of a Java master may write one; a broker that took it would serve nonsense."""
    twice = LogicQueueMappingItem(0, 0, "b", 0)
    wrong = static().with_queues({0: (twice, twice)})
    with pytest.raises(RemoteProtocolError, match="generation 0 after 0"):
        Change.decode(Change(mappings=(wrong,)).encode())
