"""Pulls that wait, one by one: what goes wrong with one, and what another has to look at."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from rmqha.base.errors import LocalProtocolError
from rmqha.broker.pull.aio import pull_requests
from rmqha.broker.pull.request import PullRequest, parse_pull
from rmqha.ha.events import Role
from rmqha.store.aio.pulling import Pulled
from tests.broker.replicas import TOPIC, ReplicaCluster, master_of, send_fields
from tests.broker.subscriber import Subscriber, pull_fields

GROUP = "CG"


@pytest.fixture
def alone() -> Iterator[ReplicaCluster]:
    """One replica, which reigns, with a message."""
    with ReplicaCluster(seed=21, replicas=1) as one:
        one.boot_all()
        put(one)
        yield one


def put(cluster: ReplicaCluster, tag: str = "TagA") -> None:
    """Send a message."""
    fields = send_fields(0) | {"e": "0"}
    fields["i"] = fields["i"].replace("TagA", tag)
    assert cluster.ask(master_of(cluster).config.address, 310, fields, b"x").code == 0


def connect(cluster: ReplicaCluster) -> Subscriber:
    """A client of the master."""
    return Subscriber(cluster, master_of(cluster).config.address, "c1")


def wanted(offset: int) -> PullRequest:
    """A pull that may wait."""
    return parse_pull({name: str(it) for name, it in pull_fields(GROUP, TOPIC, offset).items()})


def refuse(*_: object, **__: object) -> None:
    """No frame can be made."""
    raise LocalProtocolError("frame of 16777217 bytes is over the limit")


@pytest.mark.parametrize("found_by", ["arrival", "the end of its time", "remap"])
def test_pull_when_its_answer_makes_no_frame_then_it_is_refused_and_all_others_go_on(
    alone: ReplicaCluster, found_by: str
) -> None:
    """What one pull met ended the dispatcher, and with it the broker."""
    client, waiting = connect(alone), master_of(alone)._pull.waiting
    number = client.pull(GROUP, TOPIC, 1, suspendTimeoutMillis=1_000)
    alone.until(lambda: len(waiting) == 1, "the pull", 200)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(waiting._serving, "once_more" if found_by == "remap" else "serve", refuse)
        if found_by == "arrival":
            put(alone)
        elif found_by == "remap":
            (held,) = waiting._held.all()
            place: Any = SimpleNamespace(wanted=wanted(1))
            held.asked = held.asked._replace(place=place)
            waiting._remapped(frozenset({TOPIC}))
        alone.until(lambda: number in client.answers, "the answer", 1_500)
    answer = client.answers[number]
    assert (answer.code, "over the limit" in (answer.remark or "")) == (1, True)
    put(alone)
    assert client.ask(11, pull_fields(GROUP, TOPIC, 1, sysFlag=4)).code == 0


def test_pull_when_its_queue_cannot_be_read_then_it_waits_no_more(alone: ReplicaCluster) -> None:
    """It was answered: nobody takes it away, and the next message would answer it again."""
    client, waiting = connect(alone), master_of(alone)._pull.waiting
    number = client.pull(GROUP, TOPIC, 1)
    alone.until(lambda: len(waiting) == 1, "the pull", 200)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(waiting._serving, "read", refuse)
        put(alone)
        alone.until(lambda: number in client.answers, "the answer", 200)
    assert len(waiting) == 0


def test_pull_when_very_many_are_not_for_it_then_others_have_their_turn_in_between(
    alone: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A filter that looks into each of a million messages stopped the loop until it was through."""
    client, waiting = connect(alone), master_of(alone)._pull.waiting
    number = client.pull(GROUP, TOPIC, 1, subscription="wanted")
    alone.until(lambda: len(waiting) == 1, "the pull", 200)
    monkeypatch.setattr(pull_requests, "SCAN_MAX", 1)
    serving, events = waiting._serving, []
    read = serving.read

    def noted(*asked: Any) -> Pulled:
        events.append("read")
        alone.loop.call_soon(events.append, "others")
        return read(*asked)

    monkeypatch.setattr(serving, "read", noted)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(waiting, "_told", lambda _: None)
        (told,) = waiting._broker.arrivals._told.values()
        told.clear()
        for tag in ("other", "other", "other", "wanted"):
            put(alone, tag)
    waiting._to_look_at.add(waiting._held.all())
    alone.until(lambda: number in client.answers, "the answer", 200)
    assert client.answers[number].code == 0
    assert events[:7] == ["read", "others"] * 3 + ["read"]


def test_pull_when_all_there_is_was_for_others_then_nobody_looks_again_before_more_comes(
    alone: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of thousands that wait with a filter, each would look twice at every message."""
    client, waiting = connect(alone), master_of(alone)._pull.waiting
    client.pull(GROUP, TOPIC, 1, subscription="wanted")
    alone.until(lambda: len(waiting) == 1, "the pull", 200)
    serving, offsets = waiting._serving, list[int]()
    read = serving.read

    def noted(asked: Any, offset: int) -> Pulled:
        offsets.append(offset)
        return read(asked, offset)

    monkeypatch.setattr(serving, "read", noted)
    put(alone, "other")
    alone.run_for(100)
    put(alone, "other")
    alone.run_for(100)
    assert offsets == [1, 2]


def test_pull_when_a_slave_is_asked_within_what_it_has_then_only_what_is_beyond_waits(
    alone: ReplicaCluster,
) -> None:
    """Below a queue's begin nothing will ever come: the consumer is to ask its master."""
    one = master_of(alone)
    waiting, clock = one._pull.waiting, one.clock
    broker: Any = SimpleNamespace(
        role=Role.SLAVE, config=one.config, clock=clock, arrivals=one.arrivals
    )
    waiting._broker = broker
    connection: Any = SimpleNamespace(is_closing=False, id=99)

    def waits(offset: int) -> bool:
        pull = wanted(offset)
        request: Any = SimpleNamespace(ext_fields=None)
        asked: Any = SimpleNamespace(pull=pull, connection=connection, request=request, place=None)
        found = Pulled("OFFSET_TOO_SMALL", [], 0, 0, 5, 5, 9)
        if offset > 9:
            found = found._replace(status="OFFSET_OVERFLOW_BADLY", next_offset=9)
        return waiting.hold(asked, found)

    assert waits(10)
    assert not waits(3)
    waiting._broker = one
    waiting.close()
