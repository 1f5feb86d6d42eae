"""1006 of many broker sets: taken apart, put together, and never more than somebody can have."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.controller.machine import MachineSettings
from rmqha.controller.metadata import sync_state_data
from rmqha.controller.metadata.apply import apply
from rmqha.controller.metadata.decide import NOT_LEADER
from rmqha.controller.metadata.decision import Decision
from rmqha.controller.metadata.events import BrokerIdTaken
from rmqha.controller.metadata.sync_state_data import (
    NAMES_BYTES_MAX,
    NOT_SET,
    TOO_LARGE,
    parts_of,
    put_together,
)
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.settings import FRAME_BYTES_MAX
from tests.controller.metadata.driving import CLUSTER, Driver, in_parts, whole

MANY = 100_000
"""Names that a question may hold, where that is not what is tested."""


def driver_of(sizes: list[int]) -> Driver:
    """Sets s0, s1, .. of so many replicas."""
    driver = Driver()
    for at, size in enumerate(sizes):
        for number in range(1, size + 1):
            event = BrokerIdTaken(CLUSTER, f"s{at}", f"h:{number}", number, "x")  # type: ignore[arg-type]
            apply(driver.machine.state, event)
    return driver


@given(
    st.lists(st.integers(1, 7), min_size=1, max_size=12),
    st.lists(st.one_of(st.integers(0, 12).map("s{}".format), st.integers(0, 9)), max_size=20),
    st.integers(1, 9),
)
def test_parts_when_put_together_then_they_are_the_one_answer(
    sizes: list[int], names: list[object], a_part: int
) -> None:
    """Byte for byte, with names that come twice, that nobody has, and that are none."""
    driver, body = driver_of(sizes), orjson.dumps(names)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sync_state_data, "REPLICAS_A_PART", a_part)
        parts = parts_of(driver.machine.state, body, MANY)
    once = driver.ask(1006, 9, body)
    if parts:
        found, turns = in_parts(put_together(lambda one: _ask(driver, one), parts))
        assert isinstance(found, list)
        assert b"".join(found) == once.body
        assert turns == len(parts)
    asked = {name for name in names if isinstance(name, str) and int(name[1:]) < len(sizes)}
    replicas = {name: sizes[int(name[1:])] for name in asked}
    assert bool(parts) == (sum(replicas.values()) > a_part)
    told = [replicas[name] for part in parts for name in orjson.loads(part)]
    assert not parts or sum(told) == sum(replicas.values())
    for part in parts:
        counts = [replicas[name] for name in orjson.loads(part)]
        assert sum(counts[:-1]) < a_part, "a part ends with the set that fills it"


def _ask(driver: Driver, body: bytes) -> Decision:
    return driver.machine.read(driver.now_ms, 9, 1006, {}, body)


def test_parts_when_this_node_leads_no_more_then_the_whole_is_refused() -> None:
    """What it told of the first sets may be old already."""
    parts, answers = [b"1", b"2", b"3"], iter([Decision(0, body=b'{"replicasInfoTable":{}}')])
    found, turns = in_parts(put_together(lambda _: next(answers, NOT_LEADER), parts))
    assert (found, turns) == (NOT_LEADER, 1)


def test_parts_when_they_fit_into_no_frame_then_no_further_ones_are_made() -> None:
    """20,000 sets may have 20 million replicas."""
    some = Decision(0, body=b'{"replicasInfoTable":{' + bytes(FRAME_BYTES_MAX // 3) + b"}}")
    found, turns = in_parts(put_together(lambda _: some, [b""] * 99))
    assert (found, turns) == (TOO_LARGE, 2)


def test_parts_when_no_set_of_one_is_left_then_the_others_are_told() -> None:
    """It was cleaned meanwhile."""
    none, one = (Decision(0, body=b'{"replicasInfoTable":{' + it + b"}}") for it in (b"", b'"a":1'))
    answers = iter([none, one, none])
    found = whole(put_together(lambda _: next(answers), [b""] * 3))
    assert isinstance(found, list)
    assert orjson.loads(b"".join(found)) == {"replicasInfoTable": {"a": 1}}


@pytest.mark.parametrize(
    "body", [b'["' + b"a" * NAMES_BYTES_MAX + b'"]', b'["a","b","c","d"]', b"[" + b"," * 4]
)
def test_question_when_it_names_too_many_then_it_is_refused_and_not_parsed(
    body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1.6 million names took 1.7 s, in which nobody's heartbeat was heard."""
    driver = Driver(MachineSettings(broker_sets_max=3))
    assert driver.ask(1006, 9, b'["a","b","c"]').code == ResponseCode.SUCCESS
    monkeypatch.setattr(sync_state_data.orjson, "loads", None)
    found = driver.ask(1006, 9, body)
    assert found.code == ResponseCode.CONTROLLER_INVALID_REQUEST
    assert "3 broker-sets and 2097152 bytes at most" in (found.remark or "")
    assert parts_of(driver.machine.state, body, 3) == []


def test_question_when_it_is_none_then_there_are_no_parts() -> None:
    for body in (b"", b"[]", b"{}", b"no"):
        assert parts_of(driver_of([3]).machine.state, body, MANY) == []
        assert _ask(driver_of([3]), body) == NOT_SET
