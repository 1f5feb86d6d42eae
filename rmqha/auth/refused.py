"""Why a request is not done."""

from __future__ import annotations

from enum import StrEnum

from rmqha.base.errors import RmqhaError


class Reason(StrEnum):
    """What metrics count refusals by."""

    UNSIGNED = "unsigned"
    UNKNOWN_USER = "unknown_user"
    DISABLED_USER = "disabled_user"
    WRONG_SIGNATURE = "wrong_signature"
    NO_POLICY = "no_policy"
    DENIED = "denied"
    NOT_SUPER = "not_super"
    MALFORMED = "malformed"


class Refused(RmqhaError):
    """Answered as 16 NO_PERMISSION; the text is the remark, in Java's words where it has some.

    Attributes:
        reason: for metrics.
    """

    def __init__(self, reason: Reason, remark: str) -> None:
        super().__init__(remark)
        self.reason = reason


class ChangeRefused(RmqhaError):
    """Users or policies cannot be changed so; the text is the remark, in Java's words."""
