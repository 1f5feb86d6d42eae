"""What a configuration's values mean: nodes show them as they were given."""

from __future__ import annotations

from collections.abc import Mapping


def is_true(values: Mapping[str, str], key: str) -> bool:
    """Whether a key is set to true, in any case of letters, as nodes take it; a missing one is not."""
    return meant(values.get(key, "")) == "true"


def meant(text: str) -> str:
    """The one way to write what a node understands by a number, or by true and false."""
    text = text.strip()
    if text.isascii() and text.isdigit():
        return text.lstrip("0") or "0"
    return text.lower() if text.lower() in ("true", "false") else text
