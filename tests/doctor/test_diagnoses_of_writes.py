"""Diagnoses of masters that take no writes though everybody lives, and of those that still do."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rmqha.doctor.facts import HaFacts
from tests.doctor.healthy import END, HEALTHY, MASTER, NAME, broker, codes, config, only

LOST = {"commitLogMaxOffset": str(END), "writeLeaseHeld": "false"}
ENDS = {"commitLogMaxOffset": str(END)}


def test_7017_when_lease_and_a_slave_are_lost_then_writes_are_refused() -> None:
    facts = broker(1, runtime=LOST, ha=HaFacts(True, "", False, 2, (0, 0), connected_in_sync=1))
    found = only(facts, "write-lease-lost").found
    assert found.subject == f"{NAME} {MASTER}"
    assert "1 of its 2 slaves in sync are not connected, and it refuses writes" in found.what
    assert codes(broker(2, runtime=LOST)) == []


@pytest.mark.parametrize(("in_sync", "said"), [(2, "all 2 slaves in sync"), (0, "alone in sync")])
def test_7017_when_the_lease_alone_is_lost_then_writes_go_on_and_it_is_not_said_otherwise(
    in_sync: int, said: str
) -> None:
    """All controllers are down and every slave acknowledges: sends succeeded while it said refused."""
    ha = HaFacts(True, "", False, in_sync, (0,) * in_sync, connected_in_sync=in_sync)
    facts = replace(broker(1, runtime=LOST, ha=ha), sets={}, has_sets=False, identity=None)
    found = only(facts, "write-lease-missing").found
    assert said in found.what
    assert "refuses" not in found.what


@pytest.mark.parametrize(
    ("told", "keys", "is_full"),
    [
        ({"diskFull": "true", "commitLogDiskRatio": "0.5"}, {}, True),
        ({"diskFull": "false", "commitLogDiskRatio": "0.99"}, {}, False),
        ({"commitLogDiskRatio": "0.91"}, {}, True),
        ({"commitLogDiskRatio": "0.89"}, {}, False),
        ({"commitLogDiskRatio": "0.89"}, {"diskSpaceWarningLevelRatio": "80"}, True),
        ({"commitLogDiskRatio": "much"}, {}, False),
        ({}, {}, False),
    ],
)
def test_disk_when_it_is_too_full_then_it_is_said_of_ours_and_of_javas(
    told: dict[str, str], keys: dict[str, str], is_full: bool
) -> None:
    """Every send was refused, and nothing was wrong."""
    facts = config(1, broker(1, runtime={**ENDS, **told}), **keys)
    assert codes(facts) == (["disk-full"] if is_full else [])


def test_disk_when_a_slaves_is_full_then_it_is_said_what_it_would_do_as_master() -> None:
    facts = broker(2, runtime={**ENDS, "diskFull": "true"})
    assert "would refuse sends as master" in only(facts, "disk-full").found.what


@pytest.mark.parametrize(("permission", "is_closed"), [("4", True), ("6", False), ("2", False)])
def test_master_when_it_may_not_be_written_to_then_that_is_told(
    permission: str, is_closed: bool
) -> None:
    """No client finds where to send, and nothing was wrong."""
    facts = config(1, brokerPermission=permission)
    assert codes(facts) == (["writes-closed"] if is_closed else [])
    assert codes(config(2, HEALTHY, brokerPermission=permission)) == [], "a slave's counts later"
