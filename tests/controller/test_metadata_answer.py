"""1005 is kept, and never says what was."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from rmqha.controller.aio.members import ConfiguredGroup
from rmqha.controller.aio.metadata_answer import MetadataAnswer
from rmqha.controller.aio.raft_node import RaftNode
from rmqha.controller.config_requests import metadata_info
from rmqha.controller.raft.members import Member
from rmqha.remoting.broker_figures import STATUS_PAGE
from tests.controller.test_config_requests import dledger


class Raft:
    """As much of a node as the answer looks at."""

    def __init__(self) -> None:
        self._file = ConfiguredGroup(dledger().peers)
        self.group = self._file.members
        self.core: SimpleNamespace | None = None

    def members(self) -> object:
        return self.group

    def member_peers(self) -> object:
        return self._file.addresses(self.group.members)


def test_answer_when_nothing_changes_then_it_is_the_same_object() -> None:
    """Its frame is kept by the object."""
    raft = Raft()
    answer = MetadataAnswer(dledger(), cast(RaftNode, raft))
    raft.core = SimpleNamespace(leader_id="n2")
    first = answer.now()
    raft.group = raft.group.joined_by(raft.group.members[0])
    assert answer.now() is first
    assert first.ext_fields == metadata_info(dledger(), dledger().peers, "n2", is_leader=False)


def test_answer_when_leader_group_or_page_changes_then_the_next_one_says_so() -> None:
    raft = Raft()
    answer = MetadataAnswer(dledger(), cast(RaftNode, raft))
    assert "controllerLeaderId" not in answer.now().ext_fields
    raft.core = SimpleNamespace(leader_id="n1")
    assert answer.now().ext_fields["controllerLeaderId"] == "n1"
    assert answer.now().ext_fields["isLeader"] == "true"
    raft.core.leader_id = "n0"
    assert answer.now().ext_fields["controllerLeaderAddress"] == "h0:9878"
    assert answer.now().ext_fields["isLeader"] == "false"
    raft.group = raft.group.joined_by(Member("n3", "h3", 9848, votes=False))
    assert answer.now().ext_fields["peers"].endswith("n2:h2:9858;n3:h3:9848;")
    assert answer.now().ext_fields["voters"] == "n0;n1;n2", "n3 is being caught up"
    raft.group = raft.group.joined_by(Member("n3", "h3", 9848))
    assert answer.now().ext_fields["peers"].endswith("n2:h2:9858;n3:h3:9848;")
    assert "voters" not in answer.now().ext_fields
    answer.status_page = "h1:9890"
    assert answer.now().ext_fields[STATUS_PAGE] == "h1:9890"
    raft.core.leader_id = None
    assert "controllerLeaderAddress" not in answer.now().ext_fields
