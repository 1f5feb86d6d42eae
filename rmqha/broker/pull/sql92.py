"""SQL92 filters: the text of a selector becomes a function of a message's properties.

The language is that of JMS selectors without LIKE and arithmetic, with CONTAINS, STARTSWITH and
ENDSWITH. A selector is true, false or unknown of a message; only what is true is delivered. What
values are, and how they are compared, is in ``sql92_values``.

Two things are Java's own: 0.0 is no number here, and ``x BETWEEN`` constants must rise. One is not:
what stands behind the end of a selector is refused, where Java leaves it unread.

Source: the grammar of SelectorParser in RocketMQ 5.1 to 5.5.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from typing import NamedTuple

from rmqha.base.errors import RmqhaError
from rmqha.broker.pull.sql92_values import (
    CannotCompare,
    Number,
    Value,
    equal,
    holds,
    in_order,
    negated,
    number_of,
)

Properties = Mapping[str, str]
Evaluation = Callable[[Properties], Value]

TEXT_MAX = 65_536
TOKENS_MAX = 10_000
WORK_MAX = 1_000
"""Steps that one message may cost, about a microsecond each."""

DEPTH_MAX = 100
"""Of parentheses, signs and NOTs inside each other, and of operators one behind the other."""

_REMARK = re.compile(r"--[^\n\r]*+[\n\r]")
_TOKEN = re.compile(
    r"""(?x)
    (?P<blank> [ \t\n\r\f]+ | /\*.*?\*/ )
  | (?P<float> [0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)? | \.[0-9]+(?:[eE][+-]?[0-9]+)?
             | [0-9]+[eE][+-]?[0-9]+ )
  | (?P<whole> (?:0|[1-9][0-9]*[lL]?) )
  | (?P<text> '(?:''|[^'])*+' )
  | (?P<name> [A-Za-z_$][A-Za-z0-9_$]* )
  | (?P<sign> <> | >= | <= | [=<>(),+-] )
    """,
    re.DOTALL,
)
_WORDS = frozenset(
    {
        "NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS",
        "STARTSWITH", "ENDSWITH",
    }
)  # fmt: skip
_ORDERS: Mapping[str, Callable[[int], bool]] = {
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
}
_SEARCHES: Mapping[str, Callable[[str, str], bool]] = {
    "CONTAINS": lambda text, part: part in text,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


_NO_STEPS = frozenset({"(", ")", ","})


class SelectorIllegal(RmqhaError):
    """A text that is no selector; the message says where and why."""


class _Part(NamedTuple):
    """A part of a selector that has been read.

    Attributes:
        kind: ``bool``, ``property``, ``constant`` or ``negated``: what may be done with it.
        constant: the value of a constant; of a boolean one, too.
        is_constant: TRUE, FALSE and NULL are constants of kind ``bool``.
    """

    kind: str
    evaluate: Evaluation
    constant: Value = None
    is_constant: bool = False


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


class Selector:
    """What says whether a message is wanted.

    Attributes:
        work: how many steps that takes at most.
    """

    __slots__ = ("_evaluate", "work")

    def __init__(self, evaluate: Evaluation, work: int) -> None:
        self._evaluate = evaluate
        self.work = work

    def __call__(self, properties: Properties) -> bool:
        """Whether a message with these properties is; what cannot be compared is not, as in Java."""
        try:
            return self._evaluate(properties) is True
        except CannotCompare:
            return False


def compile_selector(text: str) -> Selector:
    """Read a selector.

    Raises:
        SelectorIllegal: the text is no selector, or a message would cost too much.
    """
    parser = _Parser(text)
    return Selector(parser.selector(), parser.work)


def _tokens(text: str) -> list[_Token]:
    if len(text) > TEXT_MAX:
        raise SelectorIllegal(f"a selector of more than {TEXT_MAX} characters")
    found: list[_Token] = []
    at, last_line_ends = 0, max(text.rfind("\n"), text.rfind("\r"))
    while at < len(text):
        # A remark ends with its line; looking for that at every sign would take for ever.
        match = _REMARK.match(text, at) if at < last_line_ends else None
        if match is not None:
            at = match.end()
            continue
        match = _TOKEN.match(text, at)
        if match is None:
            raise SelectorIllegal(f"{text[at]!r} at {at} begins nothing")
        kind = match.lastgroup or ""
        if kind == "name" and match.group().upper() in _WORDS:
            found.append(_Token("word", match.group().upper(), at))
        elif kind != "blank":
            found.append(_Token(kind, match.group(), at))
        at = match.end()
        if len(found) > TOKENS_MAX:
            raise SelectorIllegal(f"a selector of more than {TOKENS_MAX} words and signs")
    return [*found, _Token("end", "the end", at)]


class _Parser:
    """Reads one selector from left to right; every method reads what its name says."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._at = 0
        self._depth = 0
        self.work = 0

    @property
    def _now(self) -> _Token:
        return self._tokens[self._at]

    def _is(self, *texts: str, ahead: int = 0) -> bool:
        token = self._tokens[min(self._at + ahead, len(self._tokens) - 1)]
        return token.kind in ("word", "sign") and token.text in texts

    def _take(self, *texts: str) -> str:
        token = self._now
        # Each operator and each operand is a step of its own.
        self.work += token.text not in _NO_STEPS
        if self.work > WORK_MAX:
            raise SelectorIllegal(f"a selector of more than {WORK_MAX} steps")
        if texts and not self._is(*texts):
            raise self._illegal(f"expected {' or '.join(texts)}")
        self._at += 1
        return token.text

    def _illegal(self, why: str) -> SelectorIllegal:
        return SelectorIllegal(f"{why}, found {self._now.text} at {self._now.at}")

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise SelectorIllegal(f"more than {DEPTH_MAX} levels")

    # -- the grammar, loosest first ----------------------------------------------------------------

    def selector(self) -> Evaluation:
        evaluate = self._boolean(self._or()).evaluate
        if self._now.kind != "end":
            raise self._illegal("expected the end")
        return evaluate

    def _or(self) -> _Part:
        parts = [self._and()]
        while self._is("OR"):
            self._take()
            parts.append(self._and())
        return self._joined(parts, decisive=True)

    def _and(self) -> _Part:
        parts = [self._equality()]
        while self._is("AND"):
            self._take()
            parts.append(self._equality())
        return self._joined(parts, decisive=False)

    def _joined(self, parts: list[_Part], *, decisive: bool) -> _Part:
        if len(parts) == 1:
            return parts[0]
        evaluations = [self._boolean(part).evaluate for part in parts]

        def evaluate(properties: Properties) -> Value:
            unknown = False
            for one in evaluations:
                value = one(properties)
                if value is decisive:
                    return decisive
                unknown = unknown or value is None
            return None if unknown else not decisive

        return _Part("bool", evaluate)

    def _equality(self) -> _Part:
        left, depth = self._comparison(), self._depth
        while self._is("=", "<>", "IS"):
            self._deeper()
            sign = self._take()
            if sign == "IS":
                negative = self._is("NOT")
                if negative:
                    self._take()
                self._take("NULL")
                left = _is_null(left, negative=negative)
                continue
            right = self._comparison()
            left = self._equals(left, right, negative=sign == "<>")
        self._depth = depth
        return left

    def _equals(self, left: _Part, right: _Part, *, negative: bool) -> _Part:
        if (left.is_constant and left.constant is None) or (
            right.is_constant and right.constant is None
        ):
            raise self._illegal("NULL equals nothing, ask IS NULL")
        if left.is_constant and right.is_constant and left.kind == "bool" != right.kind:
            raise self._illegal("a truth value equals no other")
        one, other = left.evaluate, right.evaluate

        def evaluate(properties: Properties) -> Value:
            value = equal(one(properties), other(properties))
            return value if value is None or not negative else not value

        return _Part("bool", evaluate)

    def _comparison(self) -> _Part:
        left, depth = self._unary(), self._depth
        while True:
            negative = self._is("NOT") and self._is(*_SEARCHES, "BETWEEN", "IN", ahead=1)
            if not (negative or self._is(*_ORDERS, *_SEARCHES, "BETWEEN", "IN")):
                self._depth = depth
                return left
            self._deeper()
            if negative:
                self._take()
            sign = self._take()
            if sign in _ORDERS:
                left = self._ordered(left, sign, self._unary())
            elif sign in _SEARCHES:
                left = _search(left, _SEARCHES[sign], self._text(), negative=negative)
            elif sign == "BETWEEN":
                left = self._between(left, negative=negative)
            else:
                left = self._in(left, negative=negative)

    def _ordered(self, left: _Part, sign: str, right: _Part) -> _Part:
        for part in (left, right):
            if part.kind == "bool" or (part.is_constant and not isinstance(part.constant, Number)):
                raise self._illegal(f"{sign} compares numbers")
        one, other, is_so = left.evaluate, right.evaluate, _ORDERS[sign]
        return _Part("bool", lambda p: holds(one(p), other(p), is_so))

    def _between(self, value: _Part, *, negative: bool) -> _Part:
        low = self._unary()
        self._take("AND")
        high = self._unary()
        if not negative and low.is_constant and high.is_constant:
            self._check_rising(low.constant, high.constant)
        signs = ("<", ">") if negative else (">=", "<=")
        parts = [
            self._ordered(value, sign, edge)
            for sign, edge in zip(signs, (low, high), strict=True)
        ]  # fmt: skip
        return self._joined(parts, decisive=negative)

    def _check_rising(self, low: Value, high: Value) -> None:
        try:
            rising = low is not None and high is not None and in_order(high, low) >= 0
        except CannotCompare as error:
            raise self._illegal(str(error)) from error
        if not rising:
            raise self._illegal("BETWEEN has its smaller value first")

    def _in(self, left: _Part, *, negative: bool) -> _Part:
        if left.kind != "property":
            raise self._illegal("IN is asked of a property")
        self._take("(")
        texts = {self._text()}
        while self._is(","):
            self._take()
            texts.add(self._text())
        self._take(")")
        one = left.evaluate

        def evaluate(properties: Properties) -> Value:
            value = one(properties)
            return None if value is None else (value in texts) != negative

        return _Part("bool", evaluate)

    def _unary(self) -> _Part:
        if not self._is("+", "-", "NOT"):
            return self._primary()
        self._deeper()
        sign = self._take()
        part = self._unary()
        self._depth -= 1
        one = part.evaluate
        if sign == "+":
            return part
        if sign == "-":
            return _Part("negated", lambda p: negated(one(p)))
        one = self._boolean(part).evaluate

        def opposite(properties: Properties) -> Value:
            value = one(properties)
            return None if value is None else not value

        return _Part("bool", opposite)

    def _primary(self) -> _Part:
        token = self._now
        if token.kind == "name":
            name = sys.intern(self._take())
            return _Part("property", lambda properties: properties.get(name))
        if token.kind == "text":
            return _constant(self._text())
        if token.kind in ("whole", "float"):
            number = number_of(token.text)
            if number is None:
                raise self._illegal("no number of this size")
            self._take()
            return _constant(number)
        if self._is("TRUE", "FALSE", "NULL"):
            value = {"TRUE": True, "FALSE": False, "NULL": None}[self._take()]
            return _Part("bool", lambda _: value, value, is_constant=True)
        self._take("(")
        self._deeper()
        part = self._or()
        self._depth -= 1
        self._take(")")
        return part

    def _text(self) -> str:
        if self._now.kind != "text":
            raise self._illegal("expected a text")
        self.work -= 1  # the texts of IN are one set
        return self._take()[1:-1].replace("''", "'")

    def _boolean(self, part: _Part) -> _Part:
        if part.kind == "bool":
            return part
        if part.kind != "property":
            raise self._illegal("expected something that is true or false")
        # Properties are texts, and no text is true by itself.
        one = part.evaluate
        return _Part("bool", lambda properties: None if one(properties) is None else False)


def _constant(value: Value) -> _Part:
    return _Part("constant", lambda _: value, value, is_constant=True)


def _is_null(part: _Part, *, negative: bool) -> _Part:
    one = part.evaluate
    return _Part("bool", lambda properties: (one(properties) is None) != negative)


def _search(
    part: _Part, search: Callable[[str, str], bool], wanted: str, *, negative: bool
) -> _Part:
    one = part.evaluate

    def evaluate(properties: Properties) -> Value:
        value = one(properties)
        if not wanted or not isinstance(value, str):
            return False
        return search(value, wanted) != negative

    return _Part("bool", evaluate)
