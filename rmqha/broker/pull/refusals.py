"""Who may read messages here at all: by the broker's role and permission, not by the group's."""

from __future__ import annotations

from rmqha.broker.common.refusal import Refusal
from rmqha.ha.events import Role
from rmqha.remoting.codes import ResponseCode

FENCED = Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "this broker does not know its role yet")
SLAVE_REFUSES = Refusal(
    ResponseCode.SYSTEM_BUSY,
    "[REJECTREQUEST]system busy, start flow control for a while: slaveReadEnable is false",
)


def read_refusal(
    role: Role | None, what: str, *, may_read: bool, slave_reads: bool
) -> Refusal | None:
    """Say why nothing is shown; a slave shows what it has where that is allowed.

    Args:
        role: what this broker serves as; None while it is fenced.
        what: is asked for, as Java's remark has it.
        may_read, slave_reads: by brokerPermission and slaveReadEnable.
    """
    if not may_read:
        return Refusal(ResponseCode.NO_PERMISSION, f"the broker {what} message is forbidden")
    if role is None:
        return FENCED
    if role is Role.SLAVE and not slave_reads:
        return SLAVE_REFUSES
    return None
