"""Every file of the store, drawn once. Specification and test oracle, not the hot path.

``record.py``, ``consume_queue.py``, ``index_file.py`` and ``checkpoint.py`` read the same layouts
with struct; property tests hold the two equal in both directions. Integers are big-endian.

Source: RocketMQ's protocol as observed.
"""

from __future__ import annotations

from construct import (
    Bytes,
    Const,
    If,
    IfThenElse,
    Int8ub,
    Int16sb,
    Int16ub,
    Int32sb,
    Int32ub,
    Int64sb,
    Padding,
    Struct,
    this,
)

from rmqha.store import record as rec
from rmqha.store.checkpoint import INDEXED_MARK, MARK

HOST_V4 = Struct("ip" / Bytes(4), "port" / Int32sb)
HOST_V6 = Struct("ip" / Bytes(16), "port" / Int32sb)

RECORD = Struct(
    "total_size" / Int32sb,
    "magic" / Int32ub,
    # CRC-32 of the body as stored, its sign bit cleared.
    "body_crc" / Int32sb,
    "queue_id" / Int32sb,
    "flag" / Int32sb,
    "queue_offset" / Int64sb,
    "physical_offset" / Int64sb,
    "sys_flag" / Int32sb,
    "born_timestamp" / Int64sb,
    "born_host" / IfThenElse(this.sys_flag & rec.BORN_HOST_V6, HOST_V6, HOST_V4),
    "store_timestamp" / Int64sb,
    "store_host" / IfThenElse(this.sys_flag & rec.STORE_HOST_V6, HOST_V6, HOST_V4),
    "reconsume_times" / Int32sb,
    "prepared_transaction_offset" / Int64sb,
    "body_length" / Int32sb,
    "body" / Bytes(this.body_length),
    "topic_length" / IfThenElse(this.magic == rec.MAGIC_V2, Int16ub, Int8ub),
    "topic" / Bytes(this.topic_length),
    "properties_length" / Int16sb,
    "properties" / Bytes(this.properties_length),
)

BLANK = Struct("length" / Int32sb, "magic" / Const(rec.MAGIC_BLANK, Int32ub))

CONSUME_QUEUE_UNIT = Struct(
    "physical_offset" / Int64sb,
    "size" / Int32sb,
    "tags_code" / Int64sb,
)

BATCH_CONSUME_QUEUE_UNIT = Struct(
    "physical_offset" / Int64sb,
    "size" / Int32sb,
    "tags_code" / Int64sb,
    "store_timestamp" / Int64sb,
    "base_offset" / Int64sb,
    "batch_size" / Int16sb,
    "compacted_offset" / Int32sb,
    "reserved" / Int32sb,
)

INDEX_HEADER = Struct(
    "begin_timestamp" / Int64sb,
    "end_timestamp" / Int64sb,
    "begin_physical_offset" / Int64sb,
    "end_physical_offset" / Int64sb,
    "used_slot_count" / Int32sb,
    # Of the next unit: a file without units has 1.
    "index_count" / Int32sb,
)

INDEX_UNIT = Struct(
    "key_hash" / Int32sb,
    "physical_offset" / Int64sb,
    "seconds" / Int32sb,
    "previous" / Int32sb,
)

# Ours, in a folder of its own; Java does not look there.
BLOCK_SUMS = Struct(
    "magic" / Const(b"RHBS"),
    "version" / Const(1, Int32ub),
    "start" / Int64sb,
    "file_size" / Int64sb,
    "block_bytes" / Int32ub,
    "blocks" / Int32ub,
    # Of so many first bytes of each block; 0 where there is no sum.
    "lengths" / Int32ub[this.blocks],
    "crcs" / Int32ub[this.blocks],
    # Where in each block a record begins; 0xFFFFFFFF where none is known.
    "starts" / Int32ub[this.blocks],
    "crc" / Int32ub,
)

CHECKPOINT = Struct(
    "physic_msg_timestamp" / Int64sb,
    "logics_msg_timestamp" / Int64sb,
    "index_msg_timestamp" / Int64sb,
    "master_flushed_offset" / Int64sb,
    "confirm_offset" / Int64sb,
    Padding(24),
    # Ours; Java leaves zeros here and keeps what it finds.
    "mark" / Bytes(4),
    "mark_crc" / If(this.mark == MARK, Int32ub),
    "flushed_offset" / If(this.mark == MARK, Int64sb),
    "_skipped" / If(this.mark != MARK, Padding(12)),
    "indexed_mark" / Bytes(4),
    "indexed_mark_crc" / If(this.indexed_mark == INDEXED_MARK, Int32ub),
    "indexed_offset" / If(this.indexed_mark == INDEXED_MARK, Int64sb),
    # The rest of the 4 096 bytes is zero.
)
