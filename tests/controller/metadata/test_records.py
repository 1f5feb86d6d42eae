"""Records and snapshots survive the way to disk, and damage is noticed."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.base.errors import StoreCorrupted, StoreMismatch
from rmqha.base.ids import BrokerId
from rmqha.controller.metadata import events as ev
from rmqha.controller.metadata.apply import apply
from rmqha.controller.metadata.packing import pack
from rmqha.controller.metadata.snapshot import from_snapshot, to_snapshot
from rmqha.controller.metadata.state import MetadataState

NAMES = st.sampled_from(["broker-a", "broker-b"])
IDS = st.integers(1, 4).map(BrokerId)
ID_SETS = st.sets(IDS, min_size=1).map(lambda ids: tuple(sorted(ids)))
EVENTS: st.SearchStrategy[ev.Event] = st.one_of(
    st.builds(ev.BrokerIdTaken, st.just("c"), NAMES, st.text(max_size=9), IDS, st.text(max_size=9)),
    st.builds(ev.MasterElected, NAMES, st.none() | IDS, st.integers(1, 9), NAMES, NAMES, st.booleans()),
    st.builds(ev.BrokerDataCleaned, NAMES, st.none() | ID_SETS),
    st.builds(ev.BrokerAddressUpdated, st.just("c"), NAMES, st.text(max_size=9), IDS),
    st.builds(
        lambda name, ids, epoch, master: ev.BrokerSetImported(
            "c", name, 5, tuple((one, "h") for one in ids), epoch, epoch, ids,
            ids[0] if master else None,
        ),
        NAMES, ID_SETS, st.integers(1, 9), st.booleans(),
    ),
)  # fmt: skip
ALTERS = st.builds(ev.SyncStateSetAltered, NAMES, ID_SETS, st.integers(1, 9))


@given(event=EVENTS | ALTERS, term=st.integers(0, 2**40), token=st.integers(0, 2**40))
def test_record_when_read_back_then_the_same_event(event: ev.Event, term: int, token: int) -> None:
    """A node that reads another event than was written parts from the others for ever."""
    assert ev.from_proposal(ev.to_proposal(term, token, event)) == (term, token, event)


def test_kinds_when_a_class_is_renamed_then_files_and_lakes_keep_their_names() -> None:
    """Logs on disk hold the numbers, lakes and saved queries the names."""
    tags = {kind: shape.__struct_config__.tag for kind, shape in ev.KINDS.items()}
    assert tags == {
        "AlterSyncStateSet": 1, "ApplyBrokerId": 2, "ElectMaster": 3,
        "CleanBrokerData": 5, "UpdateBrokerAddress": 6, "ImportBrokerSet": 7,
    }  # fmt: skip
    assert set(ev.KINDS.values()) == set(get_args(ev.Event))
    assert ev.kind_of(ev.StateMarked(1)) == "StateMarked"


@pytest.mark.parametrize(
    "record",
    [
        b"", b"\xc1", pack([]), pack([4]), pack([99, "x"]), pack(["3"]), pack([3, "a"]),
        pack([1, "a", [1, "x"], 1]), pack([5, "a", [True]]), pack([3, "a", True, 1, "", "", False]),
        pack({"a": 1}), pack([1, "a", [1], 1]) + b"\x00",
    ],
)  # fmt: skip
def test_record_when_damaged_or_unknown_then_corrupted(record: bytes) -> None:
    """Skipping a record that one cannot read would be silent divergence."""
    with pytest.raises(StoreCorrupted):
        ev.from_proposal(b"\x94\x01\x01\x01" + record)


@pytest.mark.slow
@given(events=st.lists(EVENTS, max_size=30))
def test_snapshot_when_loaded_then_equal_state_and_equal_future(events: list[ev.Event]) -> None:
    """A node that joined by snapshot must behave as one that replayed the log."""
    state = MetadataState()
    for event in events:
        apply(state, event)
    data = to_snapshot(7, state)
    index, loaded = from_snapshot(data)
    assert (index, loaded) == (7, state)
    assert to_snapshot(7, loaded) == data
    for event in events:
        assert apply(state, event) == apply(loaded, event)
    assert loaded == state


def test_snapshot_when_damaged_or_newer_then_refused() -> None:
    """Never start from half a state."""
    with pytest.raises(StoreMismatch):
        from_snapshot(pack([2, 1, [], "more"]))
    for plain in ([1, 1], [1, 1, [["c"]]], [1, 1, [["c", "n", 1, [], [[1]], 0, 0, [], None]]], "x"):
        with pytest.raises(StoreCorrupted):
            from_snapshot(pack(plain))


def test_apply_when_the_event_does_not_fit_then_nothing_changes() -> None:
    """Stale epochs and unknown sets are noted, never applied."""
    state = MetadataState()
    assert not apply(state, ev.BrokerDataCleaned("x", None)).changed
    apply(state, ev.BrokerIdTaken("c", "a", "h:1", BrokerId(1), "h:1;1"))
    assert apply(state, ev.MasterElected("a", BrokerId(1), 3, "broker", "", False)).changed
    before = to_snapshot(0, state)
    for event in (
        ev.MasterElected("a", None, 3, "controller", "", False),
        ev.MasterElected("a", BrokerId(9), 4, "controller", "", False),
        ev.SyncStateSetAltered("a", (BrokerId(1),), 1),
        ev.BrokerAddressUpdated("c", "a", "h:9", BrokerId(9)),
        ev.BrokerDataCleaned("a", (BrokerId(9),)),
        ev.BrokerIdTaken("c", "a", "h:2", BrokerId(1), "h:2;1"),
    ):
        applied = apply(state, event)
        assert not applied.changed
        assert applied.note.event == "event_ignored"
        assert ev.KINDS[applied.note.facts["type"]] is type(event)
    assert to_snapshot(0, state) == before
