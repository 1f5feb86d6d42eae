"""What one controller says of its group and of all broker sets, for operators who compare nodes.

The answer to request 60022 is this document as JSON. Any node answers, from what it has applied,
which may be behind: whoever compares looks at ``appliedIndex``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rmqha.controller.metadata.state import BrokerSet
from rmqha.controller.raft.node import VOTER, Node, Role
from rmqha.remoting.address import format_address


def controller_view(
    group: str, node: Node, leader_id: str | None, applied_index: int, sets: Mapping[str, BrokerSet]
) -> dict[str, Any]:
    """The document of one node.

    Args:
        group: the Raft group's name.
        node: its Raft state.
        leader_id: the leader that it follows, or itself.
        applied_index: up to which ``sets`` goes.
    """
    return {
        "group": group,
        "nodeId": node.id,
        "role": "removed" if node.is_removed else node.role.value,
        "term": node.term,
        "leaderId": leader_id,
        "mayVote": node.standing_on_disk == VOTER,
        "standing": node.standing_on_disk,
        "lastIndex": node.log.last_index,
        "commitIndex": node.commit_index,
        "appliedIndex": applied_index,
        "changeUnderWay": node.group_uncommitted,
        "members": [_member(node, member.id) for member in node.group.members],
        "brokerSets": {name: _set(one) for name, one in sorted(sets.items())},
    }


def _member(node: Node, member_id: str) -> dict[str, Any]:
    member = node.group.find(member_id)
    assert member is not None
    found: dict[str, Any] = {
        "id": member.id,
        "address": format_address(member.host, member.port),
        "votes": member.votes,
    }
    progress = node.progress.get(member_id) if node.role is Role.LEADER else None
    if progress is not None:
        found["matchIndex"] = progress.match_index
        found["recovering"] = bool(progress.recovering)
    return found


def _set(one: BrokerSet) -> dict[str, Any]:
    return {
        "masterBrokerId": one.master_broker_id,
        "masterEpoch": one.master_epoch,
        "syncStateSet": list(one.sync_state_set),
        "syncStateSetEpoch": one.sync_state_set_epoch,
        "replicas": {str(broker_id): r.address for broker_id, r in sorted(one.replicas.items())},
    }
