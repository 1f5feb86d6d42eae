"""Commands that change static topics, against brokers that keep mappings and commands that die."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rmqha.client.exchange import NotFound
from rmqha.statictopic.known import PlanRefused, histories
from rmqha.statictopic.map_file import read_map_file
from rmqha.statictopic.plan import LOST_OFFSETS
from rmqha.statictopic.rules import topic_error
from tests.admin.driving import HERE, usage_error
from tests.admin.static_cluster import TOPIC, StaticCluster

WHO = f"-n ns:1 -t {TOPIC}"
CREATE = f"updateStaticTopic {WHO} -b a -qn 4"
DRAIN = f"migrateLogicalQueue {WHO} -fb a"
LATER = replace(HERE, now_ms=HERE.now_ms + 60_000)


@pytest.fixture
def cluster() -> StaticCluster:
    """Three broker sets without the topic."""
    return StaticCluster("abc")


@pytest.fixture
def created(cluster: StaticCluster) -> StaticCluster:
    """Four queues at a, some messages in each."""
    cluster.run(CREATE)
    cluster.brokers["a"].ends = {queue: (0, 4_000 + 2_000 * queue) for queue in range(4)}
    cluster.calls.clear()
    return cluster


def assert_whole(cluster: StaticCluster) -> None:
    """All brokers agree."""
    assert topic_error(cluster.known().details) is None
    assert len(cluster.known().details) == len(cluster.brokers)


# -- what is asked and said ------------------------------------------------------------------------


def test_create_when_run_then_all_brokers_are_told_and_files_come_first(
    cluster: StaticCluster,
) -> None:
    """The Java tool's two lines, and nothing is told before they could be written."""
    first, last = cluster.run(CREATE)
    epoch = HERE.now_ms
    assert first.plain == (
        f"The old mapping data is written to file /tmp/Orders-{epoch}.before\n"
        f"The new mapping data is written to file /tmp/Orders-{epoch}.after\n"
    )
    assert [*first.files] == [f"/tmp/Orders-{epoch}.before", f"/tmp/Orders-{epoch}.after"]
    assert read_map_file(first.files[f"/tmp/Orders-{epoch}.after"]).kind == "CREATE_OR_UPDATE"
    assert cluster.codes() == [("a", 513), ("b", 513), ("c", 513)]
    assert cluster.leaders() == dict.fromkeys(range(4), "a")
    assert_whole(cluster)
    assert (last.data["finished"], last.data["epoch"]) == (True, epoch)
    assert cluster.brokers["a"].fields == {
        "topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4",
        "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
        "attributes": "", "force": "false",
    }  # fmt: skip
    assert cluster.brokers["c"].fields["writeQueueNums"] == "0"


def test_grow_when_run_then_the_topic_stays_as_it_was_otherwise(created: StaticCluster) -> None:
    """Its flags, and what a broker that is new to it gets of them."""
    broker = created.brokers["a"]
    assert broker.config is not None
    broker.config |= {"perm": 4, "topicSysFlag": 1, "order": True}
    created.brokers["b"].config = created.brokers["b"].detail = None
    assert created.brokers["c"].config is not None
    created.brokers["c"].config |= {"perm": 4}
    broker.config["attributes"] = {"message.type": "FIFO"}
    created.run(f"updateStaticTopic {WHO} -c C -qn 6")
    assert created.leaders() == {**dict.fromkeys(range(4), "a"), 4: "b", 5: "c"}
    told = created.brokers["b"].fields
    assert (told["perm"], told["topicSysFlag"], told["order"]) == ("4", "1", "true")
    assert told["attributes"] == "+message.type=FIFO"
    # Whoever has the topic keeps its attributes: they are changes in this request.
    assert broker.fields["attributes"] == ""
    assert_whole(created)


def test_drain_when_the_set_is_read_only_then_a_new_one_is_not(created: StaticCluster) -> None:
    """Writing was taken from the set that is to be retired, and not from the topic."""
    broker, new = created.brokers["a"], created.brokers["c"]
    assert broker.config is not None
    broker.config |= {"perm": 4, "topicSysFlag": 1}
    new.config = new.detail = None
    created.run(f"{DRAIN} -b c")
    assert (new.fields["perm"], new.fields["topicSysFlag"]) == ("6", "1")
    assert broker.fields["perm"] == "4"
    assert_whole(created)


def test_drain_when_sets_may_do_different_things_then_a_new_one_may_do_them_all(
    created: StaticCluster,
) -> None:
    """One set was closed to readers, another one to writers: neither is of the topic."""
    for name, perm in (("a", 4), ("b", 2)):
        created.brokers[name].config |= {"perm": perm}  # type: ignore[operator]
    created.brokers["c"].config = created.brokers["c"].detail = None
    created.run(f"{DRAIN} -b c")
    assert [created.brokers[name].fields["perm"] for name in "abc"] == ["4", "2", "6"]
    assert_whole(created)


def test_remap_when_run_then_it_stops_each_queue_for_four_requests(
    created: StaticCluster,
) -> None:
    """The order of the steps, with one look at the masters, and where the queues go on."""
    *_, last = created.run(f"remappingStaticTopic {WHO} -b b")
    assert [call.command.code for call in created.calls][5:] == [513, 513, 106, 202, 513, 513, 513]
    assert created.codes() == [
        ("b", 513), ("a", 513), ("a", 202), ("b", 513), ("a", 513), ("c", 513),
    ]  # fmt: skip
    assert created.leaders() == dict.fromkeys(range(4), "b")
    assert [row["logicOffset"] for row in last.data["moves"]] == [10_000, 20_000, 20_000, 20_000]
    assert last.data["moves"][0] == {
        "logicalQueue": 0, "from": "a", "to": "b", "queueId": 0, "logicOffset": 10_000,
    }  # fmt: skip
    assert_whole(created)


@pytest.mark.parametrize("is_javas", [False, True])
def test_remap_when_a_broker_is_asked_for_ends_then_only_for_those_that_are_needed(
    created: StaticCluster, is_javas: bool
) -> None:
    """A topic with a history has thousands of physical queues; Java's brokers tell all the same."""
    created.is_javas = is_javas
    created.run(f"migrateLogicalQueue {WHO} -i 2 -b c")
    assert created.asked_ends == [2]
    assert created.known().brokers["c"].detail is not None
    assert histories(created.known())[2][-1].logic_offset == 20_000


@pytest.mark.parametrize(
    ("line", "leaders"),
    [
        (f"remappingStaticTopic {WHO} -c C", ["a", "a", "b", "c"]),
        (f"migrateLogicalQueue {WHO} -i 2 -b c", ["a", "a", "c", "a"]),
        (f"migrateLogicalQueue {WHO} -fb a -b c", ["c", "c", "c", "c"]),
        (DRAIN, ["b", "c", "b", "c"]),
        (f"updateLogicalQueueNum {WHO} -c C -qn 5", ["a", "a", "a", "a", "b"]),
        (f"updateLogicalQueueMapping {WHO} -c C", ["a", "a", "a", "a"]),
    ],
)
def test_verb_when_run_then_queues_are_where_it_says(
    created: StaticCluster, line: str, leaders: list[str]
) -> None:
    """And once more it has nothing to do."""
    created.run(line)
    assert [created.leaders()[logical] for logical in range(len(leaders))] == leaders
    assert_whole(created)
    created.calls.clear()
    (again,) = created.run(line, LATER)
    assert created.codes() == []
    assert again.plain == "nothing to do\n"
    assert "nothing to do" in again.tables[0].title


def test_scale_out_when_a_broker_set_is_new_then_it_is_told_and_gets_its_share(
    created: StaticCluster,
) -> None:
    """It had never heard of the topic."""
    bigger = StaticCluster("abcd")
    bigger.brokers |= created.brokers
    bigger.run(f"remappingStaticTopic {WHO} -c C")
    assert sorted(bigger.leaders().values()) == ["a", "b", "c", "d"]
    assert_whole(bigger)


def test_retire_when_a_drained_broker_set_is_gone_then_the_topic_goes_on_without_it(
    created: StaticCluster,
) -> None:
    """Its segments have expired, and nothing asks for it."""
    created.run(DRAIN)
    del created.brokers["a"]
    created.run(f"updateStaticTopic {WHO} -c C -qn 5", LATER)
    assert set(created.leaders().values()) == {"b", "c"}
    assert_whole(created)


def test_lost_broker_when_forced_then_its_queues_go_on_elsewhere(created: StaticCluster) -> None:
    """Offline for good, and without force it is left alone: it may come back."""
    created.run(f"migrateLogicalQueue {WHO} -i 0 -b b")
    del created.brokers["a"]
    drain = f"migrateLogicalQueue {WHO} -fb a -c C"
    with pytest.raises(PlanRefused, match="with -fr true"):
        created.run(f"remappingStaticTopic {WHO} -c C", LATER)
    created.run(f"{drain} -fr true", LATER)
    assert created.leaders() == {0: "b"}, "nobody that is there knows of the others"
    created.run(f"remappingStaticTopic {WHO} -c C -fr true", LATER)
    assert len(created.leaders()) == 4
    assert histories(created.known())[3][-1].logic_offset == LOST_OFFSETS
    assert_whole(created)


@pytest.mark.parametrize(
    "line",
    [
        f"updateLogicalQueueMapping {WHO} -c C", f"remappingStaticTopic {WHO} -b b",
        f"migrateLogicalQueue {WHO} -i 0 -b b", f"{DRAIN} -b b", f"updateStaticTopic {WHO} -b b -qn 4",
    ],
)  # fmt: skip
def test_force_when_a_retired_set_is_still_listed_then_its_segments_go(
    created: StaticCluster, line: str
) -> None:
    """It was switched off too early: whoever began to read was sent to a set that has no master."""
    created.run(f"{DRAIN} -b b")
    del created.brokers["a"]
    (waits,) = created.run(line, LATER)
    assert waits.plain == "nothing to do\n"
    assert [len(one) for one in histories(created.known()).values()] == [2] * 4
    created.run(f"{line} -fr true", LATER)
    assert [len(one) for one in histories(created.known()).values()] == [1] * 4
    assert created.leaders() == dict.fromkeys(range(4), "b")
    assert_whole(created)
    if " -fb " in line:
        with pytest.raises(NotFound, match="broker set a is not in the cluster, and no logical"):
            created.run(f"{line} -fr true", LATER)
        return
    (again,) = created.run(f"{line} -fr true", LATER)
    assert again.plain == "nothing to do\n"


# -- rehearsals and refusals -----------------------------------------------------------------------


def test_dry_run_when_asked_for_then_steps_are_shown_and_none_is_taken(
    created: StaticCluster,
) -> None:
    """Where queues end is asked, so that the plan has numbers."""
    before = created.known()
    (report,) = created.run(f"{DRAIN} --dry-run")
    assert created.known() == before
    assert {code for _, code in created.codes()} == {202}
    assert report.files == {}
    assert report.plain.splitlines()[0] == (
        "lead it, beginning undecided: leads 0,2 of 4, epoch 1795277766000, 2 queues (513)"
    )
    assert [step["code"] for step in report.data["steps"]] == [513, 513, 513, 202, 513, 513, 513]
    assert [row["logicOffset"] for row in report.data["moves"]] == [10_000, 20_000, 20_000, 20_000]


def test_dry_run_when_something_was_left_then_finishing_it_is_shown_too(
    created: StaticCluster,
) -> None:
    """As it would be done."""
    created.run_killed(DRAIN, 6)
    (report,) = created.run(f"migrateLogicalQueue {WHO} -i 1 -b b --dry-run", LATER)
    epochs = {step["mappingDetail"]["epoch"] for step in report.data["steps"] if "phase" in step}
    assert len(epochs) == 2
    created.run(f"migrateLogicalQueue {WHO} -i 1 -b b", LATER)
    assert_whole(created)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (f"remappingStaticTopic {WHO} -c C", "no broker of cluster C has topic Orders"),
        (f"updateStaticTopic {WHO} -c X -qn 1", "cluster X is not known"),
        (f"updateStaticTopic {WHO} -b a,x -qn 1", "broker set x is not known"),
        (f"updateStaticTopic {WHO} -b a,far -qn 1", "of clusters C, D"),
    ],
)
def test_change_when_something_is_not_there_then_nothing_is_told(
    cluster: StaticCluster, line: str, words: str
) -> None:
    """A typing error must not make half a topic."""
    with pytest.raises(NotFound, match=words):
        cluster.run(line)
    assert cluster.codes() == []


@pytest.mark.parametrize("more", ["-c C", "-b b", "-c C --dry-run"])
def test_drain_when_nobody_knows_the_set_then_it_is_not_found(
    created: StaticCluster, more: str
) -> None:
    """Who mistyped it would switch off the right one, which still leads its queues."""
    with pytest.raises(NotFound, match="broker set aa is not in the cluster, and no logical"):
        created.run(f"migrateLogicalQueue {WHO} -fb aa {more}")
    assert created.codes() == []


def test_drain_when_the_set_has_had_no_queue_then_there_is_nothing_to_do(
    created: StaticCluster,
) -> None:
    """It is there, and leads nothing: as was wished."""
    (report,) = created.run(f"migrateLogicalQueue {WHO} -fb c -b b", LATER)
    assert report.plain == "nothing to do\n"


def test_drain_when_run_again_after_the_set_is_gone_then_there_is_nothing_to_do(
    created: StaticCluster,
) -> None:
    """Its segments are known still."""
    created.run(f"{DRAIN} -c C")
    del created.brokers["a"]
    (report,) = created.run(f"{DRAIN} -c C", LATER)
    assert report.plain == "nothing to do\n"


def test_change_when_a_set_has_no_master_then_it_waits(created: StaticCluster) -> None:
    """It could not be told, and would go on as before."""
    name_server = created._name_server
    created._name_server = lambda code: name_server(code).replace(  # type: ignore[method-assign]
        b'{"0":"c:1"}', b'{"1":"c:2"}'
    )
    with pytest.raises(NotFound, match="c has no master now"):
        created.run(DRAIN)


def test_change_when_the_topic_is_ordinary_then_it_is_refused(cluster: StaticCluster) -> None:
    """Its messages are in queues that no logical queue has."""
    cluster.brokers["b"].config = {"topicName": TOPIC, "readQueueNums": 8, "writeQueueNums": 8}
    with pytest.raises(PlanRefused, match="is an ordinary topic at b"):
        cluster.run(CREATE)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (f"updateStaticTopic {WHO} -qn 1", "either broker sets with -b or a cluster"),
        (f"updateStaticTopic {WHO} -qn 1 -b a -c C", "either broker sets"),
        (f"updateStaticTopic {WHO} -b a", "number of logical queues with -qn"),
        ("updateStaticTopic -n ns:1 -t ../T -b a -qn 1", "holds other than letters"),
        (f"remappingStaticTopic {WHO}", "either broker sets"),
        (f"migrateLogicalQueue {WHO} -i 1", "its new broker set with -b"),
        (f"migrateLogicalQueue {WHO} -i 1 -fb a -b b", "its new broker set with -b"),
        (f"migrateLogicalQueue {WHO} -b b", "its new broker set with -b"),
        (f"updateLogicalQueueMapping {WHO}", "either broker sets"),
    ],
)
def test_change_when_the_line_is_wrong_then_it_is_said(line: str, words: str) -> None:
    """Before anybody is asked."""
    assert words in usage_error(line)
