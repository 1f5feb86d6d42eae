"""How a leader changes its group: who asks, what is refused, and when a node gets its vote.

Rules, each with what it is there for:

- The leader has committed an entry of its own term (``Node.ready``): otherwise two leaders could
  each begin a change from the same group without knowing of the other's (the mistake that Ongaro
  reported of the first version of single-server changes, 2015).
- No change begins while one is not committed: two changes at a time need not share a node.
- Nobody is removed when those who stay could decide nothing: a majority of them must have answered
  lately. The group would take the change and never anything else.
- The last voter stays.
- A node that joins votes when it holds what the leader holds, but for a little, and is no
  recovering store (``standing.py``).

A leader that is removed itself goes on until that is committed, counts itself for nothing
meanwhile, then lets the freshest voter stand and follows (dissertation 4.2.2). Whoever is removed
is still sent what makes it know that, for a while.
"""

from __future__ import annotations

from rmqha.controller.raft import append
from rmqha.controller.raft.events import MembersAnswered, MembersAsked, PeersChanged
from rmqha.controller.raft.members import MEMBERS_MAX, Member, Members, encode_members
from rmqha.controller.raft.messages import Entry, TimeoutNow
from rmqha.controller.raft.node import Node, Role
from rmqha.controller.raft.progress import HEARD_HEARTBEATS, Mode, Progress
from rmqha.controller.raft.quorum import majority

CAUGHT_UP_ENTRIES = 256
"""A node that joins may lack so many of the newest entries when it gets its vote."""

NOT_LEADER = "this node does not lead the group"
UNDER_WAY = "another change of the group is under way"
LOST = "this node does not lead any more; look which members the group has now"


def asked(node: Node, now_ms: int, event: MembersAsked) -> None:
    """Begin a change, or say why not; what is so already is done at once."""
    reason = _refusal(node, now_ms, event)
    if reason is None and _is_so(node.group, event):
        reason = ""
    if reason is not None:
        node.immediate.append(MembersAnswered(event.token, reason))
        return
    after = (
        node.group.joined_by(Member(event.member.id, event.member.host, event.member.port, False))
        if event.joins
        else node.group.without(event.member.id)
    )
    node.asked = (event.token, node.log.last_index + 1)
    _begin(node, after)


def promote_if_caught_up(node: Node, peer: str) -> None:
    """Give a node that joins its vote, once it can use it."""
    if peer in node.voters or node.role is not Role.LEADER:
        return
    member, progress = node.group.find(peer), node.progress.get(peer)
    if member is None or progress is None or progress.recovering or not _may_begin(node):
        return
    behind = node.log.last_index - progress.match_index
    if (
        progress.mode is not Mode.REPLICATE
        or not progress.match_index
        or behind > CAUGHT_UP_ENTRIES
    ):
        return
    _begin(node, node.group.joined_by(Member(member.id, member.host, member.port)))


def after_step(node: Node, now_ms: int) -> None:
    """A leader whose removal is committed makes room for another."""
    if node.id in node.voters or node.group_uncommitted:
        return
    best = max(node.voters, key=lambda voter: (node.progress[voter].match_index, voter))
    node.note("raft_removed_leader", successor=best, term=node.term)
    node.send(best, TimeoutNow(node.term, node.id))
    node.become_follower(now_ms, node.term, None)
    node.note("raft_removed", "warning", members=list(node.members))
    node.sends_after.append(PeersChanged(()))


def leadership_lost(node: Node) -> None:
    """Whether the change that was asked for will ever be committed is another's knowledge."""
    if node.asked is not None:
        node.immediate.append(MembersAnswered(node.asked[0], LOST))
        node.asked = None


def _may_begin(node: Node) -> bool:
    return node.ready and not node.group_uncommitted and node.transfer_target is None


def _refusal(node: Node, now_ms: int, event: MembersAsked) -> str | None:
    if node.role is not Role.LEADER or not node.ready:
        return NOT_LEADER
    if not _may_begin(node) or node.no_space:
        return "the disk is full" if node.no_space else UNDER_WAY
    if event.joins:
        return _no_join(node.group, event.member)
    return _no_removal(node, now_ms, event.member.id)


def _is_so(group: Members, event: MembersAsked) -> bool:
    return (group.find(event.member.id) is not None) == event.joins


def _no_join(group: Members, member: Member) -> str | None:
    known = group.find(member.id)
    if known is not None and (known.host, known.port) != (member.host, member.port):
        return (
            f"{member.id} is a member at {known.host}:{known.port}; a node that moves keeps its id"
            " and gets its new address in the files of all"
        )
    others = ((one.host, one.port) for one in group.members if one.id != member.id)
    if (member.host, member.port) in others:
        return f"{member.host}:{member.port} is the address of another member"
    if known is None and len(group.members) >= MEMBERS_MAX:
        return f"the group has {MEMBERS_MAX} members, and more are not possible"
    return None


def _no_removal(node: Node, now_ms: int, leaves: str) -> str | None:
    member = node.group.find(leaves)
    if member is None or not member.votes:
        return None
    stay = node.group.without(leaves).voters
    if not stay:
        return f"{leaves} is the last member that votes"
    since_ms = now_ms - HEARD_HEARTBEATS * node.settings.heartbeat_ms
    heard = [
        voter for voter in stay if voter == node.id or _answers(node.progress[voter], since_ms)
    ]
    if len(heard) < majority(len(stay)):
        return (
            f"of those who would stay ({', '.join(stay)}) only {', '.join(heard) or 'nobody'}"
            " answers: the group could decide nothing more"
        )
    return None


def _answers(progress: Progress, since_ms: int) -> bool:
    """By time: where each read opens a round, a follower is always many rounds behind."""
    return not progress.recovering and progress.answered_ms > since_ms


def _begin(node: Node, after: Members) -> None:
    entry = Entry(node.log.last_index + 1, node.term, encode_members(after))
    node.append_entries((entry,))
    node.note(
        "raft_members_changing",
        index=entry.log_index,
        voters=list(after.voters),
        joining=[one.id for one in after.members if not one.votes],
    )
    for peer in node.peers:
        append.send_entries(node, peer, node.progress[peer])
