"""What the stores of controllers are: new, those of voters, or caught up again (ADR 0018)."""

from __future__ import annotations

from collections.abc import Iterator

from rmqha.controller.raft.node import NEW, RECOVERING
from rmqha.doctor.diagnosis import Found
from rmqha.doctor.facts import ControllerFacts, Facts


def controllers_not_founded(facts: Facts) -> Iterator[Found]:
    """A new group of controllers waits for members that it has not met."""
    waiting = _of_standing(facts, NEW)
    if facts.leaders or not waiting:
        return
    absent = sorted(_members(facts) - {one.address for one in facts.controllers if one.answers})
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
    members = len(_members(facts))
    whole = members - len(lost)
    if facts.leaders or not lost or whole > members // 2:
        return
    yield Found(
        "controllers",
        f"{len(lost)} of {members} controllers lost their stores, and nobody leads:"
        f" {', '.join(one.address for one in lost)}",
        f"They may have forgotten votes and decisions, so they do not vote until a leader has caught"
        f" them up, and {whole} with whole stores elect none. That is by intention, and does not"
        " pass by itself. Brokers keep their roles meanwhile.",
        "Bring back a store that is whole, or that was set aside as damaged, if there is one; else"
        " rescue the group with what a whole store holds: mqadmin rescueControllers. Empty no"
        " further store before.",
    )


def controller_without_vote(facts: Facts) -> Iterator[Found]:
    """A controller answers and does not vote."""
    if explains_no_leader(facts):
        return
    for one in facts.controllers:
        if one.view is not None and not one.view.may_vote:
            yield Found(
                one.address,
                f"controller {one.view.node_id} does not vote ({one.view.role})",
                "Its store was emptied or damaged and it takes what the leader sends, or it joins,"
                " or it was removed. Until it votes, the group stands the loss of one node less.",
                "Wait until raft_standing_changed now=voter is in its log before you touch another"
                " controller. Stop it if it was removed.",
            )


def explains_no_leader(facts: Facts) -> bool:
    """Whether one of the above says why nobody leads."""
    return any(controllers_not_founded(facts)) or any(controllers_lost_majority(facts))


def _of_standing(facts: Facts, standing: str) -> list[ControllerFacts]:
    return [
        one
        for one in facts.controllers
        if one.view is not None and one.view.role != "removed" and one.view.standing == standing
    ]


def _members(facts: Facts) -> set[str]:
    """The addresses of all members that an answering controller names."""
    return {address for one in facts.controllers if one.answers for address in one.peers.values()}
