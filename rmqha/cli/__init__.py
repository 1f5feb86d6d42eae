"""One module a process: the only place that picks real ports."""

import sys

from rmqha.cli.early import hold_signals

# ``python -m`` imports this package first, while it still looks for the module that it is to run.
if sys.argv[:1] == ["-m"]:
    hold_signals()
