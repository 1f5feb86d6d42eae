"""Attacks as processes beside a cluster: started, ended, and asked what they achieved."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

NICENESS = 10
END_S = 120.0


class Attackers:
    """Some attacks at once.

    Args:
        chosen: name to show, attack, target file and shots a second of each.
        seconds: how long each attacks.
        folder: for what they print.
        niceness: so that attackers do not simply take the processor from whom they attack.
    """

    def __init__(
        self,
        chosen: Iterable[tuple[str, str, Path, float]],
        seconds: float,
        folder: Path,
        niceness: int = NICENESS,
    ) -> None:
        self._chosen = list(chosen)
        self._seconds = seconds
        self._folder = folder
        self._niceness = niceness
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        for shown, name, target, per_s in self._chosen:
            command = [sys.executable, "-m", "tests.attacks", name, str(target),
                       str(self._seconds), str(per_s)]  # fmt: skip
            with self._out(shown).open("wb") as out:
                self._running[shown] = subprocess.Popen(
                    command, stdout=out, stderr=subprocess.STDOUT, cwd=_ROOT,
                    preexec_fn=lambda: os.nice(self._niceness) and None,
                )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._running.values():
            if one.poll() is None:
                one.kill()
            one.wait()

    def tallies(self) -> dict[str, dict[str, Any] | None]:
        """Wait for all; what each achieved, None of one that failed or sent nothing."""
        found: dict[str, dict[str, Any] | None] = {}
        for shown, one in self._running.items():
            try:
                code = one.wait(END_S)
            except subprocess.TimeoutExpired:
                code = -1
            lines = self._out(shown).read_text(errors="replace").splitlines()
            found[shown] = json.loads(lines[-1]) if code == 0 and lines else None
            if found[shown] is None:
                print(f"{shown} failed with {code}:", *lines[-15:], sep="\n  ", flush=True)
        return found

    def _out(self, shown: str) -> Path:
        return self._folder / f"{shown}.out"


_ROOT = Path(__file__).resolve().parents[2]
