"""Controllers: who leads, who belongs to the group, and whether they believe the same."""

from __future__ import annotations

from collections.abc import Iterator

from rmqha.doctor.advice import (
    CONTROLLER,
    controllers_behind,
    dns_entry,
    known_controllers,
    mqadmin,
    update_broker,
)
from rmqha.doctor.diagnosis import NAMED_MAX, Found
from rmqha.doctor.facts import ControllerFacts, Facts, is_loopback
from rmqha.doctor.rules.standings import (
    comes,
    explains_no_leader,
    is_joining,
    member_addresses,
    member_id,
    members_that_answer,
)
from rmqha.doctor.values import is_true

BEHIND_ENTRIES_MAX = 1_000
"""A follower that works is a few entries behind."""


def _answering(facts: Facts) -> list[ControllerFacts]:
    return [one for one in facts.controllers if one.answers]


def controller_unreachable(facts: Facts) -> Iterator[Found]:
    """A controller does not answer."""
    for one in facts.controllers:
        if one.silent is None or one.silent.door is not None or one.silent.is_stranger:
            continue
        how = "it is down"
        if one.silent.connected:
            how = (
                "it takes connections and ends them"
                if one.silent.ended
                else "it takes connections and does not answer"
            )
        name = member_id(facts, one.address)
        joins = name is not None and is_joining(facts, name)
        yield Found(
            one.address,
            f"the controller does not answer: {one.silent.reason}",
            f"Either {how}, or the way from here is cut. "
            + (
                f"It was added as {name}, has no vote yet, and counts for nothing until it has one."
                if joins
                else "Each controller that is missing brings the group nearer to having no majority,"
                " and then no broker set can fail over."
            ),
            _newcomer(facts, name) if joins else _gone(facts, name),
        )


def _newcomer(facts: Facts, name: str | None) -> str:
    """Of a member that was added and has not been heard since."""
    remove = mqadmin("removeController", "-a", known_controllers(facts), "-i", name)
    return (
        "Start it, with an empty store and all members in its controllerDLegerPeers; the leader"
        f" catches it up, and it votes. If it should be no member, or its address is wrong: {remove}."
    )


def _gone(facts: Facts, name: str | None) -> str:
    asked = known_controllers(facts)
    add = mqadmin("addController", "-a", asked, "-i", "NEWID", "--address", CONTROLLER)
    remove = mqadmin("removeController", "-a", asked, "-i", name or "ID")
    return (
        "Look at its log and start it again; its store brings it back. Where it is gone for good, add"
        f" a new one ({add}) and remove it ({remove})."
    )


def not_a_controller(facts: Facts) -> Iterator[Found]:
    """An address that is given as a controller's is another server's."""
    for one in facts.controllers:
        said = one.refused if not one.denied else ""
        if one.silent is not None and one.silent.is_stranger:
            said = one.silent.reason
        if said:
            yield Found(
                one.address,
                f"something answers there that is no controller: {said}",
                "Name servers have a controller inside only with enableControllerInNamesrv=true,"
                " and then on the controller's own port.",
                "Correct the address in controllerAddr, or where you gave it.",
            )


def no_controller_answers(facts: Facts) -> Iterator[Found]:
    """None of the controllers that were named answers, so that nobody tells whether one leads."""
    if not facts.controllers or facts.may_hide_leader or _answering(facts):
        return
    named = [one.address for one in facts.controllers]
    more = len(named) - NAMED_MAX
    yield Found(
        "controllers",
        f"no controller that was named answers: {', '.join(named[:NAMED_MAX])}"
        + (f" and {more} more" if more > 0 else ""),
        "They are down, cut off from here, or no controllers. Whether others of their group work, and"
        " whether one leads, cannot be told. Without a leader brokers keep their roles, and no master"
        " is replaced.",
        "Name others with --controllers, if there are any: one that answers is enough, or a broker or"
        " a name server that knows one (--namesrv). If these are all, start them until a majority"
        " runs.",
    )


def no_controller_leader(facts: Facts) -> Iterator[Found]:
    """No controller leads, so that no master is replaced."""
    if not _answering(facts) or facts.leaders or facts.may_hide_leader:
        return
    if explains_no_leader(facts):
        return
    answering = members_that_answer(facts)
    known = member_addresses(facts)
    silent = sum(not one.answers for one in facts.controllers)
    yield Found(
        "controllers",
        "no controller says that it leads",
        f"{len(answering)} of {max(len(known), len(answering) + silent)} controllers answer; a"
        " leader needs a majority that can reach each other. Brokers keep their roles meanwhile.",
        "Start the controllers that are down until a majority runs. If a majority runs and nobody"
        " leads, look for raft_ lines in their logs and at the network between them.",
    )


def two_controller_leaders(facts: Facts) -> Iterator[Found]:
    """More than one controller says that it leads."""
    if len(facts.leaders) < 2:
        return
    named = ", ".join(
        one.address + (f" in term {one.view.term}" if one.view else "") for one in facts.leaders
    )
    yield Found(
        "controllers",
        f"{len(facts.leaders)} controllers say that they lead: {named}",
        "They are of two groups, or one is cut off from the others and has not noticed yet; the"
        " highest term is the right one, the other can decide nothing.",
        "Compare controllerDLegerPeers and the group's name of both. Do not clean anything up;"
        " stop the one of the lower term, look at its log, and start it again.",
    )


def controller_follows_another(facts: Facts) -> Iterator[Found]:
    """A controller names another leader than the one that leads, or none."""
    if len(facts.leaders) != 1:
        return
    leader = facts.leaders[0]
    for one in members_that_answer(facts):
        if one.leads or facts.is_same(one.leader_address, leader.leader_address or leader.address):
            continue
        yield Found(
            one.address,
            f"the controller names {one.leader_address or 'nobody'} as leader, while"
            f" {leader.address} leads",
            "It does not hear the leader. Brokers that ask it are sent to the wrong place.",
            "Check the network between the two, and that both belong to one group:"
            f" {_metadata(one)} and {_metadata(leader)}.",
        )


def _metadata(one: ControllerFacts) -> str:
    return mqadmin("getControllerMetaData", "-a", one.address)


def controller_members_differ(facts: Facts) -> Iterator[Found]:
    """Controllers disagree about who belongs to their group."""
    answering = members_that_answer(facts)
    kinds = {frozenset(one.peers.items()) for one in answering if one.peers}
    if len(kinds) < 2:
        return
    said = "; ".join(
        f"{one.address}: {', '.join(f'{k}={v}' for k, v in sorted(one.peers.items()))}"
        for one in answering
    )
    yield Found(
        "controllers",
        f"controllers name different members: {said}",
        "A change of members is under way, or one of them has an older file or was removed while"
        " it was down. Two majorities that share no member could both elect.",
        "Wait for a change to end. Else make controllerDLegerPeers equal on all and restart those"
        " that differ, one at a time; stop a node that was removed.",
    )


def controller_addr_differs(facts: Facts) -> Iterator[Found]:
    """A controllerAddr names others than the members of the group."""
    members = {a for one in _answering(facts) if one.leads for a in one.peers.values()}
    if not members:
        return
    # Brokers name a new controller before it is added.
    coming = {one.address for one in facts.controllers if comes(facts, one)}
    asked = {} if facts.conf is None else {facts.conf.path: facts.conf.controllers}
    for one in facts.brokers:
        listed = one.config.get("controllerAddr", "")
        if listed:
            asked[one.address] = tuple(part.strip() for part in listed.split(";") if part.strip())
    for who, named in asked.items():
        if not named:
            continue
        missing = sorted(m for m in members if not any(facts.is_same(m, n) for n in named))
        known = members | coming
        strange = sorted(n for n in named if not any(facts.is_same(m, n) for m in known))
        if missing or strange:
            yield Found(
                who,
                f"controllerAddr lacks {', '.join(missing) or 'nobody'} and names"
                f" {', '.join(strange) or 'nobody'}, who is no member",
                "A broker of Java heartbeats to the controllers that it names only, and one that never"
                " hears it takes it for dead as soon as it leads. One of ours needs those that it names"
                " for its write lease, too.",
                _all_members(facts, who, members),
            )


def _all_members(facts: Facts, who: str, members: set[str]) -> str:
    """How a broker hears of all members: while it runs, if it does."""
    named = ";".join(sorted(members))
    broker = facts.broker(who)
    values = broker.config if broker is not None else facts.conf.values if facts.conf else {}
    if behind := controllers_behind(values):
        entry = dns_entry(behind, sorted(members), "updateControllerAddrPeriod")
        return f"It takes one name only: {entry}."
    if broker is None:
        return f"Write controllerAddr={named} into the file; a broker that runs is told besides."
    line = update_broker(broker, "controllerAddr", named)
    return (
        f"Set controllerAddr in its file to all members. It takes it while it runs: {line}. One of"
        " rmqha of an older release needs a restart."
    )


def controller_loopback(facts: Facts) -> Iterator[Found]:
    """Controllers know each other by addresses that mean something else to brokers elsewhere."""
    elsewhere = facts.elsewhere
    if not elsewhere:
        return
    for one in _answering(facts):
        wrong = sorted(address for address in one.peers.values() if is_loopback(address))
        if wrong:
            yield Found(
                one.address,
                f"its group is known by {', '.join(wrong)}, which is the own machine to everybody",
                "The leader's address is handed to brokers as it stands in controllerDLegerPeers."
                f" {elsewhere[0]} is not on this machine and would look for the leader on itself.",
                "Write addresses into controllerDLegerPeers that brokers can reach, in all files,"
                " and restart all controllers.",
            )


def controller_views_differ(facts: Facts) -> Iterator[Found]:
    """Two controllers made different things of the same log."""
    seen: dict[tuple[int, str], dict[str, object]] = {}
    for one in facts.controllers:
        if one.view is None or one.view.is_removed:
            continue
        for name, view in sorted(one.view.sets.items()):
            seen.setdefault((one.view.applied_index, name), {})[one.view.node_id] = view
    for (index, name), views in sorted(seen.items()):
        if len(set(views.values())) > 1:
            yield Found(
                name,
                f"at entry {index} of one log, {' and '.join(sorted(views))} hold different states"
                " of this broker set",
                "Equal logs must give equal states: memory or a disk is at fault, or two releases"
                " do not fit.",
                "Keep the logs and stores of all controllers, restart those that differ from the"
                " majority with an empty store one at a time, and test their memory.",
            )


def controller_behind(facts: Facts) -> Iterator[Found]:
    """A controller has not applied what the group has decided long ago."""
    views = [one.view for one in members_that_answer(facts) if one.view is not None]
    newest = max((view.commit_index for view in views), default=0)
    for view in views:
        lag = newest - view.applied_index
        if lag > BEHIND_ENTRIES_MAX:
            yield Found(
                view.node_id,
                f"the controller is {lag} entries behind: it has applied {view.applied_index} of"
                f" {newest}",
                "It catches up after a start; one that stays behind is slow, or gets a snapshot"
                " again and again, and would be missed if another one failed.",
                "Look at it again in a minute. If the figure does not fall, look at its disk and"
                " at raft_ lines in its log.",
            )


def unclean_elections_allowed(facts: Facts) -> Iterator[Found]:
    """Controllers may elect a broker that lacks acknowledged messages."""
    for one in facts.controllers:
        if is_true(one.config, "enableElectUncleanMaster"):
            yield Found(
                one.address,
                "enableElectUncleanMaster=true",
                "When nobody of a SyncStateSet lives, a replica that lacks acknowledged messages"
                " becomes master, and consumers' offsets may point behind its log.",
                f"Leave it if service comes before messages. Else: {_cleanly(facts)}.",
            )


def _cleanly(facts: Facts) -> str:
    everyone = ";".join(one.address for one in facts.controllers)
    return mqadmin(
        "updateControllerConfig", "-a", everyone, "-k", "enableElectUncleanMaster", "-v", "false"
    )
