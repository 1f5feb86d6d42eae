"""Values of SQL92 filters: what they are, and how two are compared, as Java's classes do it.

A property is a text. Against a number it is read as a number of that number's kind: ``a > 3`` asks
for a whole number, ``a > 3.0`` for any. A text that is none cannot be compared, and that ends the
whole evaluation.

Source: ComparisonExpression, UnaryExpression and ConstantExpression of RocketMQ 5.1 to 5.5.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

from rmqha.base.errors import RmqhaError
from rmqha.remoting.headers import INT32_MAX, INT64_MAX, parse_number


class Kind(IntEnum):
    """Of a number, narrowest first; of two, the wider one compares."""

    INT = 0
    LONG = 1
    DOUBLE = 2


class Number(NamedTuple):
    """A number as Java has it."""

    kind: Kind
    value: int | float


Value = str | bool | Number | None


class CannotCompare(RmqhaError):
    """Two values of which none is smaller; the message says which."""


_JAVA_DOUBLE = re.compile(
    r"(?P<sign>[+-]?)(?:(?P<word>NaN|Infinity)|"
    r"(?P<digits>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?|"
    r"(?P<hex>0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?)"
)
_BLANKS = "".join(map(chr, range(33)))
_UNIT_MAX = 0xFFFF
_DOUBLE_MIN = math.ulp(0.0)


def number_of(text: str) -> Number | None:
    """A number as a selector has it; None for one that is too large, or 0.0, which Java refuses."""
    if text.lstrip("0123456789").strip("lL") == "":
        value = parse_number(text.rstrip("lL"), INT64_MAX)
        if value is None:
            return None
        return Number(Kind.INT if value <= INT32_MAX else Kind.LONG, value)
    number = float(text)
    return Number(Kind.DOUBLE, number) if _DOUBLE_MIN <= number < math.inf else None


def negated(value: Value) -> Value:
    """A number's opposite; unknown of anything else."""
    return Number(value.kind, -value.value) if isinstance(value, Number) else None


def equal(one: Value, other: Value) -> bool | None:
    """Whether two values are equal; unknown when the first is, not when the second is."""
    if one is None or other is None:
        return True if one is other else (None if one is None else False)
    if type(one) is type(other) and one == other and not _is_double(one):
        return True
    return in_order(one, other) == 0


def holds(one: Value, other: Value, is_so: Callable[[int], bool]) -> bool | None:
    """Whether ``one`` stands to ``other`` as asked; unknown when one of them is.

    Raises:
        CannotCompare: neither is smaller.
    """
    if one is None or other is None:
        return None
    if isinstance(one, str) and isinstance(other, str):
        return is_so(_doubles(_read(one, Kind.DOUBLE), _read(other, Kind.DOUBLE)))
    return is_so(in_order(one, other))


def in_order(one: Value, other: Value) -> int:
    """Below 0, 0 or above, as Java's ``compareTo``; kinds that do not fit are never equal.

    Raises:
        CannotCompare: a text that is no number, or a truth value before a text.
    """
    match one, other:
        case Number(), Number():
            return _numbers(one, other)
        case Number(), str():
            return _numbers(one, Number(one.kind, _read(other, one.kind)))
        case str(), Number():
            return _numbers(Number(other.kind, _read(one, other.kind)), other)
        case str(), bool():
            return (one.lower() == "true") - other
        case bool(), str():
            raise CannotCompare(f"a truth value and {other!r}")
        case (str(), str()) | (bool(), bool()):
            return (one > other) - (one < other)  # type: ignore[operator]  # of one type
        case _:
            return -1


def _is_double(value: Value) -> bool:
    return isinstance(value, Number) and value.kind is Kind.DOUBLE


def _numbers(one: Number, other: Number) -> int:
    if max(one.kind, other.kind) is Kind.DOUBLE:
        return _doubles(float(one.value), float(other.value))
    return (one.value > other.value) - (one.value < other.value)


def _doubles(one: float, other: float) -> int:
    """Java's total order: -0.0 below 0.0, NaN above everything and equal to itself."""
    mine, theirs = _rank(one), _rank(other)
    return (mine > theirs) - (mine < theirs)


def _rank(value: float) -> tuple[bool, float, float]:
    if math.isnan(value):
        return True, 0.0, 0.0
    return False, value, math.copysign(1.0, value)


def _read(text: str, kind: Kind) -> int | float:
    if kind is Kind.DOUBLE:
        return _double(text)
    value = parse_number(_plain(text), INT32_MAX if kind is Kind.INT else INT64_MAX)
    if value is None:
        raise CannotCompare(f"{text!r} is no whole number")
    return value


def _plain(text: str) -> str:
    """Digits of other scripts as ASCII; Java knows those that are one UTF-16 unit."""
    if text.isascii() or not all(c.isdecimal() and ord(c) <= _UNIT_MAX for c in text[1:]):
        return text
    return "".join(str(int(c)) if c.isdecimal() and ord(c) <= _UNIT_MAX else c for c in text)


def _double(text: str) -> float:
    match = _JAVA_DOUBLE.fullmatch(text.strip(_BLANKS))
    if match is None:
        raise CannotCompare(f"{text!r} is no number")
    if match["word"]:
        value = math.nan if match["word"] == "NaN" else math.inf
    elif match["hex"]:
        try:
            value = float.fromhex(match["hex"])
        except OverflowError:
            value = math.inf
    else:
        value = float(match["digits"])
    return -value if match["sign"] == "-" else value
