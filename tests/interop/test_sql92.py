"""SQL92 filters: Java's own filter library as the judge of ours, and Java's clients with both brokers.

``RMQHA_INTEROP_SEED`` repeats the random selectors of an earlier run. ``RMQHA_INTEROP_JAVA_BROKER=1``
runs the client's test against a Java broker as well, unchanged.
"""

from __future__ import annotations

import base64
import os
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from rmqha.broker.sql92 import SelectorIllegal, compile_selector
from tests.interop import required
from tests.interop.client_peer import ClientPeer

FILTERS = Path(__file__).parent / "java" / "FilterPeer.java"
ROUNDS = 3_000

NAMES = ("a", "b", "A", "_x$1", "empty")
TEXTS = (
    "", "0", "1", "5", "-3", "+7", "3.5", "1e3", "-0.0", "0.0", " 4 ", "4f", "0x1p3", "NaN",
    "Infinity", "true", "TRUE", "false", "abc", "a'b", "é", "2147483648", "9223372036854775808",
    "1_000", "٣", "x y",
)  # fmt: skip
NUMBERS = (
    "0", "1", "5", "7", "10", "2147483647", "2147483648", "9223372036854775807", "3.5", "1e3",
    ".5", "5.", "5L", "0.0", "1e400", "9223372036854775808", "007", "1E-3",
)  # fmt: skip
WORDS = (
    "NOT", "AND", "or", "Between", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH",
    "ENDSWITH", "=", "<>", "<", ">", "<=", ">=", "(", ")", ",", "+", "-", "/* c */", "-- c\n", ";",
    "!", "like", "''",
)  # fmt: skip


class Maker:
    """Random selectors: mostly by the grammar, sometimes of any words."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def selector(self) -> str:
        """One selector; one in ten is noise, which Java reads up to where it makes sense."""
        if self.rng.random() < 0.1:
            words = (*WORDS, *NAMES, *NUMBERS, "'x'", "'a''b'")
            return " ".join(self.rng.choices(words, k=self.rng.randint(1, 6)))
        return self._boolean(self.rng.randint(1, 4))

    def properties(self) -> dict[str, str]:
        """A message's; some names miss. Values are never empty on the wire, nor here."""
        chosen = [name for name in NAMES if self.rng.random() < 0.7]
        return {name: self.rng.choice(TEXTS[1:]) for name in chosen}

    def _boolean(self, depth: int) -> str:
        pick = self.rng.choice
        if depth <= 0:
            return self._simple()
        one, other = self._boolean(depth - 1), self._boolean(depth - 2)
        return pick(
            (
                f"{one} AND {other}", f"{one} or {other}", f"NOT {one}", f"({one})",
                f"({one}) = {pick(('TRUE', 'false', self._value()))}", f"({one}) IS NULL",
                f"{pick(NAMES)} <> ({one})", self._simple(),
            )
        )  # fmt: skip

    def _simple(self) -> str:
        pick, value = self.rng.choice, self._value
        text = pick(TEXTS).replace("'", "''")
        no = pick(("", "", "NOT "))
        return pick(
            (
                f"{value()} {pick(('=', '<>', '<', '>', '<=', '>='))} {value()}",
                f"{pick(NAMES)} {pick(('=', '<>', '<', '>', '<=', '>='))} {pick(NUMBERS)}",
                f"{pick(NAMES)} {no}BETWEEN {value()} AND {value()}",
                f"{pick(NAMES)} {no}BETWEEN {pick(NUMBERS)} AND {pick(NUMBERS)}",
                f"{pick(NAMES)} {no}IN ('{text}', 'abc','5')",
                f"{value()} {no}{pick(('CONTAINS', 'STARTSWITH', 'endswith'))} '{text[:2]}'",
                f"{value()} IS {pick(('', 'NOT '))}NULL",
                pick(NAMES), pick(("TRUE", "FALSE", "NULL")),
            )
        )  # fmt: skip

    def _value(self) -> str:
        pick = self.rng.choice
        text = pick(TEXTS).replace("'", "''")
        number = pick(NUMBERS)
        return pick((pick(NAMES), pick(NAMES), number, f"-{number}", f"+{number}", f"'{text}'"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For all processes."""
    return tmp_path_factory.mktemp("sql92")


@pytest.fixture(scope="module")
def java(folder: Path) -> Iterator[ClientPeer]:
    """Java's filter library."""
    required.require_classpath("5.3.3")
    with ClientPeer(folder / "filters", "5.3.3", "filters", FILTERS) as peer:
        yield peer


def said_by_java(java: ClientPeer, selector: str, properties: Mapping[str, str]) -> str:
    """``illegal``, ``true`` or ``false``."""
    words = [selector, *(word for pair in properties.items() for word in pair)]
    coded = (base64.b64encode(word.encode()).decode() or "=" for word in words)
    return java.ask(f"is {' '.join(coded)}")


def said_by_us(selector: str, properties: Mapping[str, str]) -> str:
    """The same words."""
    try:
        return str(compile_selector(selector)(properties)).lower()
    except SelectorIllegal:
        return "illegal"


def test_selectors_when_random_then_both_say_the_same_of_every_message(java: ClientPeer) -> None:
    """Legal or not, and what is delivered; only what Java leaves unread is refused here."""
    seed = int(os.environ.get("RMQHA_INTEROP_SEED") or random.randrange(1 << 32))
    print(f"RMQHA_INTEROP_SEED={seed}")
    maker = Maker(seed)
    seen: Counter[str] = Counter()
    for _ in range(ROUNDS):
        selector, properties = maker.selector(), maker.properties()
        theirs, ours = said_by_java(java, selector, properties), said_by_us(selector, properties)
        if theirs != "illegal" and ours == "illegal":
            # Java stops reading where nothing fits any more, and says nothing of the rest.
            with pytest.raises(SelectorIllegal, match=r"expected the end|begins nothing"):
                compile_selector(selector)
            seen["unread"] += 1
            continue
        assert ours == theirs, f"{selector!r} of {properties}"
        seen[ours] += 1
    print(dict(seen))
    assert min(seen["true"], seen["false"], seen["illegal"]) > ROUNDS // 20
    assert seen["unread"] < ROUNDS // 10
