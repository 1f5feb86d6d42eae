"""No acknowledged record is ever lost.

Note every record whose put was answered with PUT_OK; at any later moment the master of the
newest epoch must hold all of them, at the same offsets.

Source: RIP-44, "A solution without losing messages".
"""

from __future__ import annotations

from msgspec import Struct, field

from rmqha.base.invariants import invariant
from rmqha.verify.logs import LogSnapshot


class DurabilityProperty(Struct):
    """The records that were acknowledged over a run, by their offsets."""

    acknowledged: dict[int, bytes] = field(default_factory=dict)

    def put_ok(self, offset: int, record: bytes) -> None:
        """A producer was told that this record is safe.

        Raises:
            InvariantBroken: another record was acknowledged at the same place.
        """
        known = self.acknowledged.setdefault(offset, record)
        invariant(known == record, "two records were acknowledged at one offset", offset=offset)

    def check(self, master: LogSnapshot) -> None:
        """The replica that the controller elected holds every acknowledged record.

        Records before its first file have expired and are not looked for.

        Raises:
            InvariantBroken: one is missing, or differs.
        """
        for offset, record in self.acknowledged.items():
            if offset < master.min_offset:
                continue
            end = offset + len(record)
            found = master.read(offset, len(record)) if end <= master.max_offset else b""
            invariant(
                found == record,
                "an acknowledged record is lost",
                master=master.name,
                offset=offset,
                max_offset=master.max_offset,
                found=found[:16].hex(),
            )
