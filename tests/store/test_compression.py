"""Compressed bodies: frames that Java made, damage, and bodies that grow without bound."""

from __future__ import annotations

import sys
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.store import compression
from rmqha.store.compression import plain_body
from rmqha.store.record import COMPRESSED

BODY = b"rocketmq body " * 400
JAVA_FRAMES = {
    0x100: "04224d186070732d000000ef726f636b65746d7120626f6479200e00ffffffffffffffffffffffffffffffff"
    "ffffffffffcf50626f64792000000000",
    0x200: "28b52ffd0058b4000070726f636b65746d7120626f6479200100cf15fd5402010000",
}
"""What ``CompressorFactory`` of rocketmq-common 5.3.3 made of ``BODY``, by the kind in the flags."""


@pytest.mark.parametrize("kind", JAVA_FRAMES)
def test_frames_of_java_when_undone_then_the_body(kind: int) -> None:
    """Also only when the flags say that they are compressed."""
    frame = bytes.fromhex(JAVA_FRAMES[kind])
    assert plain_body(frame, COMPRESSED | kind) == BODY
    assert plain_body(frame, kind) is None


@pytest.mark.parametrize("kind", [0, 0x300])
def test_zlib_when_undone_then_the_body_of_old_clients_and_new(kind: int) -> None:
    """Old clients say no kind."""
    assert plain_body(zlib.compress(BODY), COMPRESSED | kind) == BODY


@pytest.mark.parametrize("kind", [0, 0x100, 0x200, 0x300, 0x400, 0x700])
@settings(max_examples=60, deadline=None)
@given(data=st.binary(max_size=60))
def test_anything_else_when_undone_then_none(kind: int, data: bytes) -> None:
    """Never an error, whatever stands there."""
    found = plain_body(data, COMPRESSED | kind)
    assert found is None or kind < 0x400


@pytest.mark.parametrize("kind", JAVA_FRAMES)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_frame_when_cut_off_then_none(kind: int, data: st.DataObject) -> None:
    """Half a body is none."""
    frame = bytes.fromhex(JAVA_FRAMES[kind])
    stop = data.draw(st.integers(0, len(frame) - 1))
    assert plain_body(frame[:stop], COMPRESSED | kind) is None


@pytest.mark.parametrize("kind", [0, 0x100, 0x200])
def test_body_when_it_grows_too_large_then_as_stored(
    monkeypatch: pytest.MonkeyPatch, kind: int
) -> None:
    """A small message must not take all memory."""
    monkeypatch.setattr(compression, "BODY_MAX", 5000)
    data = bytes.fromhex(JAVA_FRAMES[kind]) if kind else zlib.compress(BODY)
    assert len(BODY) > 5000
    assert plain_body(data, COMPRESSED | kind) is None


def test_frame_when_pyarrow_is_not_installed_then_as_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tools for operators need no pyarrow; zlib goes without."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert plain_body(bytes.fromhex(JAVA_FRAMES[0x100]), COMPRESSED | 0x100) is None
    assert plain_body(zlib.compress(BODY), COMPRESSED) == BODY


@pytest.mark.parametrize("kind", [0, 0x100, 0x200])
def test_bodies_of_one_answer_when_they_grow_too_much_together_then_the_rest_stays_stored(
    kind: int,
) -> None:
    """1.25 MiB of an answer were 1.34 GB in mqadmin (X24)."""
    stored = bytes.fromhex(JAVA_FRAMES[kind]) if kind else zlib.compress(BODY)
    inflater = compression.Inflater(3 * len(BODY) - 1)
    found = [inflater.plain_body(stored, COMPRESSED | kind) for _ in range(5)]
    assert found == [BODY, BODY, None, None, None]


def test_a_small_body_behind_a_large_one_is_undone_while_there_is_room() -> None:
    """What does not fit takes no room away."""
    inflater = compression.Inflater(len(BODY))
    assert inflater.plain_body(zlib.compress(BODY * 2), COMPRESSED) is None
    assert inflater.plain_body(zlib.compress(BODY), COMPRESSED) == BODY
