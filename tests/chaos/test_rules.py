"""What a host's kernel is told to drop."""

from __future__ import annotations

from rmqha.chaos.rules import rules
from rmqha.chaos.scenarios import Fault, Kind

ADDRESSES = {"a": "10.77.0.2", "b": "10.77.0.3", "c": "10.77.0.4"}


def test_rules_when_a_direction_is_cut_then_only_who_would_hear_drops() -> None:
    fault = Fault(Kind.PARTITION, links=frozenset({("a", "b"), ("c", "b")}))
    assert "ip saddr { 10.77.0.2, 10.77.0.4 } drop" in rules("b", ADDRESSES, fault)
    assert "drop" not in rules("a", ADDRESSES, fault)


def test_rules_when_packets_are_lost_then_by_chance() -> None:
    fault = Fault(Kind.LOSS, links=frozenset({("a", "b")}), loss_percent=80)
    assert "ip saddr { 10.77.0.2 } numgen random mod 100 < 80 drop" in rules("b", ADDRESSES, fault)


def test_rules_when_healed_then_the_table_goes_whether_it_was_there_or_not() -> None:
    """``delete`` alone would fail where there is none."""
    assert rules("a", ADDRESSES, None).split("\n")[:2] == [
        "add table inet rmqha_chaos", "delete table inet rmqha_chaos",
    ]  # fmt: skip
