"""What a status document means, in words: the first thing that somebody who was woken up reads.

Pure. Each sentence is whole as it stands, for scripts; of one that knows since when it is so, the page
says the time of the reader's own clock behind it. Nothing is said that the document does not know: of a
replica whose life nobody reports here, neither that it is well nor that it is not, and of one that this
node has not heard since it started, not that it is down.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rmqha.web.document import BrokerSetView, ReplicaView, Sentence, StatusDocument, Verdict
from rmqha.web.presence import Before

LEVELS = ("good", "warn", "bad")
SENTENCES_MAX = 20
FIRST_WORDS_MS = 15_000
"""Who lives is heard by a node so long after its start at the latest: Java's brokers heartbeat every
second, and register anew every ten at most."""
NOTHING_BEFORE = Before()

Since = Mapping[str, int]
"""Since when a trouble has been there, by its key; troubles that were there before are absent."""


def judge(document: StatusDocument, since: Since, before: Before = NOTHING_BEFORE) -> Verdict:
    """The verdict over a document.

    Args:
        document: of one moment.
        since: of :func:`troubles_of` the documents before it.
        before: what was in those, and is not in it.
    """
    found = _found(document, before)
    found.sort(key=lambda one: -LEVELS.index(one.level))
    told = tuple(
        Sentence(one.level, one.text, one.key, since.get(one.key)) for one in found[:SENTENCES_MAX]
    )
    if told:
        return Verdict(told[0].level, told)
    return Verdict("good", (Sentence("good", _all_well(document, before)),))


def troubles_of(document: StatusDocument, before: Before = NOTHING_BEFORE) -> frozenset[str]:
    """The keys of all troubles of a document, also of those that are not told for want of room."""
    return frozenset(one.key for one in _found(document, before) if one.key)


def _found(document: StatusDocument, before: Before) -> list[Sentence]:
    found = [*document.node.troubles, *_of_controllers(document), *_of_gone(document, before)]
    for one in document.broker_sets:
        found += _of_set(one, document)
        if (most := before.most.get(f"{one.cluster}/{one.broker_name}")) is not None:
            found.append(_of_left(one, most))
    return found


def _of_left(one: BrokerSetView, most: int) -> Sentence:
    """A node that knows no members tells how many there were."""
    left = sum(replica.alive is not False for replica in one.replicas)
    text = (
        f"Of {most} replicas of {one.broker_name} that were here within the last ten minutes"
        f" {left} {'is' if left == 1 else 'are'} left."
    )
    return Sentence("warn", text, f"{one.cluster}/{one.broker_name}/left")


def _of_gone(document: StatusDocument, before: Before) -> list[Sentence]:
    """Sets that a name server has lost, or that it has none at all any more."""
    found = []
    for key, (name, most) in before.gone.items():
        replicas = "1 replica" if most == 1 else f"{most} replicas"
        text = (
            f"{name} is not registered here any more: within the last ten minutes there were"
            f" {replicas} of it."
        )
        found.append(Sentence("bad", text, f"{key}/gone"))
    lost_all = before.had_sets and not document.broker_sets
    if lost_all and not found and document.node.kind != "controller":
        found.append(Sentence("warn", "No broker is registered here any more.", "no broker"))
    return found


def _of_controllers(document: StatusDocument) -> list[Sentence]:
    if not document.controllers or any(one.leads for one in document.controllers):
        return []
    text = "No controller leads, as far as this one knows: a master that dies is not replaced."
    return [Sentence("bad", text, "no leader")]


def _of_set(one: BrokerSetView, document: StatusDocument) -> list[Sentence]:
    master = next((r for r in one.replicas if r.role == "master"), None)
    name = one.broker_name
    if master is None:
        return [_without_master(one, document.node.kind)]
    if master.alive is False:
        return [_unheard_master(one, master, document)]
    writes = _writes(master)
    found: list[Sentence] = []
    for what, is_so in _TROUBLES.items():
        troubled = [r for r in one.replicas if is_so(r)]
        if not troubled:
            continue
        ids = ",".join(str(r.broker_id) for r in troubled)
        key = f"{one.cluster}/{name}/{what}/{ids}"
        count = f"{len(troubled)} of {len(one.replicas)} replicas of {name}"
        verb = "is" if len(troubled) == 1 else "are"
        found.append(Sentence("warn", f"{count} {verb} {what}; {writes}.", key))
    return found + _of_last_copy(one, master)


def _without_master(one: BrokerSetView, kind: str) -> Sentence:
    """A broker that has heard of no master knows nothing of its set; others know that it has none."""
    name, key = one.broker_name, f"{one.cluster}/{one.broker_name}/no master"
    if kind == "broker":
        text = f"This broker knows no master of {name}: it takes part in nothing."
        return Sentence("warn", text, key)
    return Sentence("bad", f"{name} has no master: nobody can write to it.", key)


def _unheard_master(one: BrokerSetView, master: ReplicaView, document: StatusDocument) -> Sentence:
    """It may write all the same: this node knows only that it does not hear it."""
    name, key = one.broker_name, f"{one.cluster}/{one.broker_name}/master not heard"
    up_ms = document.time_ms - document.node.started_ms
    if is_unheard(master) and up_ms < FIRST_WORDS_MS:
        text = f"This node has just started and has not heard the master of {name} yet."
        return Sentence("warn", text, key)
    text = (
        f"The master of {name} is not heard here: if it is down and not only cut off, nobody can"
        " write to the set."
    )
    return Sentence("bad", text, key)


def is_unheard(one: ReplicaView) -> bool:
    """Whether this node has never heard it, and so cannot know that it ended."""
    return one.alive is False and one.heard_ms_ago is None


def _of_last_copy(one: BrokerSetView, master: ReplicaView) -> list[Sentence]:
    """A master that is alone in sync while its set has others."""
    holding = [r for r in one.replicas if r.in_sync and (r.alive is not False or is_unheard(r))]
    if len(one.replicas) < 2 or holding != [master]:
        return []
    text = f"Only the master of {one.broker_name} has its newest messages."
    return [Sentence("warn", text, f"{one.cluster}/{one.broker_name}/last copy")]


def _writes(master: ReplicaView) -> str:
    """What is known of writes: a rate is a fact, a living master only a reason to hope."""
    if master.put_tps:
        return "writes go on"
    return "its master is alive" if master.alive else "what its master does is not known here"


_TROUBLES: Mapping[str, Callable[[ReplicaView], bool]] = {
    "down": lambda one: one.alive is False and not is_unheard(one),
    "not heard here since this node started": is_unheard,
    "not in sync": lambda one: one.alive is not False and one.in_sync is False,
}


def _all_well(document: StatusDocument, before: Before) -> str:
    sets, replicas = document.broker_sets, [r for s in document.broker_sets for r in s.replicas]
    if not sets:
        return (
            f"No broker {'is registered here' if before.had_sets else 'has registered here yet'}."
        )
    unknown = sum(one.alive is None for one in replicas)
    if unknown:
        return f"Nothing is wrong that this node knows of; of {unknown} replicas it knows nothing."
    named = sets[0].broker_name if len(sets) == 1 else f"{len(sets)} broker sets"
    in_sync = " and in sync" if all(one.in_sync for one in replicas) else ""
    if document.node.kind == "controller" or document.controllers:
        return f"All is well: all {len(replicas)} replicas of {named} are alive{in_sync}."
    # It knows no members: one that has been away for long may be missing.
    are = "1 replica of {} is" if len(replicas) == 1 else f"{len(replicas)} replicas of {{}} are"
    return f"All is well as far as is known here: {are.format(named)} alive{in_sync}."
