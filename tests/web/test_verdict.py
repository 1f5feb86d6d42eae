"""The page's first line, and the ten minutes behind it: each kind of trouble, and no claim too many."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from msgspec.structs import replace

from rmqha.web.document import (
    BrokerSetView,
    ControllerView,
    NodeView,
    ReplicaView,
    Sentence,
    StatusDocument,
)
from rmqha.web.history import SAMPLE_MS, SAMPLES_MAX, SETS_MAX, History
from rmqha.web.verdict import FIRST_WORDS_MS, SENTENCES_MAX, judge, troubles_of

NODE = NodeView("controller", "here:1", "0", 0)
MASTER = ReplicaView(1, "a:1", "master", True, True, put_tps=12.0)
SLAVE = ReplicaView(2, "a:2", "slave", True, True, gap_bytes=7)
OTHER = ReplicaView(3, "a:3", "slave", True, True, gap_bytes=0)
LEADS, FOLLOWS = ControllerView("n0", "c:1", True, True), ControllerView("n1", "c:2", False, False)


def document(
    *replicas: ReplicaView, time_ms: int = 0, controllers: object = (LEADS,)
) -> StatusDocument:
    """A set of these replicas."""
    one = BrokerSetView("C", "broker-a", replicas)
    return StatusDocument(time_ms, NODE, controllers, (one,) if replicas else ())  # type: ignore[arg-type]


def said(*replicas: ReplicaView, **more: object) -> tuple[str, list[str]]:
    """The level and all sentences."""
    verdict = judge(document(*replicas, **more), {})  # type: ignore[arg-type]
    assert verdict.level == verdict.sentences[0].level
    return verdict.level, [one.text for one in verdict.sentences]


DEAD = replace(OTHER, alive=False, in_sync=False, heard_ms_ago=20_000)
UNHEARD = replace(OTHER, alive=False)
NOT_HEARD = (
    "The master of broker-a is not heard here: if it is down and not only cut off, nobody can write"
    " to the set."
)
KINDS = {
    "well": ((MASTER, SLAVE, OTHER), "good", ["All is well: all 3 replicas of broker-a are alive and in sync."]),
    "one down": (
        (MASTER, SLAVE, DEAD), "warn",
        ["1 of 3 replicas of broker-a is down; writes go on."],
    ),
    "two down": (
        (MASTER, replace(DEAD, broker_id=2), DEAD), "warn",
        [
            "2 of 3 replicas of broker-a are down; writes go on.",
            "Only the master of broker-a has its newest messages.",
        ],
    ),
    "one that was in sync has just died": (
        (MASTER, replace(SLAVE, alive=False, heard_ms_ago=3_000)), "warn",
        [
            "1 of 2 replicas of broker-a is down; writes go on.",
            "Only the master of broker-a has its newest messages.",
        ],
    ),
    "nobody writes": (
        (replace(MASTER, put_tps=0.0), SLAVE, DEAD), "warn",
        ["1 of 3 replicas of broker-a is down; its master is alive."],
    ),
    "not in sync": (
        (MASTER, SLAVE, replace(OTHER, in_sync=False)), "warn",
        ["1 of 3 replicas of broker-a is not in sync; writes go on."],
    ),
    "no master": (
        (SLAVE, OTHER), "bad", ["broker-a has no master: nobody can write to it."],
    ),
    "a master that was heard": (
        (replace(MASTER, alive=False, put_tps=None, heard_ms_ago=12_000), SLAVE), "bad", [NOT_HEARD],
    ),
    "replicas that were never heard": (
        (MASTER, replace(UNHEARD, broker_id=2), UNHEARD), "warn",
        ["2 of 3 replicas of broker-a are not heard here since this node started; writes go on."],
    ),
    "a slave's page": (
        (replace(MASTER, alive=None, in_sync=None, put_tps=None), SLAVE), "good",
        ["Nothing is wrong that this node knows of; of 1 replicas it knows nothing."],
    ),
    "a name server's page": (
        (replace(MASTER, in_sync=None), replace(SLAVE, in_sync=None)), "good",
        ["All is well: all 2 replicas of broker-a are alive."],
    ),
    "a master alone by itself": (
        (MASTER,), "good", ["All is well: all 1 replicas of broker-a are alive and in sync."],
    ),
    "nobody": ((), "good", ["No broker has registered here yet."]),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_verdict_when_judged_then_it_says_what_is_so_and_no_more(kind: str) -> None:
    """A page that says "all is well" over a dead replica is worse than none."""
    replicas, level, sentences = KINDS[kind]
    assert said(*replicas) == (level, sentences)


def test_verdict_when_a_node_has_just_started_then_it_does_not_call_the_master_dead() -> None:
    """A follower that was restarted has applied who is master before it hears anybody."""
    unheard = replace(MASTER, alive=False, put_tps=None)
    early, late = (
        document(unheard, SLAVE, time_ms=one) for one in (FIRST_WORDS_MS - 1, FIRST_WORDS_MS)
    )
    (sentence,) = judge(early, {}).sentences
    assert sentence.level == "warn"
    assert "has not heard the master of broker-a yet" in sentence.text
    (sentence,) = judge(late, {}).sentences
    assert (sentence.level, sentence.text) == ("bad", NOT_HEARD)


def test_verdict_when_a_broker_has_heard_of_no_master_then_it_does_not_say_that_there_is_none() -> (
    None
):
    """A replica that reaches no controller: the set may be well without it."""
    seen = replace(document(SLAVE), node=replace(NODE, kind="broker"))
    (sentence,) = judge(seen, {}).sentences
    assert sentence.level == "warn"
    assert sentence.text.startswith("This broker knows no master of broker-a")


def test_verdict_when_no_controller_leads_then_that_is_first() -> None:
    """The worst of several troubles is the one to read."""
    level, sentences = said(MASTER, SLAVE, DEAD, controllers=(FOLLOWS,))
    assert level == "bad"
    assert sentences[0].startswith("No controller leads")
    assert sentences[1].startswith("1 of 3 replicas")
    assert said(MASTER, SLAVE, controllers=())[0] == "good"


def test_verdict_when_the_node_itself_lacks_something_then_nothing_is_called_well() -> None:
    """A master without its write lease has living slaves in sync."""
    lacks = Sentence("bad", "This master takes no sends: its disk is full.", "own/disk")
    seen = document(MASTER, SLAVE, DEAD)
    seen = replace(seen, node=replace(NODE, troubles=(lacks,)))
    verdict = judge(seen, {"own/disk": 5})
    assert verdict.level == "bad"
    assert verdict.sentences[0] == replace(lacks, since_ms=5)
    assert len(verdict.sentences) == 2
    assert "own/disk" in troubles_of(seen)


def test_verdict_when_many_sets_are_in_trouble_then_it_is_bounded() -> None:
    """A thousand sets of one data centre that is away."""
    sets = tuple(BrokerSetView("C", f"broker-{n}", (SLAVE,)) for n in range(1000))
    one = judge(StatusDocument(0, NODE, (), sets), {})
    assert len(one.sentences) == SENTENCES_MAX
    assert one.level == "bad"


def test_since_when_there_was_no_room_to_tell_a_trouble_then_it_does_not_begin_when_it_is_told() -> (
    None
):
    """Of 25 sets that were in trouble at the first look five seemed to be so since others were mended."""

    def seen(good: int, time_ms: int) -> StatusDocument:
        sets = tuple(
            BrokerSetView("C", f"broker-{n:02}", (MASTER, OTHER if n < good else DEAD, SLAVE))
            for n in range(SENTENCES_MAX + 5)
        )
        return StatusDocument(time_ms, NODE, (LEADS,), sets)

    history = History()
    history.add(seen(good=0, time_ms=1))
    history.add(later := seen(good=5, time_ms=2))
    assert {one.since_ms for one in judge(later, history.since).sentences} == {None}
    history.add(seen(good=SENTENCES_MAX + 5, time_ms=3))
    history.add(seen(good=0, time_ms=4))
    history.add(later := seen(good=5, time_ms=5))
    told = judge(later, history.since).sentences
    assert [one.since_ms for one in told] == [4] * SENTENCES_MAX


def test_since_when_a_trouble_comes_and_goes_then_it_begins_anew() -> None:
    """And what was so at the first look has no beginning that anybody knows."""
    history = History()
    history.add(document(MASTER, SLAVE, DEAD, time_ms=1))
    history.add(document(MASTER, SLAVE, DEAD, time_ms=2))
    assert history.since == {}
    history.add(document(MASTER, SLAVE, OTHER, time_ms=3))
    broken = document(MASTER, SLAVE, DEAD, time_ms=4)
    history.add(broken)
    history.add(replace(broken, time_ms=9))
    (key,) = troubles_of(broken)
    assert history.since == {key: 4}
    assert judge(broken, history.since).sentences[0].since_ms == 4
    history.add(document(MASTER, SLAVE, OTHER, time_ms=10))
    assert history.since == {}


def test_history_when_longer_than_ten_minutes_then_the_oldest_go() -> None:
    """The page draws a line of this, in a process that runs for months."""
    history = History()
    for number in range(3 * SAMPLES_MAX):
        history.add(document(MASTER, SLAVE, DEAD, time_ms=number * SAMPLE_MS // 2))
    times = [one.time_ms for one in history.samples]
    assert len(times) == SAMPLES_MAX
    assert {b - a for a, b in pairwise(times)} == {SAMPLE_MS}
    assert times[-1] - times[0] == 595_000
    assert json.loads(history.encode())[-1]["sets"] == [
        {
            "name": "C/broker-a", "has_master": True, "alive": 2, "in_sync": 2,
            "put_tps": 12.0, "gap_bytes": 7, "epoch": None,
        }
    ]  # fmt: skip


def test_history_when_a_master_was_never_heard_then_no_time_without_one_is_drawn() -> None:
    """The red of a chart is a time in which nobody could write."""
    history = History()
    history.add(document(replace(MASTER, alive=False, put_tps=None)))
    gone = replace(MASTER, alive=False, put_tps=None, heard_ms_ago=12_000)
    history.add(document(gone, time_ms=SAMPLE_MS))
    assert [one.sets[0].has_master for one in history.samples] == [True, False]


def test_history_when_nothing_is_known_then_nothing_is_drawn() -> None:
    """A slave knows neither its master's rates nor whether it lives; zero would be a guess."""
    history = History()
    history.add(document(replace(MASTER, alive=None, in_sync=None, put_tps=None)))
    (one,) = history.samples[0].sets
    assert (one.alive, one.in_sync, one.put_tps, one.gap_bytes) == (None, None, None, None)
    sets = tuple(BrokerSetView("C", f"broker-{n}", (SLAVE,)) for n in range(2 * SETS_MAX))
    history.add(StatusDocument(SAMPLE_MS, NODE, (), sets))
    assert len(history.samples[1].sets) == SETS_MAX
