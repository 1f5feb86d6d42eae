"""Who a request counts as a sign of life for."""

from __future__ import annotations

from rmqha.controller.metadata.senders import sender
from rmqha.controller.metadata.state import BrokerSet, MetadataState, Replica


def test_id_when_applied_for_by_another_then_its_owner_does_not_seem_alive() -> None:
    """The loser of a race for an id kept its winner alive, and no election came when that died."""
    state = MetadataState()
    state.sets["b"] = BrokerSet("c", "b", replicas={2: Replica("h:2", "h:2;1")})
    fields = {"clusterName": "c", "brokerName": "b", "appliedBrokerId": "2"}
    assert sender(state, 1013, {**fields, "registerCheckCode": "h:3;7"}) is None
    assert sender(state, 1013, {**fields, "registerCheckCode": "h:2;1"}) == ("c", "b", 2)
