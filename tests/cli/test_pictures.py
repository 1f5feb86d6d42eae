"""The pictures of the tables of states, as ``bin/pictures`` draws them."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from rmqha.base.transitions import StateTable, Transition
from rmqha.cli.pictures import FOLDER, PICTURES, draw

SMALL = StateTable(
    "Two & more",
    (("one", "first"), ("two", "second")),
    (
        Transition("one", "Went", "two", "a < b", "here"),
        Transition("two", "Came", "one", "always", "there"),
    ),
)


@pytest.mark.parametrize("name", PICTURES)
def test_picture_when_drawn_again_then_it_is_the_one_of_the_documents(name: str) -> None:
    """A table that changes leaves a picture that lies; bin/pictures draws it again."""
    assert (FOLDER / name).read_text() == draw(PICTURES[name])


@pytest.mark.parametrize("table", [*PICTURES.values(), SMALL], ids=[*PICTURES, "small"])
def test_picture_when_drawn_then_states_arrows_and_reasons_are_in_it(table: StateTable) -> None:
    """What the picture leaves out, nobody looks for in the table."""
    texts = [one.text for one in ElementTree.fromstring(draw(table)).iter() if one.text]
    assert {name for name, _ in table.states} <= set(texts)
    assert {row.when for row in table.rows} <= set(texts)
    assert {row.source for row in table.rows} <= set(texts)
    arrows = draw(table).count('class="way"')
    assert arrows == len({(row.state, row.to) for row in table.rows})


@pytest.mark.parametrize("table", PICTURES.values(), ids=PICTURES)
def test_table_when_read_then_every_state_is_named_and_can_be_reached(table: StateTable) -> None:
    """A state that no row leads to, or that has no words, is one that nobody has thought of."""
    names = [name for name, _ in table.states]
    assert {state for row in table.rows for state in (row.state, row.to)} == set(names)
    reached = {names[0]}
    for _ in names:
        reached |= {row.to for row in table.rows if row.state in reached}
    assert reached == set(names)
