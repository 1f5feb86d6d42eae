"""structlog without rich. Imported by whoever writes a process's log, when it begins to."""

from __future__ import annotations

import sys

if "rich" in sys.modules:
    import structlog as structlog
else:
    # structlog.dev loads rich for tracebacks that are never printed here: 5 MB of each
    # controller's memory and 50 ms of its start.
    sys.modules["rich"] = None  # type: ignore[assignment]  # the import system's own mark for "absent"
    try:
        import structlog as structlog
    finally:
        del sys.modules["rich"]
