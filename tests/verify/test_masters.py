"""The masters property stops at each broken rule, and at nothing else."""

from __future__ import annotations

import pytest

from rmqha.base.errors import InvariantBroken
from rmqha.base.ids import BrokerId
from rmqha.verify.masters import MastersProperty

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)


def test_observe_when_all_is_well_then_silent() -> None:
    """A false alarm would make every chaos run useless; lagging nodes are normal."""
    masters = MastersProperty()
    masters.observe("a", 1, ONE, sync_state_set_before=[], observer="n0")
    masters.observe("a", 2, TWO, sync_state_set_before=[ONE, TWO], observer="n0")
    masters.observe("a", 1, ONE, observer="n1")
    masters.observe("a", 3, None, observer="n0")
    masters.observe("b", 1, TWO, observer="n0")


def test_observe_when_two_masters_share_an_epoch_then_broken() -> None:
    """Split brain, seen by two different nodes."""
    masters = MastersProperty()
    masters.observe("a", 1, ONE, observer="n0")
    with pytest.raises(InvariantBroken, match="one master"):
        masters.observe("a", 1, TWO, observer="n1")


def test_observe_when_an_epoch_goes_back_then_broken() -> None:
    """#6586: brokers ignore epochs below their own."""
    masters = MastersProperty()
    masters.observe("a", 2, ONE)
    with pytest.raises(InvariantBroken, match="went back"):
        masters.observe("a", 1, ONE)
    masters.forget("a")
    masters.observe("a", 1, TWO)


def test_observe_when_an_outsider_is_elected_then_broken_unless_unclean() -> None:
    """#4771: only an unclean election may lose acknowledged messages, and only knowingly."""
    masters = MastersProperty()
    masters.observe("a", 2, THREE, sync_state_set_before=[ONE], unclean=True)
    with pytest.raises(InvariantBroken, match="SyncStateSet"):
        masters.observe("a", 3, TWO, sync_state_set_before=[ONE])


def test_observe_first_when_a_newer_log_is_heard_then_broken() -> None:
    """Its messages would be cut from it when it comes."""
    masters = MastersProperty()
    masters.observe_first("a", ONE, {ONE: (7, 100), TWO: (7, 10)})
    masters.observe_first("a", TWO, {ONE: (7, 100), TWO: (7, 100)})
    masters.observe_first("a", TWO, {})
    for newer in ((7, 101), (8, 0)):
        with pytest.raises(InvariantBroken, match="a first master had an older log"):
            masters.observe_first("a", ONE, {ONE: (7, 100), THREE: newer})
