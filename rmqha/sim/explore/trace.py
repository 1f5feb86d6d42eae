"""A path through the space in words, one line a move: what happens, and what the node then does."""

from __future__ import annotations

from collections.abc import Iterable

from rmqha.base.errors import RmqhaError
from rmqha.controller.raft.messages import Message
from rmqha.sim.explore.group import Group
from rmqha.sim.explore.moves import Move
from rmqha.sim.explore.walk import State, Violation

WORDS = {
    "timeout": "its election timeout passes",
    "hung": "its oldest write has taken too long",
    "full": "its disk is full",
    "space": "its disk has space again",
    "ask": "its pause between questions is over",
    "wipe": "loses power, and its disk is replaced by an empty one",
    "damage": "loses power, and its store is found damaged",
    "heartbeat": "its heartbeat is due",
    "quorum_lost": "nobody has answered it for too long",
    "persist": "its oldest write is durable",
    "propose": "a record is proposed",
    "read": "a read is asked for",
    "restart": "restarts on what its disk holds",
    "snapshot": "begins a snapshot",
    "snapshot_saved": "its snapshot is durable",
    "install_saved": "the leader's snapshot is durable here",
    "installed": "the leader's snapshot is loaded",
}


def tell(group: Group, start: State, moves: Iterable[Move]) -> list[str]:
    """Play moves again from a state, and say what happens.

    The last line of a violation is the property that broke.
    """
    lines: list[str] = []
    state = start
    for number, move in enumerate(moves, 1):
        lines.append(f"{number:3} {_what(group, state, move)}")
        before = state
        try:
            state = group.after(state, move)
        except Violation as violation:
            lines += _did(group, before, move)
            lines.append(f"    VIOLATION: {violation}")
            break
        lines += _did(group, before, move)
    return lines


def _what(group: Group, state: State, move: Move) -> str:
    name = group.names[move.node]
    match move.kind:
        case "deliver" | "drop" | "duplicate":
            words = {"deliver": "arrives", "drop": "is lost", "duplicate": "arrives, and again"}
            link = f"{group.names[move.peer]} -> {name}"
            return f"{link}: {_message(group, state, move)} {words[move.kind]}"
        case "crash":
            pending = len(group.member(state, move.node).writing)
            lost = f"; {move.number} of {pending} unfinished writes survive" if pending else ""
            return f"{name}: loses power{lost}"
        case "reset":
            return f"{name} - {group.names[move.peer]}: the connection is reset"
        case "transfer":
            return f"{name}: is asked to hand over to {group.names[move.peer]}"
        case "full" if move.number:
            return f"{name}: there is no space for the leader's snapshot"
        case kind:
            return f"{name}: {WORDS[kind]}"


def _message(group: Group, state: State, move: Move) -> str:
    message = group.messages.items[group.link(state, move.peer, move.node)[move.number]]
    return "the end of the connection" if isinstance(message, tuple) else words_of(message)


def words_of(message: Message) -> str:
    """A message without its sender; entries as ``index/term``."""
    shown: list[str] = []
    for name in message.__struct_fields__:
        value = getattr(message, name)
        if name == "entries":
            value = "[" + " ".join(f"{e.log_index}/{e.term}" for e in value) + "]"
        elif isinstance(value, bytes):
            value = f"{len(value)} bytes"
        if name != "sender":
            shown.append(f"{name}={value}")
    return f"{type(message).__name__}({', '.join(shown)})"


def _did(group: Group, state: State, move: Move) -> list[str]:
    """What the node did in one move, from a step made once more."""
    if move.kind in ("drop", "reset"):
        return []
    try:
        member = group.moved(*group.step_of(state, move))
    except RmqhaError:
        return []
    lines = [f"        {group.names[move.node]} {words}" for words in member.told]
    for to, message in member.sent:
        lines.append(f"        sends {to} {words_of(message)}")
    waiting = len(member.writing) - len(group.member(state, move.node).writing)
    if waiting > 0:
        held = sum(len(write.held) for write in member.writing)
        lines.append(f"        writes to its disk; {held} messages wait for that")
    return lines
