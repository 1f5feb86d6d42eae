"""Typed reading and writing of ``ext_fields`` with Java's leniency.

A missing or malformed number keeps the caller's default and is no error; "true" in any case is
true and everything else false. Controllers of old brokers rely on both.

Source: RemotingCommand.decodeCommandCustomHeader, RocketMQ remoting.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

DefaultT = TypeVar("DefaultT")

_PLAIN_DIGITS_MAX = 19
_DIGITS_MAX = 64  # leading zeros are legal; Python refuses to read thousands of digits
INT64_MAX = 0x7FFFFFFFFFFFFFFF
INT32_MAX = 0x7FFFFFFF

FieldValue = str | int | bool | None


def text_field(fields: Mapping[str, str] | None, name: str, default: DefaultT) -> str | DefaultT:
    """A field's text, or ``default`` when it is missing."""
    return default if fields is None else fields.get(name, default)


def long_field(fields: Mapping[str, str] | None, name: str, default: DefaultT) -> int | DefaultT:
    """A 64-bit number, or ``default`` when it is missing, malformed or too large."""
    return _number(fields, name, default, INT64_MAX)


def int_field(fields: Mapping[str, str] | None, name: str, default: DefaultT) -> int | DefaultT:
    """A 32-bit number, or ``default`` when it is missing, malformed or too large."""
    return _number(fields, name, default, INT32_MAX)


def bool_field(fields: Mapping[str, str] | None, name: str, default: bool = False) -> bool:
    """A boolean, or ``default`` when it is missing."""
    value = None if fields is None else fields.get(name)
    return default if value is None else value.lower() == "true"


def ext_fields(**values: FieldValue) -> dict[str, str]:
    """Write fields as Java does: None is left out, booleans in lower case, numbers as digits."""
    written: dict[str, str] = {}
    for name, value in values.items():
        if value is None:
            continue
        if value is True or value is False:
            written[name] = "true" if value else "false"
        else:
            written[name] = str(value)
    return written


_SMALL = {str(number): number for number in range(1024)}
"""Ids, epochs and flags: most of what is parsed."""


def parse_number(text: str, largest: int) -> int | None:
    """Parse as ``Long.parseLong`` does: an optional sign and digits, no blanks, no underscores.

    Returns:
        The number when it lies in ``[-largest - 1, largest]``, else None.
    """
    small = _SMALL.get(text)
    if small is not None and small <= largest:
        return small
    if not text.isascii():
        return None
    if text.isdecimal() and len(text) <= _PLAIN_DIGITS_MAX:
        value = int(text)
        return value if value <= largest else None
    digits = text[1:] if text[:1] in {"+", "-"} else text
    # int() also takes blanks, underscores and thousands of digits; Java takes none of them.
    if not digits.isdecimal() or len(digits) > _DIGITS_MAX:
        return None
    value = int(text)
    return value if -largest - 1 <= value <= largest else None


def _number(
    fields: Mapping[str, str] | None, name: str, default: DefaultT, limit: int
) -> int | DefaultT:
    text = None if fields is None else fields.get(name)
    if text is None:
        return default
    number = parse_number(text, limit)
    return default if number is None else number
