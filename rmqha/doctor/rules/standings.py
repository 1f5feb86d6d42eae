"""What the stores of controllers are: new, those of voters, or caught up again (ADR 0018).

A node that comes to a group that works has a new store by right, as has each of a group that begins.
Which it is, the others say: who has voted knows its members.
"""

from __future__ import annotations

from collections.abc import Iterator

from rmqha.controller.raft.node import NEW, RECOVERING, VOTER
from rmqha.doctor.advice import mqadmin
from rmqha.doctor.diagnosis import Found
from rmqha.doctor.facts import ControllerFacts, Facts


def controllers_not_founded(facts: Facts) -> Iterator[Found]:
    """A new group of controllers waits for members that it has not met."""
    waiting = _of_standing(facts, NEW)
    if facts.leaders or facts.may_hide_leader or not waiting or _founded(facts):
        return
    absent = sorted(member_addresses(facts) - {one.address for one in members_that_answer(facts)})
    named = ", ".join(one.address for one in waiting)
    whom = f"these do not answer: {', '.join(absent)}" if absent else "all of them answer here"
    yield Found(
        "controllers",
        f"the group has not been founded: the stores of {named} are new",
        "A new group needs all its members once, with empty stores, so that none of them is an old"
        f" one whose store was emptied; {whom}. Nothing is decided until then.",
        "Start all members of controllerDLegerPeers, and see that they reach each other;"
        " raft_group_not_founded in the log of one that waits says for whom. If the group worked"
        " before, these stores were emptied: bring back a member whose store is whole.",
    )


def controllers_lost_majority(facts: Facts) -> Iterator[Found]:
    """So many controllers lost their stores that the others are no majority."""
    lost = _of_standing(facts, RECOVERING)
    members = len(member_addresses(facts))
    whole = members - len(lost)
    if facts.leaders or facts.may_hide_leader or not lost or whole > members // 2:
        return
    yield Found(
        "controllers",
        f"{len(lost)} of {members} controllers lost their stores, and nobody leads:"
        f" {', '.join(one.address for one in lost)}",
        f"They may have forgotten votes and decisions, so they do not vote until a leader has caught"
        f" them up, and {whole} with whole stores elect none. That is by intention, and does not"
        " pass by itself. Brokers keep their roles meanwhile.",
        "Bring back a store that is whole, or that was set aside as damaged, if there is one; else"
        " rescue the group with what a whole store holds (OPERATIONS, Replacing a"
        " node's disk). Empty no further store before.",
    )


def controller_without_vote(facts: Facts) -> Iterator[Found]:
    """A controller is a member, answers, and does not vote."""
    if explains_no_leader(facts):
        return
    for one in facts.controllers:
        if one.view is None or one.view.may_vote or one.view.is_removed or comes(facts, one):
            continue
        yield Found(
            one.address,
            f"controller {one.view.node_id} does not vote ({one.view.role})",
            "Its store was emptied or damaged, and it takes what the leader sends. Until it votes,"
            " the group stands the loss of one node less.",
            "Wait until raft_standing_changed now=voter is in its log before you touch another"
            " controller.",
        )


def controller_removed(facts: Facts) -> Iterator[Found]:
    """A controller that was removed from its group still runs."""
    for one in facts.controllers:
        if one.view is not None and one.view.is_removed:
            yield Found(
                one.address,
                f"controller {one.view.node_id} is no member of its group any more, and runs",
                "It decides nothing and hears no leader. Brokers that still name it ask in vain, and"
                " a write lease counts it among those that must answer.",
                "Stop it, and take it out of controllerAddr of the brokers and out of"
                " controllerDLegerPeers of the others.",
            )


def controller_joins(facts: Facts) -> Iterator[Found]:
    """A new controller waits to be added to a group that works, or is being caught up."""
    for one in facts.controllers:
        if one.view is None or not comes(facts, one):
            continue
        name, member = one.view.node_id, _knower(facts).address
        is_member = is_joining(facts, name)
        yield Found(
            one.address,
            f"controller {name} is being caught up and gets its vote then"
            if is_member
            else f"controller {name} is new, and no member of the group of {member}",
            "It counts for nothing until it votes, and nothing is missed as long as it waits."
            " Its store is empty by right.",
            f"Nothing has to be done; {mqadmin('controllerViews', '-a', member)} shows when it votes."
            if is_member
            else f"{mqadmin('addController', '-a', member, '-i', name, '--address', one.address)}, when"
            " the brokers name it in controllerAddr. Stop it if it should be no member.",
        )


def explains_no_leader(facts: Facts) -> bool:
    """Whether one of the above says why nobody leads."""
    return any(controllers_not_founded(facts)) or any(controllers_lost_majority(facts))


def comes(facts: Facts, one: ControllerFacts) -> bool:
    """Whether a controller is new to a group that works: not yet added, or not yet caught up."""
    founded = _founded(facts)
    if one.view is None or one.view.is_removed or not founded:
        return False
    name = one.view.node_id
    is_left_out = one.view.standing == NEW and all(name not in known.peers for known in founded)
    return is_left_out or (not one.view.may_vote and is_joining(facts, name))


def members_that_answer(facts: Facts) -> list[ControllerFacts]:
    """The controllers that answer, but for those that are no members: not yet, or not any more."""
    return [
        one
        for one in facts.controllers
        if one.answers
        and not (one.view is not None and one.view.is_removed)
        and not comes(facts, one)
    ]


def member_addresses(facts: Facts) -> set[str]:
    """The addresses of all members, as those that answer name them."""
    return {address for one in members_that_answer(facts) for address in one.peers.values()}


def member_id(facts: Facts, address: str) -> str | None:
    """The id of the member at an address, as the members name it."""
    named = (pair for one in members_that_answer(facts) for pair in one.peers.items())
    return next((name for name, at in named if facts.is_same(at, address)), None)


def is_joining(facts: Facts, name: str) -> bool:
    """Whether the members know this one as one that has no vote yet."""
    return any(one.view is not None and name in one.view.joining for one in _founded(facts))


def _knower(facts: Facts) -> ControllerFacts:
    """A member that can be told what becomes of the group: the leader, where there is one."""
    return (*facts.leaders, *_founded(facts))[0]


def _founded(facts: Facts) -> list[ControllerFacts]:
    """Controllers whose stores have been in a group that works."""
    return _of_standing(facts, VOTER) + _of_standing(facts, RECOVERING)


def _of_standing(facts: Facts, standing: str) -> list[ControllerFacts]:
    return [
        one
        for one in facts.controllers
        if one.view is not None and not one.view.is_removed and one.view.standing == standing
    ]
