"""When a timer that comes late says that this process was not scheduled, and what to do then.

A deadline that is over may be one that nobody has missed: what peers sent meanwhile lies in the
buffers, and loops may run timers before they read. So one looks again a moment later, when the loop
has read; and who was away for long cannot tell who was silent.
"""

LATE_MS = 10
"""A timer that comes later than this has waited for the processor, not for time."""

READ_MS = 1
"""After so long the loop has read what was there: it reads before it looks at a timer again."""

PAUSED_MS = 1_000
"""Who comes as late as a sign of life may have lost some."""
