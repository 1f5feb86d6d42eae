"""How far consumers may read on a master.

Source: AutoSwitchHAService.computeConfirmOffset and CommitLog.getConfirmOffset of RocketMQ 5.2.0
to 5.5; #6662, #6728, #7656.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet


def compute_confirm_offset(
    *,
    max_offset: int,
    confirm_offset: int,
    own_id: int,
    union: AbstractSet[int],
    acks: Mapping[int, int],
    all_ack: bool,
) -> int:
    """Where confirmOffset moves now; a master never moves it back.

    * Without ``allAckInSyncStateSet``, or alone in the set: the end of the log (#7656). Java
      shortens this to the confirmed set; an expansion that the controller has accepted without
      this master's knowledge would let consumers see what the new member lacks.
    * A member without a connection, or without an acknowledgement on it: nothing moves
      (#6662). Java leaves members that have not acknowledged out of the minimum (#6728).
    * Otherwise: the smallest acknowledgement of all that the controller may elect.

    Args:
        max_offset: the end of the log.
        confirm_offset: where it is now, -1 when unknown.
        own_id: this master.
        union: every set that the controller may hold, united.
        acks: by slave id, of current connections that have acknowledged; learners do not matter.
        all_ack: ``allAckInSyncStateSet``.
    """
    others = [member for member in union if member != own_id]
    if not all_ack or not others:
        return max_offset
    # RIP-44, "ConfirmOffset": the smallest end of all replicas in the set.
    smallest = max_offset
    for member in others:
        ack = acks.get(member, 0)
        if ack <= 0:
            # It may be elected and hold nothing of what would be shown to consumers.
            return confirm_offset
        smallest = min(smallest, ack)
    return max(confirm_offset, smallest)
