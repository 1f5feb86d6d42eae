"""Hypothesis strategies for commands, shared by the tests of this folder."""

from __future__ import annotations

from hypothesis import strategies as st

from rmqha.remoting.codes import LANGUAGE_CODES
from rmqha.remoting.command import SERIALIZE_JSON, SERIALIZE_ROCKETMQ, RemotingCommand

# Lone surrogates are no text: UTF-8 has no bytes for them.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
filled_texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
int32 = st.integers(-(2**31), 2**31 - 1)


@st.composite
def commands(draw: st.DrawFn, serialize_type: int | None = None) -> RemotingCommand:
    """A command that its header format can carry without loss."""
    if serialize_type is None:
        serialize_type = draw(st.sampled_from([SERIALIZE_JSON, SERIALIZE_ROCKETMQ]))
    binary = serialize_type == SERIALIZE_ROCKETMQ
    # Binary headers have no empty text and no empty field block: zero length is null.
    value = filled_texts if binary else texts
    fields = st.dictionaries(value, value, min_size=1 if binary else 0, max_size=5)
    return RemotingCommand(
        code=draw(st.integers(0, 65_535) if binary else int32),
        opaque=draw(int32),
        flag=draw(int32),
        language=draw(st.sampled_from(sorted(LANGUAGE_CODES))),
        version=draw(st.integers(-(2**15), 2**15 - 1) if binary else int32),
        remark=draw(st.none() | value),
        ext_fields=draw(st.none() | fields),
        body=draw(st.binary(max_size=50)),
        serialize_type=serialize_type,
    )
