"""Whether a broker does what it is there for, so that a rolling restart may go on."""

from __future__ import annotations

from rmqha.ha.events import Role
from rmqha.ha.frames import ConnectionState
from rmqha.ha.ha_core import HaCore


def not_ready(role: Role | None, core: HaCore | None, *, is_leased: bool) -> str | None:
    """What is missing, in a sentence; None of a broker that serves.

    A slave is ready when it has all that its master told it is confirmed: the next one of its set
    may be restarted then.

    Args:
        role: what it serves as; None while it is fenced.
        core: its replication; None before it has an id, or where there is none.
        is_leased: whether a master may write.
    """
    if role is None:
        return "it has no role: no master is known, or a change of roles is under way"
    if role is Role.MASTER:
        return None if is_leased else "its write lease has ended: no controllers confirm it"
    client = None if core is None else core.client
    if core is None or client is None or client.state is not ConnectionState.TRANSFER:
        return "its master does not send it the log"
    confirmed = client.master_confirm_offset
    if confirmed is None:
        return "its master has not told yet what is confirmed"
    missing = confirmed - core.ha.log.max_offset
    return f"{missing} bytes that are confirmed are missing" if missing > 0 else None
