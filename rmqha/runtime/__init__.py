"""The outside world as Protocols (ports), settings, logs and metrics; real ports are in ``aio``."""
