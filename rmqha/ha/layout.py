"""Every HA frame, drawn once. Specification and test oracle, not the hot path.

``frames.py`` reads and writes the same layouts with struct; a property test holds the two equal
in both directions. Integers are big-endian. No frame has a length, magic or checksum beyond
what is drawn here.

Source: AutoSwitchHAClient, AutoSwitchHAConnection and DefaultHAConnection of RocketMQ 5.1.1 to
5.5; RIP-44, "Detailed design of replication".
"""

from __future__ import annotations

from construct import Array, Bytes, Const, Int16sb, Int32sb, Int64sb, Struct, this

HANDSHAKE_REQUEST = Struct(
    # slave -> master, 16 bytes, in one write: Java's parser is content with 12 of them
    "state" / Const(1, Int32sb),
    "sync_from_last_file" / Int16sb,
    "async_learner" / Int16sb,
    # the persistent controller id, from 1
    "slave_id" / Int64sb,
)

EPOCH_ENTRY = Struct("epoch" / Int32sb, "start_offset" / Int64sb)

HANDSHAKE_REPLY = Struct(
    # master -> slave, 20 bytes and the epochs, ascending
    "state" / Const(1, Int32sb),
    "body_size" / Int32sb,
    "max_offset" / Int64sb,
    # -1 when there is no epoch; Java's slave does not look at it
    "last_epoch" / Int32sb,
    "entries" / Array(this.body_size // 12, EPOCH_ENTRY),
)

TRANSFER = Struct(
    # master -> slave, 36 bytes and a piece of the commit log
    "state" / Const(2, Int32sb),
    # 0 is a heartbeat
    "body_size" / Int32sb,
    # of the first body byte; in a heartbeat of the byte that would be sent next
    "offset" / Int64sb,
    "epoch" / Int32sb,
    # Java labels a batch that it cut at an epoch's end with the next epoch: may be > offset
    "epoch_start" / Int64sb,
    "confirm_offset" / Int64sb,
    "body" / Bytes(this.body_size),
)

ACK = Struct(
    # slave -> master, 12 bytes; the first one asks to start there, and 0 says "I am empty"
    "state" / Const(2, Int32sb),
    "offset" / Int64sb,
)
