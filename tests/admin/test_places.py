"""Which brokers a command with ``-b`` or ``-c`` goes to."""

from __future__ import annotations

import pytest

from rmqha.admin.places import Places, places
from rmqha.remoting.codes import RequestCode
from tests.admin.driving import by_code, drive
from tests.admin.test_cluster_commands import reply

SERVERS = ("ns:1",)
GROUP = {"brokerAddrs": {"0": "master:1", "2": "slave:1"}, "brokerName": "a", "cluster": "C"}
CLUSTER = by_code(
    {
        RequestCode.GET_BROKER_CLUSTER_INFO: reply(
            0, {"brokerAddrTable": {"a": GROUP}, "clusterAddrTable": {"C": ["a"]}}
        )
    }
)


@pytest.mark.parametrize(
    ("masters", "expected"), [(True, ("master:1",)), (False, ("master:1", "slave:1"))]
)
def test_cluster_when_it_is_named_then_its_masters_or_all_brokers_are_asked(
    *, masters: bool, expected: tuple[str, ...]
) -> None:
    """A change of a group at a slave is refused, and one of a setting is wanted there as well."""
    found, calls = drive(places(SERVERS, None, "C", masters=masters), CLUSTER)
    assert (found, len(calls)) == (Places(expected), 1)


@pytest.mark.parametrize("masters", [True, False])
def test_broker_when_it_is_named_then_it_alone_is_asked_and_no_name_server(
    *, masters: bool
) -> None:
    assert drive(places(None, "b:1", None, masters=masters), CLUSTER) == (Places(("b:1",)), [])
