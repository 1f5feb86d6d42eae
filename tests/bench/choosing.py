"""Options that name some of several: a typing error ends a benchmark before it measures anything."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection


def some_of(names: Collection[str]) -> Callable[[str], str]:
    """What argparse reads an option by that is a list of these names, with commas; it stays a text."""

    def read(text: str) -> str:
        unknown = [one for one in text.split(",") if one not in names]
        if unknown:
            wrong = ", ".join(map(repr, unknown))
            raise argparse.ArgumentTypeError(f"{wrong}: none of {', '.join(names)}")
        return text

    return read


def beginning_of(names: Collection[str]) -> Callable[[str], str]:
    """The same for the beginning of one of these names; empty for all of them."""

    def read(text: str) -> str:
        if not any(one.startswith(text) for one in names):
            raise argparse.ArgumentTypeError(f"{text!r} begins none of: {', '.join(names)}")
        return text

    return read
