"""A failing story cut down to the few faults that it needs.

Delta debugging (Zeller and Hildebrandt 2002): leave out half of the faults, a quarter, and so on
down to single ones, as long as what is left fails in the same way.
"""

from __future__ import annotations

from collections.abc import Callable

from rmqha.sim.story import Fault

Script = tuple[Fault, ...]
PLAYS_MAX = 400


def same_failure(error: BaseException) -> str:
    """What a failure is called: the broken rule without the facts of this one run."""
    return f"{type(error).__name__}: {str(error).split(' (', 1)[0]}"


def shrink(script: Script, fails: Callable[[Script], bool], plays_max: int = PLAYS_MAX) -> Script:
    """The shortest script found that still fails.

    Args:
        script: fails.
        fails: plays one and says whether it fails in the same way.
        plays_max: stop after so many plays, with the shortest script so far.
    """
    plays = 0
    parts = 2
    while len(script) >= 1 and plays < plays_max:
        size = max(1, -(-len(script) // parts))
        for start in range(0, len(script), size):
            shorter = script[:start] + script[start + size :]
            plays += 1
            if fails(shorter):
                script = shorter
                parts = max(2, parts - 1)
                break
            if plays >= plays_max:
                break
        else:
            if size == 1:
                break
            parts = min(len(script), parts * 2)
    return script
