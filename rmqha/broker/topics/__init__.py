"""Topics and subscription groups: their tables, files and requests."""
