"""One bug a file: ``SCENARIOS`` are all of them, by their numbers."""

from __future__ import annotations

import importlib
import pkgutil

from tests.reproduce.scenario import Scenario


def _found() -> dict[int, Scenario]:
    names = sorted(one.name for one in pkgutil.iter_modules(__path__))
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    return {one.SCENARIO.number: one.SCENARIO for one in modules}


SCENARIOS = _found()
