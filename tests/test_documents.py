"""The documents point at what is there: files, headings, tests."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"(?<!`)\[([^\]\[]+)\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)
FENCE = re.compile(r"^\s*```.*?^\s*```", re.MULTILINE | re.DOTALL)


@functools.cache
def _text(page: Path) -> str:
    """What a reader sees as prose: examples may look like links."""
    return FENCE.sub("", page.read_text())


@functools.cache
def _anchors(page: Path) -> set[str]:
    """Headings as GitHub links to them."""
    found = HEADING.findall(_text(page))
    return {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in found}


def _wrong(page: Path, text: str, target: str) -> str | None:
    path, _, anchor = target.partition("#")
    place = (page.parent / path).resolve() if path else page
    if not place.exists():
        return f"{target} is not there"
    if anchor and anchor not in _anchors(place):
        return f"{target}: no such heading"
    name = text.strip("`")
    if name.startswith("test_") and place.is_file() and not name.endswith(".py"):
        found = re.search(rf"^\s*(?:async )?def {name}\(", place.read_text(), re.MULTILINE)
        return None if found else f"{path} has no {name}"
    return None


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_page_when_it_points_somewhere_then_that_is_there(page: Path) -> None:
    """A row of PARITY whose test is gone is a promise that nobody checks."""
    links = [one for one in LINK.findall(_text(page)) if not one[1].startswith("http")]
    assert [wrong for text, target in links if (wrong := _wrong(page, text, target))] == []


@pytest.mark.parametrize(
    "target", ["gone.md", "../README.md#no-such-heading", "../tests/test_documents.py"]
)
def test_link_when_it_leads_nowhere_then_it_is_found(target: str) -> None:
    """A check that finds nothing may be blind."""
    assert _wrong(ROOT / "docs" / "PARITY.md", "test_that_nobody_wrote", target) is not None


def test_parity_when_read_then_its_rows_have_links() -> None:
    """The check above holds of an empty page, too."""
    tests = [text for text, _ in LINK.findall(_text(ROOT / "docs" / "PARITY.md"))]
    assert len([text for text in tests if text.startswith("test_")]) > 300
