"""Why a request is not done."""

from __future__ import annotations

from typing import NamedTuple


class Refusal(NamedTuple):
    """The answer's code and remark."""

    code: int
    remark: str
