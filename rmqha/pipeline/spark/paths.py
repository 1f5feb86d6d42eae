"""Paths as Spark's readers take them. Pure."""

from __future__ import annotations

import re

_PATTERN = re.compile(r"[][{}*?\\]")


def literal(path: str) -> str:
    r"""A path that names just one file or directory: readers take every path for a pattern.

    Writers and the option ``basePath`` do not: they are given the path as it is.
    """
    return _PATTERN.sub(r"\\\g<0>", path)
