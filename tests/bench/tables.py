"""Markdown tables and JSON files of measurements."""

from __future__ import annotations

import json
import platform
import statistics
from collections.abc import Sequence
from pathlib import Path

import psutil


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def machine() -> str:
    """One line about where the figures come from."""
    memory_gb = psutil.virtual_memory().total / (1 << 30)
    return (
        f"{psutil.cpu_count()} cores, {memory_gb:.0f} GB, {platform.system()}, "
        f"Python {platform.python_version()}"
    )


def spread(values: Sequence[float], unit: str = "") -> str:
    """Median, and the range when there is one."""
    if not values:
        return "-"
    middle = number(statistics.median(values))
    if len(values) == 1:
        return f"{middle}{unit}"
    return f"{middle}{unit} ({number(min(values))}-{number(max(values))})"


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """Our median over theirs."""
    if not ours or not theirs or statistics.median(theirs) == 0:
        return "-"
    return f"{statistics.median(ours) / statistics.median(theirs):.2f}"


def number(value: float) -> str:
    """Three significant digits, thousands as k."""
    if abs(value) >= 10_000:
        return f"{value / 1000:.1f}k"
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def write_json(path: Path, content: object) -> None:
    """Keep the raw figures."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")
