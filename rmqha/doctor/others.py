"""What the other files hold: epochs, identities, tables, a controller's store, captured frames."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePath

from msgspec import to_builtins

from rmqha.base.errors import RemoteProtocolError, StoreCorrupted
from rmqha.doctor.stores import Row
from rmqha.ha.epochs import OFFSET_MAX, parse_epochs
from rmqha.pipeline.controller_log.records import read_store
from rmqha.remoting import fastjson
from rmqha.remoting.codes import request_name
from rmqha.remoting.frame import FrameDecoder
from rmqha.store.identity import TEMPORARY_SUFFIX, decode_identity

BODY_SHOWN_MAX = 256
VALUE_SHOWN_MAX = 64
_TABLES = frozenset({
    "topicConfigTable", "subscriptionGroupTable", "offsetTable", "topicQueueMappingInfoMap",
    "messageRequestModeMap", "forbiddenTable",
})  # fmt: skip
"""Members of Java's tables that are objects by name; ours are called the same."""


def epochs(data: bytes) -> Iterator[Row]:
    """The entries of an ``epochFileCheckpoint``; the last one has no end yet."""
    try:
        found = parse_epochs(data)
    except StoreCorrupted as error:
        yield {"damage": 0, "why": str(error)}
        return
    for span in found.spans():
        row: Row = {"epoch": span.epoch, "start_offset": span.start}
        yield row if span.end == OFFSET_MAX else {**row, "end_offset": span.end}


def identity(data: bytes, path: str) -> Iterator[Row]:
    """A ``brokerIdentity``, or the temporary one of a broker that asks for its id."""
    temporary = PurePath(path).name.endswith(TEMPORARY_SUFFIX)
    try:
        found = decode_identity(data, path, temporary=temporary)
    except StoreCorrupted as error:
        yield {"damage": 0, "why": str(error)}
        return
    yield {name: value for name, value in to_builtins(found).items() if value != ""}


def config(data: bytes) -> Iterator[Row]:
    """A table of ``config/``: how many entries each member has, then the entries."""
    try:
        found = fastjson.loads(data)
    except RemoteProtocolError as error:
        yield {"damage": 0, "why": f"no JSON: {error}"}
        return
    if not isinstance(found, dict):
        yield {"damage": 0, "why": f"a table is an object, and this is {_kind(found)}"}
        return
    wrong = next(_misshaped(found), None)
    if wrong is not None:
        yield {"damage": 0, "why": wrong}
        return
    yield {name: _size(value) for name, value in found.items()}
    for name, value in found.items():
        if isinstance(value, dict):
            for key, one in value.items():
                yield {"member": name, "key": key, "value": one}


def _misshaped(members: Mapping[str, object]) -> Iterator[str]:
    """What is wrong with the tables that are known."""
    for name in sorted(_TABLES & members.keys()):
        table = members[name]
        if table is None:
            continue
        if not isinstance(table, dict):
            yield f"{name} is an object, and here {_kind(table)}"
            continue
        for key, value in table.items():
            # Consumer offsets are by queue; delay offsets are numbers.
            numbers = value.values() if isinstance(value, dict) else [value]
            if name == "offsetTable" and not all(type(one) is int for one in numbers):
                yield f"{name}: {key} has {fastjson.dumps(value).decode()[:VALUE_SHOWN_MAX]}"


def _kind(value: object) -> str:
    kinds = {list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), "a number")


def _size(value: object) -> object:
    return f"{len(value)} entries" if isinstance(value, dict | list) else value


def controller(folder: str, name: str | None) -> Iterator[Row]:
    """The records of a controller's store, as ``bin/pipeline`` reads them.

    Args:
        folder: of segments and snapshots.
        name: of the file that is wanted; None for all.
    """
    for one in read_store(folder, PurePath(folder).name):
        if name is not None and one.segment != name:
            continue
        row = {key: value for key, value in to_builtins(one).items() if value is not None}
        del row["replica"]
        if "corrupt" in row:
            row = {"damage": row["position"], "why": row.pop("corrupt"), **row}
        yield row


def frames(data: bytes) -> Iterator[Row]:
    """Captured remoting frames, one behind the other, of one direction of a connection."""
    decoder = FrameDecoder()
    try:
        commands = decoder.feed(data)
    except RemoteProtocolError as error:
        yield {"damage": 0, "why": str(error)}
        return
    for one in commands:
        what = "answer" if one.is_response else request_name(one.code)
        body = one.body[:BODY_SHOWN_MAX].decode("utf-8", "backslashreplace")
        yield {
            "what": what, "code": one.code, "opaque": one.opaque, "flag": one.flag,
            "version": one.version, "language": str(one.language), "remark": one.remark,
            "fields": dict(one.ext_fields or {}), "body_size": len(one.body), "body": body,
        }  # fmt: skip
    if decoder.error is not None:
        yield {"damage": len(data) - decoder.pending_bytes, "why": str(decoder.error)}
    elif decoder.pending_bytes:
        yield {"damage": len(data) - decoder.pending_bytes, "why": "a frame that is not whole"}
