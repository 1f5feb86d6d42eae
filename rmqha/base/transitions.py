"""The shape of a table of states: which event leads from which state to which, and why.

A table stands at the door of a core whose states are worth a picture. It decides nothing: the
core does. Tests drive the core through every row and fail on a change that no row has, and
``bin/pictures`` draws the picture of the documents from it, so that neither can be out of date.
"""

from __future__ import annotations

from typing import NamedTuple


class Transition(NamedTuple):
    """One row: a change of state that the core makes.

    Attributes:
        state, to: before and after the event.
        event: its type, or the type of the message that arrived.
        when: what must hold besides; without it the event leaves the state as it is.
        source: the section of the paper, the dissertation or the RIP; or the decision of ours.
    """

    state: str
    event: str
    to: str
    when: str
    source: str


class StateTable(NamedTuple):
    """What a picture shows.

    Attributes:
        title: the picture's heading.
        states: in the order in which they are drawn, with a few words on each.
        rows: every change of state.
    """

    title: str
    states: tuple[tuple[str, str], ...]
    rows: tuple[Transition, ...]
