"""Numbers in options, as users write them."""

from __future__ import annotations


def number_of(text: str, most: int) -> int | None:
    """A natural number in ordinary digits; None for anything else, and for more than ``most``."""
    # Python converts no text that is thousands of digits long.
    if not (text.isascii() and text.isdecimal()) or len(text.lstrip("0")) > len(str(most)):
        return None
    found = int(text.lstrip("0") or "0")
    return found if found <= most else None
