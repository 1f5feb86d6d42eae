"""What one controller says of its group and of all broker sets, for operators who compare nodes.

The answer to request 60022 is this document as JSON. Any node answers, from what it has applied,
which may be behind: whoever compares looks at ``appliedIndex``, and so all of it is of one moment.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

from rmqha.controller.metadata.state import BrokerSet
from rmqha.controller.metadata.sync_state_data import REPLICAS_A_PART
from rmqha.controller.raft.node import VOTER, Node, Role
from rmqha.remoting import fastjson
from rmqha.remoting.address import format_address
from rmqha.remoting.settings import FRAME_BYTES_MAX

_NO_SETS = b"{}}"
"""How a document without sets ends: they are its last member."""


def prepare(sets: Mapping[str, BrokerSet]) -> Generator[None, None, bool]:
    """Write down what there is to say of each set, in parts; what changes later is dropped again.

    Returns:
        Whether it fits into an answer.
    """
    size = replicas = 0
    for name in list(sets):
        one = sets.get(name)
        if one is None:
            continue
        size += len(_set_view(one)) + 1
        if size > FRAME_BYTES_MAX:
            return False
        replicas += len(one.replicas) + 1
        if replicas >= REPLICAS_A_PART:
            replicas = 0
            yield
    return True


def controller_view(
    group: str, node: Node, leader_id: str | None, applied_index: int, sets: Mapping[str, BrokerSet]
) -> list[bytes]:
    """The document of one node, in pieces.

    Args:
        group: the Raft group's name.
        node: its Raft state.
        leader_id: the leader that it follows, or itself.
        applied_index: up to which ``sets`` goes.
    """
    head = fastjson.dumps(_group_view(group, node, leader_id, applied_index))
    views = b",".join([_set_view(sets[name]) for name in sorted(sets)])
    return [head.removesuffix(_NO_SETS) + b"{", views, b"}}"]


def _group_view(
    group: str, node: Node, leader_id: str | None, applied_index: int
) -> dict[str, Any]:
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
        "brokerSets": {},
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


def _set_view(one: BrokerSet) -> bytes:
    """A member of ``brokerSets``, as it was written down if nothing has changed."""
    if one.cached_view is None:
        one.cached_view = fastjson.dumps({one.broker_name: _set(one)})[1:-1]
    return one.cached_view


def _set(one: BrokerSet) -> dict[str, Any]:
    return {
        "masterBrokerId": one.master_broker_id,
        "masterEpoch": one.master_epoch,
        "syncStateSet": list(one.sync_state_set),
        "syncStateSetEpoch": one.sync_state_set_epoch,
        "replicas": {str(broker_id): r.address for broker_id, r in sorted(one.replicas.items())},
    }
