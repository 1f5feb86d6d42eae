"""The small HTML page that a job leaves for people: a title, sentences, tables."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

REPORT = "_report.html"
"""The page's name, beside the tables of its job."""
SHOWN_MAX = 1000
"""Rows of a table that a page shows."""
_PAGE = """<!doctype html><meta charset="utf-8"><title>rmqha {title}</title>
<style>body{{font:14px sans-serif;margin:2em}}td,th{{padding:.2em 1em;text-align:left}}
.n{{text-align:right}}</style>
<h1>{title}</h1>{parts}
"""


def page(title: str, *parts: str) -> str:
    """A page; ``parts`` are made by ``sentence`` and ``table``."""
    return _PAGE.format(title=html.escape(title), parts="\n".join(parts))


def sentence(text: str) -> str:
    """One paragraph of HTML."""
    return f"<p>{html.escape(text)}</p>"


def table(title: str, names: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table with a heading; None is shown as nothing, numbers stand to the right."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    lines = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<h2>{html.escape(title)}</h2><table><tr>{head}</tr>{lines}</table>"


def _cell(value: object) -> str:
    text = "" if value is None else html.escape(str(value))
    return f'<td class="n">{text}</td>' if isinstance(value, int | float) else f"<td>{text}</td>"
