"""The bytes of a trace, its bounds on disk, and how it is played."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from rmqha.base.errors import InvariantBroken
from rmqha.runtime import trace


class Colour(Enum):
    """Something with a name."""

    RED = "red"


class Added(Struct, frozen=True):
    """An event."""

    what: object
    cached: object = None


class Place(NamedTuple):
    """A value in an event."""

    x: int
    y: int


class Sum:
    """Adds numbers, and answers what it has; below 0 is forbidden."""

    def __init__(self, start: int) -> None:
        self.total = start

    def step(self, now_ms: int, event: Added) -> list[object]:
        """Add."""
        assert isinstance(event.what, int)
        self.total += event.what
        if self.total < 0:
            raise InvariantBroken("below 0")
        return [self.total]


class Doubled(Sum):
    """A mutant: it counts 3 as 4."""

    def step(self, now_ms: int, event: Added) -> list[object]:
        """Add, wrongly."""
        return super().step(now_ms, Added(4) if event.what == 3 else event)


KIND = trace.Kind("sum", (Added,), Sum, left_out=frozenset({("Added", "cached")}))

plain = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False),
    st.text(max_size=5), st.binary(max_size=5), st.just(Colour.RED),
    st.builds(Place, st.integers(0, 9), st.integers(0, 9)),
    st.frozensets(st.integers(0, 99)),
)  # fmt: skip
values = st.recursive(
    plain,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=3), inner, max_size=3),
        inner.map(Added),
    ),
    max_leaves=8,
)


def recorded(*numbers: int) -> list[trace.Record]:
    """The trace of a sum that began with 10."""
    core = Sum(10)
    records: list[trace.Record] = [
        trace.Opened(trace.TRACE_VERSION, "test", 0), trace.begun(1, KIND, 10),
    ]  # fmt: skip
    for now_ms, number in enumerate(numbers):
        event = Added(number)
        try:
            effects: object = core.step(now_ms, event)
        except InvariantBroken as error:
            effects = trace.failure_of(error)
        records.append(trace.stepped(1, KIND, now_ms, event, effects))  # type: ignore[arg-type]  # a row
    return records


@pytest.mark.costly
@given(values)
def test_pack_when_any_value_goes_through_the_bytes_then_it_comes_back(value: object) -> None:
    """An event that comes back as another makes other effects, and the core looks guilty."""
    types = {one.__name__: one for one in (Colour, Place, Added)}
    record = trace.Begun(1, "any", trace.pack(value))
    opened = trace.Opened(trace.TRACE_VERSION, "test", 0)
    _, back = trace.read_records(trace.encode(opened) + trace.encode(record))
    assert isinstance(back, trace.Begun)
    found = trace.unpack(back.start, types)
    assert found == value
    assert type(found) is type(value)


def test_pack_when_a_set_is_built_in_another_order_then_the_bytes_are_the_same() -> None:
    """Equal effects would have other digests, and every replay would differ."""
    assert trace.digest_of([frozenset([1, 65, 129])]) == trace.digest_of([frozenset([129, 65, 1])])


def test_unpack_when_a_class_is_not_of_the_kind_then_it_is_not_made() -> None:
    """A file from outside must not choose what is called here."""
    with pytest.raises(trace.TraceUnreadable, match="no value of this release"):
        trace.unpack(["o", "Popen", "true"], {"Added": Added})


def test_pack_when_a_field_is_left_out_then_it_is_none() -> None:
    """What is kept twice would make a controller's trace twice as large."""
    packed = trace.pack(Added(1, cached=object()), KIND.left_out)
    assert trace.unpack(packed, {"Added": Added}) == Added(1)


def test_read_records_when_the_last_one_is_torn_then_the_others_are_read() -> None:
    """A trace is wanted most when its process was killed in the middle of a write."""
    data = b"".join(trace.encode(record) for record in recorded(1, 2))
    for cut in range(1, 12):
        assert list(trace.read_records(data[:-cut])) == recorded(1)


def test_read_records_when_the_version_is_another_then_it_is_refused() -> None:
    """Played by other rules, it would accuse a core that did nothing wrong."""
    data = trace.encode(trace.Opened(trace.TRACE_VERSION + 1, "later", 0))
    with pytest.raises(trace.TraceUnreadable, match="version"):
        list(trace.read_records(data))
    with pytest.raises(trace.TraceUnreadable):
        list(trace.read_records(b"\0\0\0\3abc"))


def test_replay_when_the_core_is_the_same_then_nothing_differs() -> None:
    """Also what a core raises must come again."""
    played = trace.replay(recorded(1, 3, -20, 5), {"sum": KIND})
    assert played.difference is None
    assert played.events == {"sum": 4}


def test_replay_when_the_core_is_a_mutant_then_the_first_difference_is_named() -> None:
    """A later event would send whoever looks for the reason to the wrong place."""
    mutant = KIND._replace(make=Doubled)
    played = trace.replay(recorded(1, 3, 3), {"sum": mutant})
    assert played.difference is not None
    assert played.difference.number == 2
    assert played.difference.now_ms == 1
    assert played.difference.recorded == ("14",)
    assert played.difference.replayed == ("15",)
