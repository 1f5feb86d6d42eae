"""1005: who leads, and who is in the group. Every broker and tool asks again and again."""

from __future__ import annotations

from rmqha.controller.aio.raft_node import RaftNode
from rmqha.controller.config_requests import metadata_info
from rmqha.controller.metadata.decision import Decision
from rmqha.controller.settings import ControllerConfig
from rmqha.remoting.codes import ResponseCode


class MetadataAnswer:
    """The answer as it is now; made anew when something in it has changed."""

    def __init__(self, config: ControllerConfig, raft: RaftNode) -> None:
        self._config, self._raft = config, raft
        self.status_page = ""
        self._of: object = None
        self._decision = Decision(ResponseCode.SUCCESS)

    def now(self) -> Decision:
        """The same object for as long as it says the same: its frame is encoded once."""
        core = self._raft.core
        leader = core.leader_id if core is not None else None
        of = (leader, self._raft.members(), self.status_page)
        if of != self._of:
            self._of = of
            self._decision = Decision(ResponseCode.SUCCESS, None, self._fields(leader))
        return self._decision

    def _fields(self, leader_id: str | None) -> dict[str, str]:
        return metadata_info(
            self._config, self._raft.member_peers(), leader_id,
            is_leader=leader_id == self._config.self_id, voters=self._raft.members().voters,
            status_page=self.status_page,
        )  # fmt: skip
