"""How much a consumer gets at a time.

Source: DefaultMessageStore.isTheBatchFull of RocketMQ 5.1.1 to 5.5 (``maxTransferCountOnMessageInMemory``
and its three neighbours).
"""

from __future__ import annotations

from typing import NamedTuple


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
