"""Histories of a broker set: real ones are accepted whatever overlaps, broken ones are rejected."""

from __future__ import annotations

import time
from collections import Counter

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.base.errors import InvariantBroken
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.sim.calls import Asked, CallLog, heard, unseen
from rmqha.sim.coverage import GIVEN_UP, HAPPENINGS, SEARCHES, missing, unended
from rmqha.verify.controller_calls import (
    Alter,
    ApplyId,
    Call,
    Clean,
    Elect,
    NextId,
    Read,
    SetState,
    View,
    after,
)
from rmqha.verify.linearizable import Timed, Verdict, check
from tests.controller.metadata.driving import CLUSTER, NAME, Driver


def checked(*history: Timed[Call]) -> Verdict[Call]:
    return check(history, SetState(), after)


def in_order(*calls: Call) -> Verdict[Call]:
    return checked(*(Timed(call, 2.0 * n, 2.0 * n + 1) for n, call in enumerate(calls)))


PAIR: tuple[Call, ...] = (
    NextId(1),
    ApplyId(1, "h:1;1", granted=True),
    ApplyId(2, "h:2;1", granted=True),
    Elect(1, False, View(1, 1, (1,), 1)),
    Alter(1, 1, (1, 2), 1, epoch_after=2),
)
"""Brokers 1 (master, epoch 1) and 2, both in the SyncStateSet of epoch 2."""


def test_a_history_that_is_sequential_is_explained() -> None:
    """A checker that rejects the ordinary would cry wolf at every story."""
    told = Read(View(1, 1, (1, 2), 2))
    elected = Elect(2, True, View(2, 2, (2,), 3))
    verdict = in_order(*PAIR, told, elected, NextId(3), Clean((1,)), Read(View(2, 2, (2,), 3), 2))
    assert verdict.linearizable
    assert len(verdict.order) == 10


def test_an_election_of_the_controller_itself_is_explained() -> None:
    """Clients do not see why a master changed; that it may is part of the model."""
    assert in_order(*PAIR, Read(View(2, 2, (2,), 3))).linearizable
    assert in_order(*PAIR, Read(View(None, 2, (1, 2), 2))).linearizable
    assert in_order(*PAIR, Read(View(1, 3, (1,), 3))).linearizable  # lost, and then elected again
    assert in_order(*PAIR, Elect(2, False, View(2, 3, (2,), 3))).linearizable  # lost before it


def test_an_election_of_the_controller_itself_before_a_cleaning_is_explained() -> None:
    """Whom it elected is cleaned at once: the members are gone, and nobody has seen that master."""
    lost = Clean((1,)), Clean((2,))
    third: Call = ApplyId(3, "h:3;1", granted=True)
    assert in_order(*PAIR, third, *lost, Read(View(None, None, (), 4), 3)).linearizable
    assert in_order(*PAIR, third, *lost, Read(View(None, None, (), 5), 3)).linearizable
    assert in_order(*PAIR, third, Clean((1,)), Read(View(2, 2, (2,), 3))).linearizable
    assert in_order(*PAIR, third, *lost, Read(View(None, None, (), 3), 3)).linearizable is False
    assert in_order(*PAIR, third, *lost, Read(View(None, None, (2,), 5), 3)).linearizable is False


BROKEN: dict[str, tuple[Call, ...]] = {
    "a stale read": (Elect(2, True, View(2, 2, (2,), 3)), Read(View(1, 1, (1, 2), 2))),
    "an epoch given twice": (
        Elect(2, True, View(2, 2, (2,), 3)), Elect(1, True, View(1, 2, (1,), 3))),
    "two masters of one epoch": (Read(View(2, 2, (2,), 3)), Read(View(1, 2, (2,), 3))),
    "an id given twice": (ApplyId(2, "other:2;5", granted=True),),
    "a cleaned id given again": (Clean((2,)), ApplyId(2, "other:2;5", granted=True)),
    "an id of an older cleaning given again": (
        ApplyId(3, "h:3;1", granted=True), Clean((2,)), Clean((3,)),
        ApplyId(2, "other:2;5", granted=True)),
    "an alter with an old master epoch": (
        Elect(2, True, View(2, 2, (2,), 3)), Elect(2, True, View(1, 3, (1,), 4)),
        Alter(1, 1, (1, 2), 4, epoch_after=5)),
    "a cleaned set that is there": (Clean(None), Read(View(1, 1, (1, 2), 2))),
    "a set cleaned twice": (Clean(None), Clean(None)),
    "an id named twice": (NextId(2),),
    "a lost alter": (Alter(1, 1, (1,), 2, epoch_after=3), Read(View(1, 1, (1, 2), 2))),
    "an alter of an old master": (
        Elect(2, True, View(2, 2, (2,), 3)), Alter(1, 1, (1,), 2, epoch_after=3)),
    "an alter twice": (
        Alter(1, 1, (1,), 2, epoch_after=3), Alter(1, 1, (1,), 2, epoch_after=3)),
    "a master from outside the SyncStateSet": (
        Alter(1, 1, (1,), 2, epoch_after=3), Elect(2, True, View(2, 2, (2,), 4))),
    "an epoch that the controller skipped": (Read(View(2, 5, (2,), 3)),),
    "a set that is forgotten": (Read(None),),
    "a registered broker that is unknown": (Read(None, 2),),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_history_that_breaks_a_promise_is_rejected(name: str) -> None:
    """A checker that explains everything checks nothing."""
    verdict = in_order(*PAIR, *BROKEN[name])
    assert verdict.linearizable is False
    assert verdict.stuck in BROKEN[name]


def test_overlapping_calls_may_take_effect_in_either_order_and_later_ones_not() -> None:
    """The times decide: what began after another's end may not be seen before it."""
    pair = [Timed(call, float(n), n + 0.5) for n, call in enumerate(PAIR)]
    old, new = Read(View(1, 1, (1, 2), 2)), Elect(2, True, View(2, 2, (2,), 3))
    assert checked(*pair, Timed(new, 10, 20), Timed(old, 12, 15)).linearizable
    assert checked(*pair, Timed(new, 10, 20), Timed(old, 21, 22)).linearizable is False


def test_a_call_whose_end_nobody_saw_may_take_effect_late_or_never() -> None:
    """A timeout says nothing; a checker that decides for one of both is wrong half the time."""
    pair = [Timed(call, float(n), n + 0.5) for n, call in enumerate(PAIR)]
    lost = Timed[Call](Alter(1, 1, (1,), 2), 10)
    before, later = Read(View(1, 1, (1, 2), 2)), Read(View(1, 1, (1,), 3))
    assert checked(*pair, lost, Timed(before, 11, 12)).linearizable
    assert checked(*pair, lost, Timed(before, 11, 12), Timed(later, 50, 51)).linearizable
    assert checked(*pair, lost, Timed(later, 5.5, 9)).linearizable is False, "not before it began"
    back = (Timed(later, 11, 12), Timed(before, 13, 14))
    assert checked(*pair, lost, *back).linearizable is False


def test_a_search_that_takes_too_long_is_given_up_and_says_so() -> None:
    """A checker that hangs stops the whole run; one that gives up silently proves nothing."""
    many = [Timed[Call](ApplyId(n, f"h:{n};1"), 0) for n in range(1, 16)]
    wrong = Timed[Call](Read(View(9, 9, (9,), 9)), 0, 1)
    verdict = check([*many, wrong], SetState(), after, steps_max=500)
    assert verdict.linearizable is None
    assert verdict.steps == 501


# -- against the real machine ---------------------------------------------------------------------


class Story(Driver):
    """A machine that commits at once, and everything that was asked of it and heard."""

    def put(
        self, code: int, connection: int, body: bytes = b"", **fields: object
    ) -> tuple[Asked, RemotingCommand]:
        texts = {key: str(value) for key, value in fields.items()}
        said = self.ask(code, connection, body, **texts)
        answer = RemotingCommand(said.code, ext_fields=said.ext_fields, body=said.body)
        return Asked(code, texts, body, 0.0), answer


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["apply", "next", "register", "read", "elect", "designate", "alter", "beat",
                         "clean", "close", "wait"]),
        st.integers(1, 3),
        st.sets(st.integers(1, 3), min_size=1),
        st.floats(0, 4), st.floats(0, 4), st.sampled_from([True, True, True, False]),
    ),
    min_size=1, max_size=60,
)  # fmt: skip


def _play(
    story: Story, what: str, broker: int, members: set[int]
) -> tuple[Asked, RemotingCommand] | None:
    who = {"clusterName": CLUSTER, "brokerName": NAME, "brokerId": broker}
    one = story.machine.state.sets.get(NAME)
    match what:
        case "apply":
            return story.put(
                1013, broker, **who, appliedBrokerId=broker, registerCheckCode=f"h:{broker};1"
            )
        case "next":
            return story.put(1012, broker, **who)
        case "register":
            return story.put(1003, broker, **who, brokerAddress=f"h:{broker}")
        case "read":
            return story.put(1004, broker, **who)
        case "elect" | "designate":
            return story.put(1002, broker, **who, designateElect=str(what == "designate").lower())
        case "alter" if one is not None and one.master_broker_id is not None:
            body = {"syncStateSet": sorted(members), "syncStateSetEpoch": one.sync_state_set_epoch}
            return story.put(
                1001, broker, orjson.dumps(body), **who,
                masterBrokerId=one.master_broker_id, masterEpoch=one.master_epoch,
            )  # fmt: skip
        case "clean":
            ids = {"brokerControllerIdsToClean": broker, "isCleanLivingBroker": "true"}
            return story.put(1011, 99, **who, **ids)
        case "beat":
            story.beat(broker, epoch=-1, maxOffset=broker)
        case "close":
            story.close(broker)
            story.pass_time(200)
        case _:
            story.pass_time(500)
    return None


@pytest.mark.costly
@settings(max_examples=150, deadline=None, derandomize=True)
@given(STEPS)
def test_what_the_real_machine_does_is_explained_whatever_overlaps(
    steps: list[tuple[str, int, set[int], float, float, bool]],
) -> None:
    """A rule of the model that the controller does not keep would be one of the two's mistake."""
    story = Story()
    history: list[Timed[Call]] = []
    for at, (what, broker, members, early, late, is_seen) in enumerate(steps):
        said = _play(story, what, broker, members)
        if said is None:
            continue
        call = heard(*said) if is_seen else unseen(said[0])
        if call is not None:
            ended = at + late if is_seen and call != unseen(said[0]) else None
            history.append(Timed(call, at - early, ended))
    assert check(history, SetState(), after).linearizable


# -- the recorder ---------------------------------------------------------------------------------


def _read(log: CallLog) -> Asked:
    return log.asked(RequestCode.CONTROLLER_GET_REPLICA_INFO, {"brokerName": "a"}, b"")


def _told(master: int, epoch: int) -> RemotingCommand:
    fields = {"masterBrokerId": str(master), "masterEpoch": str(epoch)}
    return RemotingCommand(0, ext_fields=fields, body=b'{"syncStateSet":[1],"syncStateSetEpoch":1}')


def test_a_recorded_history_that_nothing_explains_breaks_the_run() -> None:
    """The simulator checks nothing if a wrong history only counts."""
    clock = iter(range(100))
    log = CallLog(lambda: next(clock))
    log.answered(_read(log), _told(1, 7))
    with pytest.raises(InvariantBroken, match="no order of the calls"):
        log.check()


def test_a_recorded_history_is_bounded_and_stays_sound() -> None:
    """Calls that are left out may have changed what those say that ended after them."""
    clock = iter(range(1000))
    log = CallLog(lambda: next(clock), calls_max=3)
    late = _read(log)
    for _ in range(5):
        one = _read(log)
        log.answered(one, RemotingCommand(int(ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST)))
    log.answered(late, _told(1, 1))
    assert len(log.history("a")) == 3
    log.check()
    assert log.tally.checked == 1


def _alter(log: CallLog) -> Asked:
    fields = {"brokerName": "a", "masterBrokerId": "1", "masterEpoch": "1"}
    body = b'{"syncStateSet":[1,2],"syncStateSetEpoch":1}'
    return log.asked(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, fields, body)


def _begun(log: CallLog) -> None:
    """Two brokers, of which 1 is master."""
    for broker_id in ("1", "2"):
        fields = {"brokerName": "a", "appliedBrokerId": broker_id, "registerCheckCode": "h;1"}
        one = log.asked(RequestCode.CONTROLLER_APPLY_BROKER_ID, fields, b"")
        log.answered(one, RemotingCommand(0))
    fields = {"brokerName": "a", "brokerId": "1"}
    one = log.asked(RequestCode.CONTROLLER_ELECT_MASTER, fields, b"")
    told = _told(1, 1)
    ext = {**(told.ext_fields or {}), "syncStateSetEpoch": "1"}
    log.answered(one, RemotingCommand(0, ext_fields=ext, body=told.body))


def _told_both() -> RemotingCommand:
    fields = {"masterBrokerId": "1", "masterEpoch": "1"}
    return RemotingCommand(
        0, ext_fields=fields, body=b'{"syncStateSet":[1,2],"syncStateSetEpoch":2}'
    )


@pytest.mark.parametrize("seen", [True, False])
def test_a_bounded_history_keeps_who_was_under_way_at_its_end(seen: bool) -> None:
    """What a call did before the end stands in answers that are kept: it would look like a lie."""
    clock = iter(range(1000))
    log = CallLog(lambda: next(clock), calls_max=4)
    _begun(log)
    late = _alter(log)
    log.answered(_read(log), _told_both())
    log.answered(_read(log), _told_both())  # one too many
    done = RemotingCommand(0, ext_fields={"newSyncStateSetEpoch": "2"})
    log.answered(late, done if seen else None)
    log.answered(_alter(log), None)  # begins behind the end
    assert len(log.history("a")) == 5
    log.check()


def test_a_bounded_history_that_is_broken_before_its_end_breaks_the_run() -> None:
    """Bounds that hide what was before them would hide everything of a long run."""
    clock = iter(range(1000))
    log = CallLog(lambda: next(clock), calls_max=4)
    _begun(log)
    for _ in range(3):
        log.answered(_read(log), _told_both())  # nobody has altered
    with pytest.raises(InvariantBroken, match="no order of the calls"):
        log.check()


def test_a_cleaning_is_recorded_with_the_ids_and_whether_it_was_done() -> None:
    """Else an id may be given again, and nobody knows that it was cleaned."""
    fields = {"brokerName": "a", "brokerControllerIdsToClean": "3;2"}
    one = Asked(int(RequestCode.CLEAN_BROKER_DATA), fields, b"", 0.0)
    assert heard(one, RemotingCommand(0)) == Clean((2, 3))
    assert unseen(one) == Clean((2, 3), done=False)
    refused = RemotingCommand(int(ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA))
    assert heard(one, refused) is None
    whole = Asked(int(RequestCode.CLEAN_BROKER_DATA), {"brokerName": "a"}, b"", 0.0)
    assert heard(whole, RemotingCommand(0)) == Clean(None)


def test_a_search_that_is_given_up_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of searches without verdicts would end well."""
    counts: Counter[str] = Counter()
    clock = iter(range(100))
    log = CallLog(lambda: next(clock), counts=counts)
    log.answered(
        _read(log), RemotingCommand(int(ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST))
    )
    log.check()
    assert (counts[SEARCHES], counts[GIVEN_UP]) == (1, 0)
    monkeypatch.setattr("rmqha.sim.calls.check", lambda *_: Verdict(None, 50_001))
    log.check()
    assert (counts[SEARCHES], counts[GIVEN_UP]) == (2, 1)
    done = dict.fromkeys(HAPPENINGS, 1)
    assert missing(done, []) == []
    assert missing({**done, **counts}, []) == unended(counts) != []


def test_some_hundred_calls_are_checked_in_milliseconds() -> None:
    """The simulator does this after every story."""
    reads = [Timed[Call](Read(View(1, 1, (1, 2), 2)), 10 + n, 13.5 + n) for n in range(400)]
    pair = [Timed(call, float(n), n + 0.5) for n, call in enumerate(PAIR)]
    began = time.process_time()
    assert checked(*pair, *reads).linearizable
    assert time.process_time() - began < 0.5
