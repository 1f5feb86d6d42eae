"""The fenced blocks of a page, and what its author says of each: no processes here.

A mark is a comment of its own line right above a fence, where readers of the page do not see it:

    <!-- shown: output of the election above -->    no commands: output, a picture, a configuration
    <!-- synopsis -->                               commands with placeholders: names and options exist
    <!-- tested: tests/pipeline/test_docs.py -->    these tests take the block from the page and run it
    <!-- not run: needs a Kubernetes cluster -->    commands that cannot be run here, and why

A block without a mark is run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from textwrap import dedent

from msgspec import Struct

FENCE = "```"
MARK = re.compile(r"^<!--\s*(shown|synopsis|tested|not run)(?::\s*(.*?))?\s*-->$")
OPTION = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*")
RUNNABLE = ("", "bash", "sh", "python")


class BadBlock(ValueError):
    """A page whose blocks cannot be told."""


class Block(Struct, frozen=True):
    """One fenced block.

    Attributes:
        line: of its fence, counted from 1.
        language: what stands behind the fence.
        mark: ``shown``, ``synopsis``, ``tested``, ``not run``; empty for what is run.
        reason: what stands behind the mark.
    """

    page: str
    line: int
    language: str
    text: str
    mark: str = ""
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


class Usage(Struct, frozen=True):
    """One line of a synopsis.

    Attributes:
        program: ``bin/mqadmin``.
        commands: the word behind it, and behind every ``|``: alternatives.
        options: every option of the line.
    """

    program: str
    commands: tuple[str, ...]
    options: tuple[str, ...]


def blocks_of(page: str, text: str) -> list[Block]:
    """All blocks of a page, in order.

    Raises:
        BadBlock: a fence without an end, a mark that no fence follows, a mark without its reason,
            or commands in a language that nobody runs.
    """
    return list(_blocks(page, text.splitlines()))


def _blocks(page: str, lines: Sequence[str]) -> Iterator[Block]:
    mark: tuple[str, str] | None = None
    number = 0
    while number < len(lines):
        line = lines[number].strip()
        number += 1
        if not line.startswith(FENCE):
            if mark is not None:
                raise BadBlock(f"{page}:{number}: no block follows the mark above")
            mark = _mark(page, number, line)
            continue
        start, body = number, []
        while number < len(lines) and lines[number].strip() != FENCE:
            body.append(lines[number])
            number += 1
        if number == len(lines):
            raise BadBlock(f"{page}:{start}: this block has no end")
        number += 1
        kind, reason = mark or ("", "")
        language = line.removeprefix(FENCE)
        if not kind and language not in RUNNABLE:
            raise BadBlock(f"{page}:{start}: nobody runs {language!r}; say what the block is")
        yield Block(page, start, language, dedent("\n".join(body) + "\n"), kind, reason)
        mark = None
    if mark is not None:
        raise BadBlock(f"{page}:{number}: no block follows the mark above")


def _mark(page: str, number: int, line: str) -> tuple[str, str] | None:
    found = MARK.match(line)
    if found is None:
        return None
    kind, reason = found[1], (found[2] or "").strip()
    if kind != "synopsis" and not reason:
        raise BadBlock(f"{page}:{number}: {kind!r} without a reason")
    return kind, reason


def usages(text: str) -> list[Usage]:
    """The lines of a synopsis. What follows two spaces and is no option, is a remark."""
    return [_usage(line) for line in text.splitlines() if line.strip()]


def _usage(line: str) -> Usage:
    parts = re.split(r"\s{2,}(?=\w)|\s#", line.strip())
    program, *words = re.sub(r"[\[\]]|'[^']*'", " ", parts[0]).split()
    commands = tuple(
        word
        for before, word in zip(["|", *words], words, strict=False)
        if before == "|" and not word.startswith("-")
    )
    return Usage(program, commands, tuple(OPTION.findall(" ".join(words))))


def script(blocks: Sequence[Block], folder: str) -> str:
    """The blocks of a page that are run, as one script of bash: one after another, as a reader does.

    Args:
        blocks: of one page.
        folder: stands for ``/tmp`` of the page.
    """
    parts = ["set -eu"]
    for number, block in enumerate(one for one in blocks if not one.mark):
        parts.append(f"echo '== {block}'")
        text = block.text.replace("/tmp/", f"{folder}/")
        if block.language == "python":
            is_test = re.search(r"^def test_", text, re.MULTILINE) is not None
            name = f"{'test_' if is_test else ''}block_{number}.py"
            parts.append(f"cat > {name} <<'END_OF_BLOCK'\n{text}END_OF_BLOCK")
            parts.append(
                f".venv/bin/python {'-m pytest -q -p no:cacheprovider ' if is_test else ''}{name}"
            )
        else:
            parts.append(text)
    return "\n".join(parts) + "\n"
