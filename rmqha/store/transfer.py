"""How much a consumer gets at a time.

Source: DefaultMessageStore.isTheBatchFull of RocketMQ 5.1.1 to 5.5 (``maxTransferCountOnMessageInMemory``
and its three neighbours).
"""

from __future__ import annotations

from typing import NamedTuple

from rmqha.remoting.settings import FRAME_BYTES_MAX
from rmqha.store.record import HEADROOM

ANSWER_HEADER_MAX = 64 * 1024
"""What an answer says beside its messages: offsets and flags, some hundred bytes a message."""

SENT_BYTES_MAX = FRAME_BYTES_MAX - ANSWER_HEADER_MAX
"""A record that is longer fits into no answer to a consumer. Java's have the same bound unless their
``com.rocketmq.remoting.frameMaxLength`` is raised, at both ends."""

MESSAGE_SIZE_MAX = SENT_BYTES_MAX - HEADROOM
"""Of ``maxMessageSize``: with its properties, its topic's name and its head, even with those that it
gets when it is delayed or comes again, every stored message is one that can be read."""


class Transfer(NamedTuple):
    """How much one read may carry, by where it lies.

    Attributes:
        near_bytes: what is not farther behind the log's end counts as being in memory.
        near_count, near_size: messages and their bytes, once the next one is in memory.
        far_count, far_size: likewise of what may have to be read from the disk.
    """

    near_bytes: int
    near_count: int
    near_size: int
    far_count: int
    far_size: int
