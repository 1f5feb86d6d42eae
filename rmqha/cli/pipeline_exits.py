"""How jobs of ``bin/pipeline`` end: exit codes, and one line for what cannot be done."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rmqha.pipeline.spark.plain_errors import line_of

EXIT_FOUND = 1
"""Done, and something was found that must not be: damage, a difference, a loss."""
EXIT_USAGE = 2
LINES_MAX = 50
"""Rows of a table that a job prints."""


@contextmanager
def usage_errors() -> Iterator[None]:
    """Errors that are meant for users end the process with one line and code 2.

    Also those that a worker of Spark's raised, or Spark's own writer, in the midst of Java's frames.
    """
    try:
        yield
    except Exception as error:
        line = line_of(error)
        if line is None:
            raise
        print(f"pipeline: {line}", file=sys.stderr)
        sys.exit(EXIT_USAGE)


def write_page(out: str, name: str, text: str) -> None:
    """Write a report beside the tables, where these are in a directory of this machine.

    Behind what a job tells: a page that cannot be written hides nothing.

    Raises:
        OSError: it cannot be written.
    """
    if os.path.isdir(out):
        with open(os.path.join(out, name), "w", encoding="utf-8") as page:
            page.write(text)
