"""The frame and the binary header, drawn once. Specification and test oracle, not the hot path.

``frame.py`` and ``codec_binary.py`` read the same layouts with struct; a property test holds the
two equal in both directions. Integers are big-endian.

Source: RemotingCommand and RocketMQSerializable, RocketMQ remoting.
"""

from __future__ import annotations

from construct import (
    Bytes,
    GreedyBytes,
    GreedyRange,
    Int8ub,
    Int16sb,
    Int16ub,
    Int24ub,
    Int32sb,
    Prefixed,
    Struct,
    this,
)

FRAME = Struct(
    # Everything after this field: 4 + header_length + the body's length.
    "total_length" / Int32sb,
    "serialize_type" / Int8ub,
    "header_length" / Int24ub,
    "header" / Bytes(this.header_length),
    "body" / Bytes(this.total_length - 4 - this.header_length),
)

EXT_FIELD = Struct(
    "key" / Prefixed(Int16sb, GreedyBytes),
    "value" / Prefixed(Int32sb, GreedyBytes),
)

BINARY_HEADER = Struct(
    # Java reads the code signed; none of its codes is negative, and rmqha's private ones pass 32767.
    "code" / Int16ub,
    "language" / Int8ub,
    "version" / Int16sb,
    "opaque" / Int32sb,
    "flag" / Int32sb,
    # Length 0 stands for null, also for each key and value below.
    "remark" / Prefixed(Int32sb, GreedyBytes),
    "ext_fields" / Prefixed(Int32sb, GreedyRange(EXT_FIELD)),
)
