"""Properties of many records at once are what the store reads of each."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.pipeline.commitlog.property_columns import PropertyColumns
from rmqha.store import properties as props

PIECE = st.text(st.sampled_from("aTé\x00"), max_size=3).map(str.encode)
PAIR = st.one_of(
    st.tuples(st.sampled_from([b"TAGS", b"KEYS", b"k"]), PIECE).map(b"\x01".join),
    st.tuples(PIECE, PIECE).map(b"\x01".join),
    st.sampled_from([b"", b"x", b"a\x01b\x01c", b"\xff\x01v", b"\x01"]),
)
PLAIN = st.dictionaries(
    st.text("abTAGSKEY", min_size=1, max_size=5), st.text("xyé", min_size=1, max_size=4), max_size=4
).map(props.encode)
RAW = st.one_of(
    PLAIN,
    PLAIN.map(lambda raw: raw.removesuffix(b"\x02")),
    st.lists(PAIR, max_size=4).map(b"\x02".join),
)


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(RAW, max_size=6), st.booleans())
def test_properties_when_read_together_then_as_one_by_one(raws: list[bytes], sliced: bool) -> None:
    """Plain rows take the way without a loop, all others the store's own reader."""
    array = pa.array(raws, pa.binary())
    if sliced and raws:
        array, raws = array[1:], raws[1:]
    columns = PropertyColumns(array)
    expected = [props.decode(raw) for raw in raws]
    assert [dict(row) for row in columns.column("properties").to_pylist()] == expected
    for name, key in (("tags", "TAGS"), ("keys", "KEYS")):
        assert columns.column(name).to_pylist() == [one.get(key) for one in expected]


@pytest.mark.parametrize("ending", [b"\x02", b""])
def test_properties_when_plain_then_no_record_is_read_alone(
    ending: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java leaves the last separator out in some versions."""
    monkeypatch.setattr(props, "decode", None)
    raws = [b"TAGS\x01a\x02KEYS\x01b" + ending, b"", b"KEYS\x01\xc3\xa9" + ending]
    columns = PropertyColumns(pa.array(raws, pa.binary()))
    assert columns.column("keys").to_pylist() == ["b", None, "é"]
    assert columns.column("tags").to_pylist() == ["a", None, None]
