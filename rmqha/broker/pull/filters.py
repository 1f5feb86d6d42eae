"""Filters by more than tags: selectors, compiled once, and asked of stored records.

The parser is loaded with the first selector: most brokers never see one.

Source: ConsumerFilterManager and ExpressionMessageFilter of RocketMQ 5.1 to 5.5; there is no bit map
of filters beside the queues here, so every record of a filtered queue is looked at.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from typing import TYPE_CHECKING

from rmqha.broker.groups.consumers import (
    PARSE_FAILED as PARSE_FAILED,
)  # rooms above take it from here
from rmqha.broker.groups.consumers import TAG, Subscription
from rmqha.store import properties as props
from rmqha.store.record import BORN_HOST_V6, MAGIC_V2, STORE_HOST_V6

if TYPE_CHECKING:
    from rmqha.broker.pull.sql92 import Selector

SQL92 = "SQL92"
SELECTORS_MAX = 1_000
"""Compiled selectors that are kept; the one that was not asked for the longest goes first."""

CHARACTERS_MAX = 4 << 20
"""Of all their texts together."""

SCAN_FILTERED_MAX = 1_000
"""Records that one pull looks into before it answers, however few of them match."""

STEPS_MAX = 16_000
"""Steps of selectors, likewise; about a microsecond each."""


class Matches:
    """Whether a stored record is wanted.

    Attributes:
        selector: of its properties.
        scan_max: records that one pull may ask for.
    """

    __slots__ = ("scan_max", "selector")

    def __init__(self, selector: Selector) -> None:
        self.selector = selector
        self.scan_max = min(SCAN_FILTERED_MAX, max(1, STEPS_MAX // (selector.work + 1)))

    def __call__(self, record: memoryview) -> bool:
        """Look at a whole record."""
        return self.selector(properties_of(record))


_MAGIC_AT, _SYS_FLAG_AT, _BODY_SIZE_AT, _V6_MORE = 4, 36, 84, 12
_I32 = struct.Struct(">i")


class Selectors:
    """The selectors of one broker's consumers."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Selector | str] = OrderedDict()
        self._characters = 0

    def __len__(self) -> int:
        return len(self._known)

    def find(self, text: str, expression_type: str = SQL92) -> Selector | str:
        """A compiled selector, or why the text is none."""
        if expression_type != SQL92:
            return f"there are no filters of type {expression_type}"
        found = self._known.get(text)
        if found is None:
            found = _compiled(text)
            if len(text) > CHARACTERS_MAX:
                return found
            self._known[text] = found
            self._characters += len(text)
            while len(self._known) > SELECTORS_MAX or self._characters > CHARACTERS_MAX:
                self._characters -= len(self._known.popitem(last=False)[0])
        else:
            self._known.move_to_end(text)
        return found

    def matches(self, wanted: Subscription) -> Matches | str | None:
        """What to ask of records; None when tags say it all, a text for why there is nothing."""
        if wanted.expression_type == TAG:
            return None
        selector = self.find(wanted.sub_string, wanted.expression_type)
        if isinstance(selector, str):
            return selector
        return Matches(selector)


def unsupported(expression_type: str) -> str:
    """What Java's broker says without ``enablePropertyFilter``."""
    return f"The broker does not support consumer to filter message by {expression_type}"


def properties_of(record: memoryview) -> dict[str, str]:
    """The properties of a whole record; they are its last field."""
    (sys_flag,) = _I32.unpack_from(record, _SYS_FLAG_AT)
    at = _BODY_SIZE_AT
    at += _V6_MORE * (bool(sys_flag & BORN_HOST_V6) + bool(sys_flag & STORE_HOST_V6))
    at += _I32.size + _I32.unpack_from(record, at)[0]
    width = 2 if int.from_bytes(record[_MAGIC_AT : _MAGIC_AT + 4]) == MAGIC_V2 else 1
    at += width + int.from_bytes(record[at : at + width])
    size = int.from_bytes(record[at : at + 2])
    return props.decode(bytes(record[at + 2 : at + 2 + size]))


def _compiled(text: str) -> Selector | str:
    from rmqha.broker.pull.sql92 import SelectorIllegal, compile_selector

    try:
        return compile_selector(text)
    except SelectorIllegal as error:
        return str(error)
