"""All decoders of bytes from outside."""

from __future__ import annotations

from tests.fuzz import planted, stored, wire
from tests.fuzz.target import Target

TARGETS: tuple[Target, ...] = (*wire.TARGETS, *stored.TARGETS)


def any_of_all(data: bytes) -> None:
    """The first byte says which decoder the rest is for."""
    if data:
        TARGETS[data[0] % len(TARGETS)].run(data[1:])


def all_in_one() -> Target:
    """All decoders as one, with the corpus of each: one process fuzzes all."""
    seeds = [bytes([number]) + data for number, one in enumerate(TARGETS) for data in one.corpus()]
    return Target("all", any_of_all, (), tuple(seeds))


def by_name(name: str) -> Target:
    """One of them, the planted one, or all in one."""
    if name == "all":
        return all_in_one()
    return next(one for one in (*TARGETS, *planted.TARGETS) if one.name == name)
