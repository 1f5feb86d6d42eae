"""Answers that are kept: as many bytes as may be, and none that is wrong."""

from __future__ import annotations

from rmqha.namesrv.kept_answers import ENTRY_BYTES, TOPICS, TOPICS_OF_CLUSTER, KeptAnswers
from tests.namesrv.node import Node, topic


def route(topic: str, kind: str = "route", zone: str = "") -> tuple[str, str, str]:
    """The key of a route."""
    return (kind, topic, zone)


def test_answers_when_they_are_more_than_may_be_then_who_was_asked_for_longest_ago_goes() -> None:
    """40,000 topics in all forms were 400 MB."""
    kept = KeptAnswers(bytes_max=3 * (ENTRY_BYTES + 100 + len("routeA")))
    for name in "ABC":
        kept.put(route(name), b"x" * 100)
    assert kept.get(route("A")) is not None
    kept.put(route("D"), b"x" * 100)
    assert [name for name in "ABCD" if kept.get(route(name))] == ["A", "C", "D"]
    kept.put(route("A"), b"x" * 101)
    assert [name for name in "ABCD" if kept.get(route(name))] == ["A", "D"]
    assert kept.size == 2 * (ENTRY_BYTES + len("routeA")) + 201


def test_answer_when_it_alone_is_larger_than_may_be_then_it_is_given_and_not_kept() -> None:
    """And nothing is left of it."""
    kept = KeptAnswers(bytes_max=1000)
    assert kept.put(route("A"), b"x" * 1000) == b"x" * 1000
    assert (len(kept), kept.size, kept.made) == (0, 0, 1)


def test_topic_when_it_changes_then_all_its_answers_go_and_no_other() -> None:
    """In each form, and of each zone."""
    kept = KeptAnswers()
    keys = [route("A"), route("A", "bare"), route("A", "bare", "in z"), route("B"), TOPICS]
    for key in keys:
        kept.put(key, b"x")
    kept.forget_topic("A")
    assert [key for key in keys if kept.get(key)] == keys[3:]
    kept.forget_topic("B")
    kept.forget_topic_lists()
    assert (len(kept), kept.size) == (0, 0)
    kept.put(route("A"), b"y")
    kept.clear()
    assert (len(kept), kept.size, kept.get(route("A"))) == (0, 0, None)


def test_answers_when_they_go_then_nothing_is_left_of_their_keys() -> None:
    """Topics and clusters that strangers name would fill the memory, whatever is kept of answers."""
    kept = KeptAnswers()
    for number in range(3):
        kept.put(route(f"T{number}"), b"x")
        kept.forget_topic(f"T{number}")
        assert kept._of_topic == {}
        kept.put((TOPICS_OF_CLUSTER, f"C{number}"), b"x")
        kept.put(route(f"T{number}"), b"x")
        kept.clear()
        assert kept._of_topic == {}
    assert kept._lists == {}


def test_topics_of_a_cluster_when_one_comes_or_goes_then_they_are_listed_anew() -> None:
    """A topic that another cluster has already is none more, but for this one."""
    node = Node()
    node.register()
    node.register([topic("B"), topic("Z")], clusterName="D", brokerName="d", brokerAddr="d:1")

    def listed(cluster: str) -> bytes:
        return node.ask(224, {"cluster": cluster}).body

    assert listed("D") == b'{"topicList":["B","Z"]}'
    assert listed("D") is listed("D")
    node.register(
        [topic("A"), topic("B"), topic("Z")], counter=2, clusterName="D", brokerName="d",
        brokerAddr="d:1",
    )  # fmt: skip
    assert listed("D") == b'{"topicList":["A","B","Z"]}'
    node.ask(216, {"topic": "A", "clusterName": "D"})
    assert listed("D") == b'{"topicList":["B","Z"]}'
    assert listed("C") == b'{"topicList":["A","B"]}'
    kept = len(node.machine.table.kept)
    assert listed("nobody's") == b'{"topicList":[]}'
    assert len(node.machine.table.kept) == kept
