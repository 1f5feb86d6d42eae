"""One module a process: the only place that picks real ports."""
