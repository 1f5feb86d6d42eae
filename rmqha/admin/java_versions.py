"""The names that Java gives to the releases whose ordinals clients tell.

Source: MQVersion of RocketMQ 5.3.3: each release stands behind its snapshot.
"""

from __future__ import annotations

_FIRST = (
    "SNAPSHOT", "ALPHA1", "BETA1", "BETA2", "BETA3", "BETA4", "BETA5", "BETA6_SNAPSHOT", "BETA6",
    "BETA7_SNAPSHOT", "BETA7", "BETA8_SNAPSHOT", "BETA8", "BETA9_SNAPSHOT", "BETA9", "FINAL",
)  # fmt: skip
"""The names that followed V3_0_0 while it was made."""
_LINES = (
    (16, 3, 0, 1, 15), (46, 3, 1, 0, 10), (66, 3, 2, 0, 10), (86, 3, 3, 1, 9), (212, 4, 0, 0, 10),
)  # fmt: skip
"""Ordinal, major and minor number where a row of equally long lines begins, each line's first patch,
and its count of patches."""
_HIGHER = 612


def version_name(ordinal: int) -> str:
    """``V5_3_3`` for 479; an ordinal that none can have stays a number."""
    if ordinal < 0:
        return str(ordinal)
    if ordinal < len(_FIRST):
        return f"V3_0_0_{_FIRST[ordinal]}"
    if ordinal >= _HIGHER:
        return "HIGHER_VERSION"
    begin, major, minor, patch, count = max(line for line in _LINES if line[0] <= ordinal)
    lines, rest = divmod(ordinal - begin, 2 * count)
    more, minor = divmod(minor + lines, 10)
    name = f"V{major + more}_{minor}_{patch + rest // 2}"
    return name if rest % 2 else f"{name}_SNAPSHOT"
