"""A large table of consumer offsets (43), read some of it at a time.

Java's answer is one object whose ``offsetTable`` holds an object of number keys for each topic and
group. A million offsets take a second to read, so they are read in slices, each of which is such a
table itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from rmqha.broker.common.json_members import json_object
from rmqha.remoting import fastjson

SLICE_BYTES = 16 << 10

# Members before the table: numbers, texts and flat objects.
_HEAD = re.compile(
    rb'\s*+\{(?:\s*+"\w++"\s*+:\s*+(?:\{[^{}]*+\}|"[^"\\]*+"|[^"{}\[\],]++)\s*+,)*+'
    rb'\s*+"offsetTable"\s*+:\s*+\{'
)
_ENTRY = re.compile(rb'\s*+"(?:[^"\\]++|\\.)*+"\s*+:\s*+\{[^{}]*+\}\s*+(?P<after>[,}])', re.DOTALL)


def table_slices(body: bytes, slice_bytes: int = SLICE_BYTES) -> Iterator[dict[str, Any]]:
    """Read a body: the table in slices, and at last all else that the body holds.

    From where it is not of the usual form the rest is read at once.

    Args:
        slice_bytes: of the body in one slice, more for one topic and group that has more.

    Raises:
        RemoteProtocolError: no JSON, or no object. Slices before may have been given.
    """
    start = _HEAD.match(body)
    if start is None:
        yield json_object(fastjson.loads(body), "the table")
        return
    begin = at = start.end()
    while (entry := _ENTRY.match(body, at)) is not None:
        at = entry.end()
        is_last = entry["after"] == b"}"
        if is_last or at - begin >= slice_bytes:
            # Without the comma or the brace behind it.
            yield {"offsetTable": fastjson.loads(b"{" + body[begin : at - 1] + b"}")}
            begin = at
        if is_last:
            begin = at - 1
            break
    yield json_object(fastjson.loads(body[: start.end()] + body[begin:]), "the table")


def head_of(body: bytes) -> dict[str, Any]:
    """The members that stand before the table; none where the body is not of the usual form.

    Raises:
        RemoteProtocolError: they are no JSON.
    """
    start = _HEAD.match(body)
    return {} if start is None else json_object(fastjson.loads(start[0] + b"}}"), "the table")
