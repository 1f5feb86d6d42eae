"""Traces of cores: what each was given and what it made of that, and whether it would again.

A core has no clock, no randomness and no files, so the same start and the same events make the
same effects. What lives here: the bytes of a trace, and how one is played. Files are in
``aio/trace_file``; which cores can be recorded, and from what start, stands in a ``traced`` file
of their rooms.

A trace is a row of records, each with its length (4 bytes, big-endian) before it; each record is a
msgpack array whose first item is its kind. Values that msgpack has no word for are arrays whose
first item says what they are (``pack``). Of effects a trace keeps a digest, which is compared, and
a line of text, which people read.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct

from rmqha.base.errors import RmqhaError
from rmqha.base.machine import Machine

TRACE_VERSION = 1
TEXT_LENGTH_MAX = 240
"""Characters that are kept of one effect for people."""

DIGEST_BYTES = 8
RECORD_BYTES_MAX = 256 << 20
"""A snapshot of a controller is one event."""

_LENGTH = struct.Struct(">I")


class TraceUnreadable(RmqhaError):
    """A trace was written by another version, or does not hold what a trace holds."""


class Opened(Struct, frozen=True, array_like=True, tag="opened"):
    """The first record.

    Attributes:
        version: of this format.
        release: of the program that wrote it.
        wall_ms: since 1970, for people.
    """

    version: int
    release: str
    wall_ms: int


class Begun(Struct, frozen=True, array_like=True, tag="begun"):
    """A core has been made.

    Attributes:
        core: its number within the trace.
        kind: which core it is.
        start: the settings and the state that it was made from, packed.
    """

    core: int
    kind: str
    start: Any


class Stepped(Struct, frozen=True, array_like=True, tag="stepped"):
    """A core took an event.

    Attributes:
        core: its number.
        now_ms: the time it was told.
        event: packed.
        digest: of the packed effects, or of the error that it raised.
        effects: a line each.
    """

    core: int
    now_ms: int
    event: Any
    digest: bytes
    effects: tuple[str, ...]


class Ended(Struct, frozen=True, array_like=True, tag="ended"):
    """Nothing was recorded from here on, though the process went on."""

    reason: str


Record: TypeAlias = Opened | Begun | Stepped | Ended

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Record).decode


class Kind(NamedTuple):
    """A kind of core that can be recorded and made again.

    Attributes:
        name: in traces.
        types: every class that its start and its events are made of.
        make: the core of a start.
        left_out: fields of events, by class and name, that say nothing that others do not.
    """

    name: str
    types: tuple[type, ...]
    make: Callable[[Any], Machine[Any, Any]]
    left_out: frozenset[tuple[str, str]] = frozenset()


class Difference(NamedTuple):
    """The first event whose effects are not those of the trace.

    Attributes:
        number: of the event within the trace, from 1.
        kind: of the core.
        now_ms: the time it was told.
        event: as text.
        recorded, replayed: the effects, a line each.
    """

    number: int
    kind: str
    now_ms: int
    event: str
    recorded: tuple[str, ...]
    replayed: tuple[str, ...]


class Replayed(NamedTuple):
    """What became of a trace that was played.

    Attributes:
        opened: its first record.
        events: how many were played, by kind of core.
        difference: the first; None when all effects were the same.
        ended: why the trace ends before its process did; empty when it does not say so.
    """

    opened: Opened
    events: dict[str, int]
    difference: Difference | None
    ended: str


# -- values ----------------------------------------------------------------------------------------


def pack(  # noqa: C901 - one case a kind of value
    value: object, left_out: frozenset[tuple[str, str]] = frozenset()
) -> Any:
    """Turn a value into what msgpack can write; sets in order, so that equal values look equal.

    Raises:
        TypeError: no core's events are made of such values.
    """
    if value is None or isinstance(value, (bool, float)):
        return value
    if isinstance(value, (int, str)):
        # Numbers with names are equal to numbers without.
        return int(value) if isinstance(value, int) else str(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, Enum):
        return ["e", type(value).__name__, value.name]
    if isinstance(value, Struct):
        name = type(value).__name__
        parts = [
            None if (name, part) in left_out else pack(getattr(value, part), left_out)
            for part in value.__struct_fields__
        ]
        return ["o", name, *parts]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return ["o", type(value).__name__, *(pack(part, left_out) for part in value)]
    if isinstance(value, tuple):
        return ["t", *(pack(part, left_out) for part in value)]
    if isinstance(value, list):
        return ["l", *(pack(part, left_out) for part in value)]
    if isinstance(value, (frozenset, set)):
        return ["s", *(pack(part, left_out) for part in sorted(value))]
    if isinstance(value, Mapping):
        pairs = ((pack(key), pack(one, left_out)) for key, one in value.items())
        return ["d", *(part for pair in pairs for part in pair)]
    raise TypeError(f"a trace cannot hold a {type(value).__name__}")


def unpack(packed: Any, types: Mapping[str, type]) -> Any:
    """The value again.

    Args:
        packed: what ``pack`` made.
        types: classes by their names; no others are made.

    Raises:
        TraceUnreadable: it is nothing that ``pack`` makes, or of a class that is not known.
    """
    if not isinstance(packed, list):
        return packed
    try:
        what, *parts = packed
        if what in ("o", "e"):
            made = types[parts[0]]
            if what == "e":
                return made[parts[1]]  # type: ignore[index]  # an Enum
            return made(*(unpack(part, types) for part in parts[1:]))
        values = [unpack(part, types) for part in parts]
        if what == "d":
            return dict(zip(values[::2], values[1::2], strict=True))
        return {"t": tuple, "l": list, "s": frozenset}[what](values)
    except (KeyError, TypeError, ValueError, IndexError, RecursionError) as error:
        raise TraceUnreadable(f"no value of this release: {packed!r:.200}") from error


def digest_of(effects: Sequence[object]) -> bytes:
    """Two rows of effects are the same when this is."""
    packed = _encode([pack(effect) for effect in effects])
    return hashlib.blake2b(packed, digest_size=DIGEST_BYTES).digest()


def _texts(effects: Sequence[object]) -> tuple[str, ...]:
    return tuple(repr(effect)[:TEXT_LENGTH_MAX] for effect in effects)


# -- records ---------------------------------------------------------------------------------------


def encode(record: Record) -> bytes:
    """A record with its length before it."""
    data = _encode(record)
    return _LENGTH.pack(len(data)) + data


def begun(core: int, kind: Kind, start: object) -> Begun:
    """The record of a core that has been made."""
    return Begun(core, kind.name, pack(start, kind.left_out))


def stepped(
    core: int, kind: Kind, now_ms: int, event: object, effects: Sequence[object]
) -> Stepped:
    """The record of a step."""
    packed = pack(event, kind.left_out)
    return Stepped(core, now_ms, packed, digest_of(effects), _texts(effects))


def failure_of(error: Exception) -> tuple[str, str]:
    """What stands in place of effects when a step has raised."""
    return (f"raised {type(error).__name__}", str(error))


def read_records(data: bytes) -> Iterator[Record]:
    """The records of a trace; a last one that is cut short, as by a crash, is left out.

    Raises:
        TraceUnreadable: these are not the bytes of a trace, or of another version.
    """
    position, first = 0, True
    while position + _LENGTH.size <= len(data):
        (length,) = _LENGTH.unpack_from(data, position)
        start = position + _LENGTH.size
        position = start + length
        if length > RECORD_BYTES_MAX:
            raise TraceUnreadable(f"a record of {length} bytes at {start}")
        if position > len(data):
            return
        try:
            record = _decode(data[start:position])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise TraceUnreadable(f"no record at {start}: {error}") from error
        if first != isinstance(record, Opened):
            raise TraceUnreadable("a trace begins with what it is, once")
        if isinstance(record, Opened) and record.version != TRACE_VERSION:
            raise TraceUnreadable(f"version {record.version}, this is {TRACE_VERSION}")
        first = False
        yield record


# -- playing ---------------------------------------------------------------------------------------


def replay(records: Iterable[Record], kinds: Mapping[str, Kind]) -> Replayed:
    """Play a trace against fresh cores, until the first event whose effects differ.

    Args:
        records: of one trace, from its start.
        kinds: by name; tests put altered cores here.

    Raises:
        TraceUnreadable: an event or a start cannot be read, or a kind is not known.
    """
    opened, ended = Opened(TRACE_VERSION, "", 0), ""
    cores: dict[int, tuple[Kind, dict[str, type], Machine[Any, Any]]] = {}
    counts: dict[str, int] = {}
    number = 0
    for record in records:
        match record:
            case Opened():
                opened = record
            case Ended(reason):
                ended = reason
            case Begun(core, name, start):
                kind = kinds.get(name)
                if kind is None:
                    raise TraceUnreadable(f"no core {name!r} is known")
                types = {one.__name__: one for one in kind.types}
                cores[core] = (kind, types, kind.make(unpack(start, types)))
                counts.setdefault(name, 0)
            case Stepped(core, now_ms, packed):
                if core not in cores:
                    raise TraceUnreadable(f"core {core} was never begun")
                kind, types, machine = cores[core]
                number += 1
                counts[kind.name] += 1
                event = unpack(packed, types)
                effects = _effects(machine, now_ms, event)
                if digest_of(effects) != record.digest:
                    text = repr(event)[:TEXT_LENGTH_MAX]
                    found = Difference(
                        number, kind.name, now_ms, text, record.effects, _texts(effects)
                    )
                    return Replayed(opened, counts, found, ended)
    return Replayed(opened, counts, None, ended)


def _effects(machine: Machine[Any, Any], now_ms: int, event: object) -> Sequence[object]:
    try:
        return machine.step(now_ms, event)
    except Exception as error:  # noqa: BLE001 - what a core raises is what it makes of an event
        return failure_of(error)
