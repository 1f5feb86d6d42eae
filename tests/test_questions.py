"""Who has not seen the code finds the file for a question by the names of folders and files alone.

A stranger is played: it knows the questions of ADR 0041 and the paths, and opens no file. It looks
for the question's words in the paths. A file that was given a name that says nothing is not among
the first that it would open.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
ROOT = REPOSITORY / "rmqha"
QUESTIONS = REPOSITORY / "docs/adr/0041-names-parts-and-walks.md"
OF_THE_BROKER = REPOSITORY / "docs/adr/0025-rooms-of-the-broker.md"
ROW = re.compile(r"^\| (.+?) \| `([\w/.]+\.py)` \|$", re.MULTILINE)
OPENED_MAX = 5
"""So many files a stranger opens before it gives up."""
ALIKE = 4
"""Words are one word that agree in so many letters from the first on, or are equal."""
SAY_NOTHING = {
    "a", "an", "and", "are", "as", "at", "be", "by", "does", "each", "for", "from", "has", "how", "in", "is", "it",
    "its", "may", "of", "on", "the", "to", "what", "when", "where", "which", "who", "whom", "with", "aio", "py",
}  # fmt: skip
PATHS = sorted(str(path.relative_to(ROOT)) for path in ROOT.rglob("*.py"))


def rows_of(document: Path) -> list[tuple[str, str]]:
    """The questions of a document and their files."""
    return ROW.findall(document.read_text())


def words_of(text: str) -> set[str]:
    """The words that say something, in small letters; SyncStateSet is three of them."""
    plain = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text)
    return set(re.findall(r"[a-z0-9]+", plain.lower())) - SAY_NOTHING


def are_alike(one: str, other: str) -> bool:
    """Whether a stranger takes two words for one: vote and votes, elect and election."""
    return one == other or (min(len(one), len(other)) >= ALIKE and one[:ALIKE] == other[:ALIKE])


def opened(question: str) -> list[str]:
    """The files that a stranger opens, in its order: first those whose names say most of it."""
    asked = words_of(question)

    def rank(path: str) -> tuple[int, int, str]:
        named = words_of(path)
        file_words = words_of(Path(path).stem)
        met = sum(any(are_alike(word, name) for name in named) for word in asked)
        met += sum(any(are_alike(word, name) for name in file_words) for word in asked)
        strange = sum(not any(are_alike(name, word) for word in asked) for name in named)
        return -met, strange, path

    return sorted(PATHS, key=rank)[:OPENED_MAX]


@pytest.mark.few
@pytest.mark.parametrize(("question", "file"), rows_of(QUESTIONS))
def test_question_when_a_stranger_looks_at_names_then_it_opens_the_file(
    question: str, file: str
) -> None:
    """A house is one to live in when nobody has to be asked where things are."""
    assert file in opened(question)


def test_questions_are_twenty_and_of_the_whole_house() -> None:
    """A table that lost its rows would ask nothing."""
    files = [file for _, file in rows_of(QUESTIONS)]
    assert len(set(files)) == len(files) == 20
    assert {"controller", "ha", "store", "broker", "namesrv"} <= {
        one.split("/")[0] for one in files
    }


@pytest.mark.parametrize(("question", "file"), rows_of(OF_THE_BROKER))
def test_answer_about_the_broker_when_a_file_moves_then_the_table_moves_with_it(
    question: str, file: str
) -> None:
    """Twenty questions about the broker stand in ADR 0025, their answers below its folder."""
    assert (ROOT / "broker" / file).resolve().is_file(), question


def test_stranger_when_a_name_says_nothing_then_it_does_not_find_the_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that finds everything proves nothing."""
    question, file = "Which pulls are held until messages come?", "broker/pull/held.py"
    assert file in opened(question)
    renamed = "broker/aio/misc.py"
    monkeypatch.setattr(f"{__name__}.PATHS", [renamed if one == file else one for one in PATHS])
    assert renamed not in opened(question)
