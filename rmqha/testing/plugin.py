"""The pytest plugin: clusters as fixtures. pytest finds it by its entry point ``rmqha``.

Nothing heavy is imported here: every pytest run of an environment that has rmqha loads this file.
"""

from __future__ import annotations
