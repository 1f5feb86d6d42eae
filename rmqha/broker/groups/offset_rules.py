"""Rules about offsets: where a group without one begins, and what an operator's reset names.

Source: ConsumerManageProcessor and AdminBrokerProcessor of RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rmqha.remoting.headers import bool_field, int_field, long_field, text_field

BOUNDARY_UPPER = "UPPER"

NOWHERE = -1
"""Stored for a segment of a logical queue that a group has left for an older one."""

FORGOTTEN_FIELD = "rmqhaForgotten"
"""Of request 15 between brokers with the offset ``NOWHERE``: what is stored, if it is still this."""

FIRST_FIELD = "rmqhaFirst"
"""Of request 15 between brokers: it counts where nothing is stored alone, and is answered all the same."""

MASTER_FIELD = "rmqhaMaster"
"""Of requests between brokers about a segment: a slave refuses them, which may lack what it is asked for."""


def starts_at_zero(
    *, wanted: bool, min_offset: int, first_lag: int | None, near_bytes: int
) -> bool:
    """Whether a group that has stored nothing is told 0 instead of "not found".

    A queue that still begins at 0, and not long ago, is read from its start: whoever subscribes
    to a fresh topic wants its first messages.

    Args:
        wanted: the client did not send ``setZeroIfNotFound=false``.
        first_lag: bytes from message 0 to the log's end; None without one.
        near_bytes: what counts as still being in memory.
    """
    return wanted and min_offset <= 0 and first_lag is not None and first_lag <= near_bytes


class ResetRequest(NamedTuple):
    """The fields of request 222.

    Attributes:
        timestamp: ms; negative for the end of the queue.
        is_force: forward too; otherwise a group is only moved back.
        queue_id: negative for all.
        offset: negative for the one that ``timestamp`` names.
    """

    topic: str
    group: str
    timestamp: int
    is_force: bool
    queue_id: int
    offset: int

    @classmethod
    def parse(cls, fields: Mapping[str, str] | None) -> ResetRequest:
        """Read the fields."""
        return cls(
            text_field(fields, "topic", ""),
            text_field(fields, "group", ""),
            long_field(fields, "timestamp", -1),
            bool_field(fields, "isForce"),
            int_field(fields, "queueId", -1),
            long_field(fields, "offset", -1),
        )


def queues_to_reset(wanted: ResetRequest, read_queue_nums: int) -> list[int]:
    """The queues that are meant; none when the one that is named does not exist."""
    if wanted.queue_id < 0:
        return list(range(read_queue_nums))
    return [wanted.queue_id] if wanted.queue_id < read_queue_nums else []
