"""Whether this broker hands out anything by pop: by its role, its settings and its log.

What a group or a topic may not is said in ``broker/pop/request.py``.
"""

from __future__ import annotations

from rmqha.broker.common.refusal import Refusal
from rmqha.broker.pull.refusals import FENCED
from rmqha.ha.events import Role
from rmqha.remoting.codes import ResponseCode

SLAVE_REFUSES = Refusal(
    ResponseCode.SYSTEM_BUSY,
    "[REJECTREQUEST]system busy, start flow control for a while: pop at the master",
)


def pop_refusal(
    role: Role | None, *, may_read: bool, has_timers: bool, may_write: bool
) -> Refusal | None:
    """Say why nothing is popped here.

    Args:
        role: what this broker serves as; None while it is fenced.
        may_read: by brokerPermission.
        has_timers: check points come back by them.
        may_write: messages of the broker's own, as check points are.
    """
    if role is None:
        return FENCED
    if role is Role.SLAVE:
        return SLAVE_REFUSES
    if not may_read:
        return Refusal(ResponseCode.NO_PERMISSION, "the broker pop message is forbidden")
    if not has_timers:
        return Refusal(
            ResponseCode.SYSTEM_ERROR, "pop message is forbidden: timerWheelEnable is false"
        )
    if not may_write:
        return Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "check points cannot be written now")
    return None
