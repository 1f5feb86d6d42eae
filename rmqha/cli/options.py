"""Types of options that several commands have."""

from __future__ import annotations

import math
from typing import Any

import click


class SecondsRange(click.FloatRange):
    """A number of seconds. ``nan`` and ``inf``, which are floats as well, are none: the first is
    below no minimum and above no maximum."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number that a word says; anything else is a wrong usage."""
        number = super().convert(value, param, ctx)
        assert isinstance(number, float)
        if not math.isfinite(number):
            self.fail(f"{value!r} is no number of seconds.", param, ctx)
        return number
