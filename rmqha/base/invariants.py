"""Safety rules that stay on in production."""

from __future__ import annotations

from typing import Never, NoReturn

from rmqha.base.errors import EffectUnknown, InvariantBroken


def invariant(condition: bool, message: str, **facts: object) -> None:
    """Stop when a safety rule does not hold.

    Args:
        condition: what must be true.
        message: the rule in words.
        facts: the values that show how it broke.

    Raises:
        InvariantBroken: when ``condition`` is false.
    """
    if not condition:
        shown = ", ".join(f"{key}={value!r}" for key, value in sorted(facts.items()))
        raise InvariantBroken(f"{message} ({shown})" if shown else message)


def unknown_effect(effect: Never) -> NoReturn:
    """End a ``match`` over effects: the type checker finds a case that is missing, and so does this.

    Raises:
        EffectUnknown: always.
    """
    raise EffectUnknown(f"{type(effect).__name__} is no effect that this shell carries out")
